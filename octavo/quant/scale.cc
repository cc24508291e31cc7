#include <cmath>
#include <vector>

#include "octavo/base/float_mode.h"
#include "octavo/quant/element.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

constexpr const char* kOp = "ComputeScale";

template <typename E>
std::vector<float> LoadAll(const Tensor& tensor) {
  const Tensor packed = tensor.Contiguous();
  std::vector<float> result;
  for (auto stored : packed.Values<typename E::Stored>()) result.push_back(E::Load(stored));
  return result;
}

template <typename E>
Tensor StoreAll(const Shape& shape, const std::vector<float>& values) {
  Tensor result = Tensor::Empty(shape, E::kDType);
  auto stored = result.template MutableValues<typename E::Stored>();
  for (size_t i = 0; i < values.size(); ++i) stored[i] = E::Store(values[i]);
  return result;
}

template <typename E>
float Guarded(float scale) {
  return scale < E::kGuard ? 1.0f : scale;
}

// The block scale as a power of two; it stays an ordinary float. `reciprocal`: how constants divide it.
template <typename E>
float MxScale(float scale, Format format, bool reciprocal, const Arithmetic& arithmetic) {
  if (arithmetic.mx_scale == MxScaleRule::kCeilLog2) {
    // log2 the way that release takes it: a natural logarithm and a division, each rounded to the dtype.
    const Divisor<E> by_ln2(E::Round(0.693147180559945f), reciprocal);
    const float log2 = by_ln2(E::Round(static_cast<float>(std::log(static_cast<double>(scale)))));
    return E::Round(std::exp2(std::ceil(log2)));
  }
  const float c = format == Format::kMxfp4 ? 12.0f / 7.0f : 60.0f / 31.0f;
  const float raised = RoundToBF16(E::Round(scale * E::Round(c)));
  return E::Round(std::bit_cast<float>(std::bit_cast<uint32_t>(raised) & 0x7f800000u));
}

// What the format demands of a scale beyond its value.
template <typename E>
float FormatScale(float scale, Format format, bool reciprocal, const Arithmetic& arithmetic) {
  switch (format) {
    case Format::kMxfp8:
    case Format::kMxfp8_16:
    case Format::kMxfp4:
      return MxScale<E>(scale, format, reciprocal, arithmetic);
    case Format::kNvfp4:
      return E::Round(Decode(Format::kF8E4M3FN, Encode(Format::kF8E4M3FN, scale, OverflowPolicy::kSaturate)));
    default:
      return scale;
  }
}

template <typename E>
ScaleAndZeroPoint Symmetric(const Tensor& absmax, Format format, bool reciprocal, const Arithmetic& arithmetic) {
  std::vector<float> scale = LoadAll<E>(absmax);
  const Divisor<E> by_bound(E::Round(SymmetricBound(format)), reciprocal);
  for (float& value : scale) value = FormatScale<E>(Guarded<E>(by_bound(value)), format, reciprocal, arithmetic);
  return {StoreAll<E>(absmax.shape(), scale), std::nullopt};
}

template <typename E>
ScaleAndZeroPoint Asymmetric(const Tensor& min, const Tensor& max, Format format, bool reciprocal) {
  if (min.shape() != max.shape()) ThrowUsage("{}: min {} and max {} differ in shape", kOp, min.shape(), max.shape());
  const Bounds bounds = AsymmetricBound(format);
  const std::vector<float> low = LoadAll<E>(min), high = LoadAll<E>(max);
  const Divisor<E> by_range(E::Round(bounds.max - bounds.min), reciprocal);
  std::vector<float> scale(low.size());
  Tensor zero = Tensor::Empty(min.shape(), Info(format).dtype);
  for (size_t i = 0; i < low.size(); ++i) {
    scale[i] = Guarded<E>(by_range(E::Round(high[i] - low[i])));
    const float point = E::Round(E::Round(bounds.min) - E::Round(low[i] / scale[i]));
    const auto code = static_cast<int32_t>(ConvertTo(format, point, E::kDType));
    if (zero.dtype() == DType::kI16) {
      zero.MutableData<int16_t>()[i] = static_cast<int16_t>(code);
    } else {
      zero.MutableData<int8_t>()[i] = static_cast<int8_t>(code);
    }
  }
  return {StoreAll<E>(min.shape(), scale), zero};
}

}  // namespace

ScaleAndZeroPoint ComputeScale(const CalibrationRange& range, Format format, const Arithmetic& arithmetic) {
  const ScopedFloatMode mode;
  const bool symmetric = range.absmax.has_value();
  if (!symmetric && !(range.min && range.max)) ThrowUsage("{}: a range without absmax and without min and max", kOp);
  const DType dtype = symmetric ? range.absmax->dtype() : range.min->dtype();
  const int64_t parts = symmetric ? range.absmax->size() : range.min->size();
  const bool reciprocal = ByReciprocal(arithmetic.division, range.per_tensor, 1, parts);
  return WithElement(kOp, dtype, [&](auto element) {
    using E = decltype(element);
    if (symmetric) return Symmetric<E>(*range.absmax, format, reciprocal, arithmetic);
    return Asymmetric<E>(*range.min, *range.max, format, reciprocal);
  });
}

}  // namespace octavo::quant
