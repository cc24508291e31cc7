// How far a quantized training may be from its recording. The recordings' README measured it by compiling one case two
// ways; everything here is derived from those numbers.
#include <algorithm>
#include <cmath>

#include "octavo/cli/golden_maxtext.h"
#include "octavo/numerics/format.h"

namespace octavo {
namespace {

// Two compilations of the reference's Qwix int8 case differ by this much.
constexpr MaxTextTolerance kQwixInt8 = {.logits = 3.1e-2,
                                        .mean_logits = 3.8e-3,
                                        .gradients = 4.2e-3,
                                        .loss = 3.8e-3,
                                        .norms = 3.4e-3,
                                        .step1 = 0,
                                        .least_share = 0};

// A rounding that falls the other way moves a value by one step of its format: as a share of the largest value.
double StepOf(Format format) {
  switch (format) {
    case Format::kInt4:
      return 1 / 7.5;
    case Format::kF8E4M3FN:
    case Format::kF8E4M3FNUZ:
      return 1 / 16.0;
    case Format::kF8E5M2:
    case Format::kF8E5M2FNUZ:
      return 1 / 8.0;
    default:
      return 1 / 127.5;
  }
}

}  // namespace

MaxTextTolerance ToleranceOf(const MaxTextRecipe& recipe, double learning_rate) {
  MaxTextTolerance tolerance;
  double forward = 0, backward = 0;
  bool repeatable = true;
  const auto widen = [](double& step, const std::optional<Format>& format) {
    if (format) step = std::max(step, StepOf(*format));
  };
  for (const quant::Rule& rule : recipe.rules) {
    if (!rule.treatment) continue;
    if (const auto* qwix = std::get_if<quant::QwixTreatment>(&*rule.treatment)) {
      widen(forward, qwix->weight);
      widen(forward, qwix->activation);
      widen(backward, qwix->gradient);
      repeatable = false;
    } else if (const auto* aqt = std::get_if<quant::AqtTreatment>(&*rule.treatment)) {
      widen(forward, aqt->weight);
      widen(forward, aqt->activation);
      widen(backward, aqt->grad_lhs);
      widen(backward, aqt->grad_rhs);
    } else if (const auto* delayed = std::get_if<quant::DelayedTreatment>(&*rule.treatment)) {
      widen(forward, delayed->forward);
      widen(backward, delayed->gradient);
    }
  }
  if (forward == 0) return tolerance;
  const double widest = std::max(forward, backward) * 127.5;
  tolerance = kQwixInt8;
  tolerance.logits *= forward * 127.5;
  tolerance.mean_logits *= forward * 127.5;
  tolerance.gradients *= widest;
  tolerance.loss *= widest;
  tolerance.norms *= widest;
  // Where a small gradient changes its sign the first step of Adam goes the other way.
  tolerance.step1 = 2.001 * learning_rate;
  if (repeatable) tolerance.least_share = 1;
  return tolerance;
}

}  // namespace octavo
