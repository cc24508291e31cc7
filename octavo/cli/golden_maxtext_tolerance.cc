// How far a training may be from its recording; docs/decisions/0010 gives the reasons. Float, and the forward pass of
// AQT int8, repeat to 1e-5 in the logits and 1e-6 in the gradients. One Qwix int8 case was recorded under two sets of
// compiler flags and does not repeat: what those two recordings are apart is the reference's own spread, and every
// gate of a recipe whose roundings may fall the other way is that spread times one margin.
#include "octavo/cli/golden_maxtext.h"

namespace octavo {
namespace {

bool IsInteger(const std::optional<Format>& format) {
  return format && (*format == Format::kInt8 || *format == Format::kInt4);
}

// Of llama.qwix_int8 against llama.qwix_int8.xla_default.
constexpr double kAgreeingPositions = 11.0 / 32, kLossSpread = 3.8e-3, kNormSpread = 3.4e-3;
constexpr double kLogitsSpread = 0.34, kGradientSpread = 0.65;  // in units of the float model's distance
// Gradients that both sides round at random: two independent errors of the size of one.
constexpr double kRandomSpread = 1.4142135623730951;
constexpr double kMargin = 1.5;

}  // namespace

MaxTextTolerance ToleranceOf(const MaxTextRecipe& recipe) {
  MaxTextTolerance tolerance;
  for (const quant::Rule& rule : recipe.rules) {
    if (!rule.treatment) continue;
    tolerance.loss = kLossSpread;
    tolerance.norms = kNormSpread;
    tolerance.logits_units = kMargin * kLogitsSpread;
    tolerance.gradient_units = kMargin * (recipe.random_gradient ? kRandomSpread : kGradientSpread);
    const auto* qwix = std::get_if<quant::QwixTreatment>(&*rule.treatment);
    const auto* aqt = std::get_if<quant::AqtTreatment>(&*rule.treatment);
    if (qwix != nullptr && (IsInteger(qwix->activation) || IsInteger(qwix->weight))) {
      tolerance.least_share = kAgreeingPositions / kMargin;
      tolerance.to_float = true;
    } else if (aqt != nullptr && IsInteger(aqt->activation)) {
      tolerance.to_float = recipe.random_gradient;
    } else {
      // Scales are such that no value sits on a tie by construction. A last bit (2^-24) crosses the border between two
      // codes (2^-4 apart) about once in 2^20 values; a position has a few thousand: nine of ten must be untouched.
      tolerance.least_share = 0.9;
      tolerance.to_float = true;
    }
  }
  return tolerance;
}

}  // namespace octavo
