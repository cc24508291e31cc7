// How far a training may be from its recording. Facts of the recordings' README carry it: float, and the forward pass
// of AQT int8, repeat to 1e-5 in the logits and 1e-6 in the gradients; a Qwix int8 case compiled twice does not repeat
// (a value that sits on a tie is rounded either way, and a flipped rounding moves a logit by 1e-2).
#include "octavo/cli/golden_maxtext.h"

namespace octavo {
namespace {

bool IsInteger(const std::optional<Format>& format) {
  return format && (*format == Format::kInt8 || *format == Format::kInt4);
}

}  // namespace

MaxTextTolerance ToleranceOf(const MaxTextRecipe& recipe) {
  MaxTextTolerance tolerance;
  for (const quant::Rule& rule : recipe.rules) {
    if (!rule.treatment) continue;
    // What follows from a rounding that falls the other way in one of the steps; seen between two compilations.
    tolerance.loss = 3.8e-3;
    tolerance.norms = 3.4e-3;
    const auto* qwix = std::get_if<quant::QwixTreatment>(&*rule.treatment);
    const auto* aqt = std::get_if<quant::AqtTreatment>(&*rule.treatment);
    if (qwix != nullptr && (IsInteger(qwix->activation) || IsInteger(qwix->weight))) {
      tolerance.least_share = 0.25;  // two compilations: 11 of 32
      tolerance.to_float = true;
    } else if (aqt != nullptr && IsInteger(aqt->activation)) {
      tolerance.to_float = recipe.random_gradient;
    } else {
      // fp8: nothing sits on a tie by construction, but a last bit may move a value to the next code, here and there.
      tolerance.least_share = 0.9;
      tolerance.to_float = true;
    }
  }
  return tolerance;
}

}  // namespace octavo
