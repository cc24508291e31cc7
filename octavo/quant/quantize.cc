#include "octavo/quant/quantize.h"

#include <cmath>
#include <utility>
#include <vector>

#include "octavo/base/float_mode.h"
#include "octavo/quant/element.h"
#include "octavo/quant/tile_runs.h"

namespace octavo::quant {
namespace {

// Codes of integer formats, without a call per element; every other format asks numerics/.
class Coder {
 public:
  Coder(Format format, DType input)
      : format_(format),
        input_(input),
        integer_(Info(format).kind == FormatKind::kInteger && Info(format).bits <= 16),
        low_(static_cast<float>(Info(format).qmin)),
        high_(static_cast<float>(Info(format).qmax)) {}

  uint32_t operator()(float value) const {
    if (!integer_) return ConvertTo(format_, value, input_);
    // fmin and fmax drop NaN, so it is told apart first.
    if (IsNanBits(value)) return 0;
    return static_cast<uint32_t>(static_cast<int32_t>(std::min(std::max(std::nearbyint(value), low_), high_)));
  }
  uint32_t operator()(float value, float noise) const { return ConvertTo(format_, value, input_, noise); }

 private:
  Format format_;
  DType input_;
  bool integer_;
  float low_, high_;
};

// The value of code i of a qvalue or zero point tensor.
std::vector<float> DecodeAll(const Tensor& codes, Format format) {
  const Tensor packed = codes.Contiguous();
  std::vector<float> result(static_cast<size_t>(packed.size()));
  switch (packed.dtype()) {
    case DType::kI8:
      std::ranges::copy(packed.Values<int8_t>(), result.begin());
      break;
    case DType::kI16:
      std::ranges::copy(packed.Values<int16_t>(), result.begin());
      break;
    case DType::kU8: {
      auto values = packed.Values<uint8_t>();
      const auto table = DecodeTable(format);
      const size_t mask = table.size() - 1;
      for (size_t i = 0; i < result.size(); ++i) result[i] = table[values[i] & mask];
      break;
    }
    default:
      ThrowUsage("Dequantize: codes are {}", packed.ToString());
  }
  return result;
}

void CheckParts(const char* op, const char* name, const Shape& whole, const Shape& parts) {
  bool good = whole.rank() == parts.rank();
  for (int axis = 0; good && axis < whole.rank(); ++axis) {
    good = parts[axis] == whole[axis] || (parts[axis] > 0 && whole[axis] % parts[axis] == 0);
  }
  if (!good) ThrowUsage("{}: {} {} does not divide array {}", op, name, parts, whole);
}

template <typename Code>
void StoreCode(Tensor& codes, int64_t at, uint32_t code) {
  codes.MutableData<Code>()[at] = static_cast<Code>(code);
}

// x / scale + zero point, as f32 values that are numbers of the dtype.
template <typename E>
std::vector<float> Scaled(const Tensor& array, const Tensor& scale, const std::optional<Tensor>& zero_point,
                          Format format, DivisionRule division) {
  auto values = array.Values<typename E::Stored>();
  auto scales = scale.Values<typename E::Stored>();
  std::vector<float> zero;
  if (zero_point) zero = DecodeAll(*zero_point, format);
  std::vector<float> result(values.size());
  const bool reciprocal = ByReciprocal(division, /*per_tensor=*/false, scale.size(), array.size());
  ForEachRun(array.shape(), scale.shape(), [&](int64_t begin, int64_t part, int64_t length) {
    const Divisor<E> divide(E::Load(scales[static_cast<size_t>(part)]), reciprocal);
    const float point = zero.empty() ? 0.0f : E::Round(zero[static_cast<size_t>(part)]);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + length); ++i) {
      float value = divide(E::Load(values[i]));
      if (!zero.empty()) value = E::Round(value + point);
      result[i] = value;
    }
  });
  return result;
}

template <typename Code>
void EncodeAll(const std::vector<float>& values, const Tensor* noise, const Coder& coder, Tensor& codes) {
  auto out = codes.MutableValues<Code>();
  if (noise == nullptr) {
    for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<Code>(coder(values[i]));
    return;
  }
  const Tensor packed = noise->Contiguous();
  auto amounts = packed.Values<float>();
  ForEachRun(codes.shape(), packed.shape(), [&](int64_t begin, int64_t part, int64_t length) {
    const float amount = amounts[static_cast<size_t>(part)];
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + length); ++i) {
      out[i] = static_cast<Code>(coder(values[i], amount));
    }
  });
}

