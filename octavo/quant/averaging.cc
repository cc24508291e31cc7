#include "octavo/quant/averaging.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::quant {
namespace {

constexpr std::string_view kKeys[] = {"absmax", "min", "max"};

// Mean over the given axes, which are kept with length 1: f32 sums ascending, times the reciprocal of the count.
Tensor MeanOver(const Tensor& range, const std::vector<int>& axes) {
  Tensor values = CastFloat(range, DType::kF32);
  for (int axis : axes) {
    if (axis < 0 || axis >= values.rank() || values.dim(axis) == 1) continue;
    const int64_t count = values.dim(axis);
    std::vector<int64_t> dims(values.shape().begin(), values.shape().end());
    dims[static_cast<size_t>(axis)] = 1;
    Tensor sum = Tensor::Zeros(Shape(dims), DType::kF32);
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<float> slice = values.Slice(axis, i, i + 1).ToVector<float>();
      const auto into = sum.MutableValues<float>();
      for (size_t j = 0; j < slice.size(); ++j) into[j] += slice[j];
    }
    for (float& value : sum.MutableValues<float>()) value *= 1.0f / static_cast<float>(count);
    values = sum;
  }
  return CastFloat(values, range.dtype());
}

const std::optional<Tensor>& Part(const CalibrationRange& range, std::string_view key) {
  return key == "absmax" ? range.absmax : key == "min" ? range.min : range.max;
}

}  // namespace

std::string AveragePrefix(const ops::Site& site, std::string_view side) {
  return fmt::format("{}/{}_{}", site.path, site.OpId(), side);
}

CalibrationRange RunningRange(ops::Context& context, const ops::Site& site, std::string_view side,
                              const CalibrationRange& range, const std::vector<int>& batch_axes) {
  const std::string prefix = AveragePrefix(site, side);
  const Tensor count_state = context.state == nullptr ? Tensor() : context.state->Find(prefix + "/count");
  const float count = count_state.defined() ? count_state.Contiguous().Values<float>()[0] : 0.0f;
  CalibrationRange average;
  average.per_tensor = range.per_tensor;  // decides how its scale is divided
  for (std::string_view key : kKeys) {
    if (!Part(range, key)) continue;
    const Tensor now = MeanOver(*Part(range, key), batch_axes);
    const Tensor now_f32 = CastFloat(now, DType::kF32).Contiguous();
    if (context.updates != nullptr) context.updates->Observe(fmt::format("{}/{}", prefix, key), now_f32);
    Tensor mean = now_f32.Clone();
    const Tensor sum =
        context.state == nullptr ? Tensor() : context.state->Find(fmt::format("{}/sum_of_{}", prefix, key));
    if (sum.defined()) {
      if (sum.shape() != now.shape()) {
        ThrowUsage("{}: the range is {} now, {} in the state", prefix, now.shape(), sum.shape());
      }
      const auto values = mean.MutableValues<float>();
      const auto sums = sum.Values<float>();
      for (size_t i = 0; i < values.size(); ++i) values[i] = (sums[i] + values[i]) / (count + 1.0f);
    }
    const Tensor cast = CastFloat(mean, now.dtype());
    (key == "absmax" ? average.absmax : key == "min" ? average.min : average.max) = cast;
  }
  return average;
}

void AdvanceAverage(const std::string& prefix, const ops::UpdateSink& observed, ops::StateStore& state) {
  bool seen = false;
  for (std::string_view key : kKeys) {
    const auto at = observed.observations().find(fmt::format("{}/{}", prefix, key));
    if (at == observed.observations().end()) continue;
    seen = true;
    const std::string name = fmt::format("{}/sum_of_{}", prefix, key);
    Tensor sum = state.Find(name).defined() ? state.Find(name).Clone() : Tensor::Zeros(at->second.shape(), DType::kF32);
    const auto into = sum.MutableValues<float>();
    const auto from = at->second.Values<float>();
    for (size_t i = 0; i < into.size(); ++i) into[i] += from[i];
    state.Set(name, sum);
  }
  if (!seen) return;
  const Tensor before = state.Find(prefix + "/count");
  const float count = before.defined() ? before.Values<float>()[0] : 0.0f;
  state.Set(prefix + "/count", Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{count + 1.0f}));
}

}  // namespace octavo::quant
