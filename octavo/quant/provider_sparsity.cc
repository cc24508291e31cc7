// Sparsity by schedule: the mask of a weight is named state, renewed at the steps that the rule says.
#include "octavo/quant/provider_dots.h"
#include "octavo/quant/sparsity.h"

namespace octavo::quant {

Tensor MaskAsFloats(const Tensor& mask) {
  const std::vector<uint8_t> keep = mask.ToVector<uint8_t>();
  return Tensor::FromValues<float>(mask.shape(), DType::kF32, std::vector<float>(keep.begin(), keep.end()));
}

Tensor ScheduledMask(const ops::StateStore* state, const ops::Site& site, const QwixTreatment& treatment,
                     const Tensor& weight) {
  if (state == nullptr || treatment.sparsity_n == 0) return Tensor();
  const Tensor step = state->Find(StateName(site, "sparsity_step"));
  const auto now = static_cast<int64_t>(step.defined() ? step.ToVector<float>()[0] : 0.0f);
  const SparsitySchedule schedule{treatment.sparsity_start, treatment.sparsity_update, false};
  if (schedule.RenewsAt(now)) {
    SparsityPattern pattern;
    pattern.n = treatment.sparsity_n;
    pattern.m = treatment.sparsity_m;
    return SparsityMask(weight, pattern);
  }
  const Tensor kept = state->Find(StateName(site, "sparsity_mask"));
  std::vector<uint8_t> mask(static_cast<size_t>(weight.size()), 1);
  if (kept.defined()) {
    const std::vector<float> values = kept.ToVector<float>();
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = values[i] != 0.0f ? 1 : 0;
  }
  return Tensor::FromValues<uint8_t>(weight.shape(), DType::kU8, mask);
}

}  // namespace octavo::quant
