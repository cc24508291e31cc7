#include "octavo/quant/running_average.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/element.h"
#include "octavo/quant/tile_runs.h"

namespace octavo::quant {
namespace {

std::map<std::string, Tensor> NamedParts(const CalibrationRange& range) {
  if (range.absmax) return {{"sum_of_absmax", *range.absmax}};
  if (range.min && range.max) return {{"sum_of_min", *range.min}, {"sum_of_max", *range.max}};
  ThrowUsage("RunningAverage: a range without absmax and without min and max");
}

Tensor Added(const Tensor& sum, const Tensor& value) {
  const Tensor more = CastFloat(value, DType::kF32).Contiguous();
  Tensor result = sum.Clone();
  auto out = result.MutableValues<float>();
  auto in = more.Values<float>();
  for (size_t i = 0; i < out.size(); ++i) out[i] += in[i];
  return result;
}

Tensor Divided(const Tensor& sum, int32_t count, DType dtype) {
  Tensor mean = sum.Clone();
  for (float& value : mean.MutableValues<float>()) value /= static_cast<float>(count);
  return CastFloat(mean, dtype);
}

Tensor MeanOf(const Tensor& value, std::span<const int> axes) {
  std::vector<int64_t> dims(value.shape().begin(), value.shape().end());
  for (int axis : axes) dims[static_cast<size_t>(CheckAxis("MeanOverAxes", axis, value.shape()))] = 1;
  const Shape parts(dims);
  const auto count = static_cast<float>(parts.size() == 0 ? 1 : value.size() / parts.size());
  const Tensor wide = CastFloat(value, DType::kF32).Contiguous();
  Tensor mean = Tensor::Zeros(parts, DType::kF32);
  auto in = wide.Values<float>();
  auto out = mean.MutableValues<float>();
  ForEachRun(value.shape(), parts, [&](int64_t begin, int64_t part, int64_t length) {
    for (int64_t i = begin; i < begin + length; ++i) out[static_cast<size_t>(part)] += in[static_cast<size_t>(i)];
  });
  for (float& element : out) element /= count;
  return CastFloat(mean, value.dtype());
}

}  // namespace

RunningAverage WithUpdate(const RunningAverage& state, const CalibrationRange& range) {
  const ScopedFloatMode mode;
  RunningAverage next{state.count + 1, {}};
  for (const auto& [name, value] : NamedParts(range)) {
    const auto found = state.sums.find(name);
    if (found == state.sums.end() && state.count > 0) {
      ThrowUsage("RunningAverage: '{}' comes after {} updates without it", name, state.count);
    }
    if (found != state.sums.end() && found->second.shape() != value.shape()) {
      ThrowUsage("RunningAverage: '{}' is {}, the average so far {}", name, value.shape(), found->second.shape());
    }
    next.sums[name] =
        Added(found == state.sums.end() ? Tensor::Zeros(value.shape(), DType::kF32) : found->second, value);
  }
  return next;
}

CalibrationRange AverageOf(const RunningAverage& state, DType dtype, const CalibrationRange* fallback,
                           int32_t bootstrap_steps) {
  const ScopedFloatMode mode;
  if (state.count <= bootstrap_steps || state.count == 0) {
    if (fallback != nullptr) return *fallback;
    ThrowUsage("RunningAverage: {} updates so far, {} are needed for a static scale", state.count, bootstrap_steps + 1);
  }
  const auto part = [&](const char* name) { return Divided(state.sums.at(name), state.count, dtype); };
  if (state.sums.contains("sum_of_absmax")) return CalibrationRange::Symmetric(part("sum_of_absmax"));
  return CalibrationRange::Between(part("sum_of_min"), part("sum_of_max"));
}

CalibrationRange MeanOverAxes(const CalibrationRange& range, std::span<const int> axes) {
  const ScopedFloatMode mode;
  CalibrationRange result = range;
  if (range.absmax) result.absmax = MeanOf(*range.absmax, axes);
  if (range.min) result.min = MeanOf(*range.min, axes);
  if (range.max) result.max = MeanOf(*range.max, axes);
  return result;
}

}  // namespace octavo::quant
