#include "octavo/base/float_mode.h"
#include "octavo/quant/element.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/tile_runs.h"

namespace octavo::quant {
namespace {

bool NeverClips(const Calibration& calibration) {
  const bool follows_data =
      calibration.method == CalibrationMethod::kAbsMax || calibration.method == CalibrationMethod::kMinMax;
  return follows_data && calibration.factor >= 1.0;
}

// Calls fn(i, value, low, high) for each element of `input` with the range it was calibrated in.
template <typename E, typename Fn>
void ForEachInRange(const char* op, const Tensor& input, const CalibrationRange& range, Fn&& fn) {
  const Tensor high = (range.absmax ? *range.absmax : *range.max).Contiguous();
  const Tensor low = (range.absmax ? *range.absmax : *range.min).Contiguous();
  if (high.dtype() != E::kDType || low.shape() != high.shape()) {
    ThrowUsage("{}: range {} of input {}", op, high.ToString(), input.ToString());
  }
  GenericBroadcastShape(op, input.shape(), high.shape());
  auto values = input.Values<typename E::Stored>();
  auto lows = low.Values<typename E::Stored>();
  auto highs = high.Values<typename E::Stored>();
  ForEachRun(input.shape(), high.shape(), [&](int64_t begin, int64_t part, int64_t length) {
    const float upper = E::Load(highs[static_cast<size_t>(part)]);
    const float lower = range.absmax ? -upper : E::Load(lows[static_cast<size_t>(part)]);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + length); ++i) {
      fn(i, E::Load(values[i]), lower, upper);
    }
  });
}

void CheckRange(const char* op, const CalibrationRange& range) {
  if (!range.absmax && !(range.min && range.max)) ThrowUsage("{}: a range without absmax and without min and max", op);
}

}  // namespace

Tensor MaskGradient(const Tensor& grad, const Tensor& input, const CalibrationRange& range,
                    const Calibration& calibration) {
  constexpr const char* kOp = "MaskGradient";
  if (NeverClips(calibration)) return grad;
  const ScopedFloatMode mode;
  if (grad.shape() != input.shape()) ThrowUsage("{}: grad {} of input {}", kOp, grad.shape(), input.shape());
  CheckRange(kOp, range);
  Tensor result = grad.Clone();
  std::byte* bytes = result.MutableRawData();
  const int64_t size = SizeOf(grad.dtype());
  WithElement(kOp, input.dtype(), [&](auto element) {
    ForEachInRange<decltype(element)>(kOp, input.Contiguous(), range,
                                      [&](size_t i, float value, float low, float high) {
                                        if (value >= low && value <= high) return;
                                        std::fill_n(bytes + static_cast<int64_t>(i) * size, size, std::byte{0});
                                      });
  });
  return result;
}

Tensor ClipToRange(const Tensor& input, const CalibrationRange& range) {
  constexpr const char* kOp = "ClipToRange";
  const ScopedFloatMode mode;
  CheckRange(kOp, range);
  Tensor result = Tensor::Empty(input.shape(), input.dtype());
  WithElement(kOp, input.dtype(), [&](auto element) {
    using E = decltype(element);
    auto out = result.MutableValues<typename E::Stored>();
    ForEachInRange<E>(kOp, input.Contiguous(), range, [&](size_t i, float value, float low, float high) {
      out[i] = E::Store(MinNan(MaxNan(value, low), high));
    });
  });
  return result;
}

}  // namespace octavo::quant