template <typename E>
Tensor DequantizeAs(const QArray& array) {
  const std::vector<float> codes = DecodeAll(array.qvalue, array.format);
  const Tensor scale = array.scale.Contiguous();
  auto scales = scale.Values<typename E::Stored>();
  std::vector<float> zero;
  if (array.zero_point) zero = DecodeAll(array.zero_point->RepeatTo(scale.shape()), array.format);
  Tensor result = Tensor::Empty(array.shape(), E::kDType);
  auto out = result.MutableValues<typename E::Stored>();
  ForEachRun(array.shape(), scale.shape(), [&](int64_t begin, int64_t part, int64_t length) {
    const float by = E::Load(scales[static_cast<size_t>(part)]);
    const float point = zero.empty() ? 0.0f : E::Round(zero[static_cast<size_t>(part)]);
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + length); ++i) {
      float value = E::Round(codes[i]);
      if (!zero.empty()) value = E::Round(value - point);
      out[i] = E::Store(value * by);
    }
  });
  return result;
}

}  // namespace

QArray QuantizeWithScale(const Tensor& array, Format format, const ScaleAndZeroPoint& scale, const Tensor* noise,
                         const Arithmetic& arithmetic) {
  constexpr const char* kOp = "QuantizeWithScale";
  const ScopedFloatMode mode;
  if (scale.zero_point && scale.zero_point->shape() != scale.scale.shape()) {
    ThrowUsage("{}: zero point {} and scale {} differ in shape", kOp, scale.zero_point->shape(), scale.scale.shape());
  }
  CheckParts(kOp, "scale", array.shape(), scale.scale.shape());
  if (noise != nullptr) {
    if (noise->dtype() != DType::kF32) ThrowUsage("{}: noise is {}, expected f32", kOp, noise->ToString());
    CheckParts(kOp, "noise", array.shape(), noise->shape());
  }
  SymmetricBound(format);  // refuses formats that nothing is quantized to
  return WithElement(kOp, array.dtype(), [&](auto element) {
    using E = decltype(element);
    const Tensor packed = array.Contiguous(), own_scale = CastFloat(scale.scale, E::kDType).Contiguous();
    QArray result{Tensor::Empty(array.shape(), Info(format).dtype), own_scale, scale.zero_point, format};
    const std::vector<float> values = Scaled<E>(packed, own_scale, scale.zero_point, format, arithmetic.division);
    const Coder coder(format, E::kDType);
    switch (result.qvalue.dtype()) {
      case DType::kI8:
        EncodeAll<int8_t>(values, noise, coder, result.qvalue);
        break;
      case DType::kI16:
        EncodeAll<int16_t>(values, noise, coder, result.qvalue);
        break;
      default:
        EncodeAll<uint8_t>(values, noise, coder, result.qvalue);
    }
    return result;
  });
}

QArray Quantize(const Tensor& array, const HowToQuantize& how, const Tensor* noise, const Arithmetic& arithmetic) {
  const CalibrationRange range = Calibrate(array, how, arithmetic);
  return QuantizeWithScale(array, how.format, ComputeScale(range, how.format, arithmetic), noise, arithmetic);
}

Tensor Dequantize(const QArray& array) {
  const ScopedFloatMode mode;
  Validate("Dequantize", array);
  return WithElement("Dequantize", array.dtype(), [&](auto element) { return DequantizeAs<decltype(element)>(array); });
}

QArray WithScaleDType(const QArray& array, DType dtype) {
  QArray result = array;
  result.scale = CastFloat(array.scale, dtype);
  return result;
}

Tensor CastFloat(const Tensor& array, DType dtype) {
  if (array.dtype() == dtype) return array;
  const Tensor packed = array.Contiguous();
  return WithElement("CastFloat", array.dtype(), [&](auto from) {
    return WithElement("CastFloat", dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      Tensor result = Tensor::Empty(array.shape(), dtype);
      auto in = packed.Values<typename From::Stored>();
      auto out = result.MutableValues<typename To::Stored>();
      for (size_t i = 0; i < in.size(); ++i) out[i] = To::Store(From::Load(in[i]));
      return result;
    });
  });
}

}  // namespace octavo::quant
