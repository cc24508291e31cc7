#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/numerics/small_float.h"
#include "octavo/quant/aqt.h"
#include "octavo/quant/element.h"
#include "octavo/quant/encode_matrix.h"
#include "octavo/quant/quantize_kernel.h"
#include "octavo/quant/quantize_run.h"
#include "octavo/quant/tile_runs.h"

namespace octavo::quant {
namespace {

// For the largest magnitudes over the shared axes: every axis that is not shared is on its own.
HowToQuantize AmaxHow(const Tensor& array, const std::vector<int>& shared) {
  HowToQuantize how;
  how.granularity.channelwise_axes = FreeAxes(array.rank(), shared, {});
  return how;
}

void CheckSide(const Tensor& array, const AqtNumerics& numerics) {
  if (numerics.kind == AqtNumerics::Kind::kNone) ThrowUsage("AqtQuantize: this side is not quantized");
  if (numerics.kind == AqtNumerics::Kind::kFp8 && array.dtype() == DType::kF16) {
    ThrowUsage("AqtQuantize: fp8 from f16 is not possible; bf16 and f32 are");
  }
}

std::vector<int> SharedAxes(const Tensor& array, const AqtSide& side, const std::vector<int>& shared_axes) {
  if (!side.per_tensor) return shared_axes;
  std::vector<int> all;
  for (int axis = 0; axis < array.rank(); ++axis) all.push_back(axis);
  return all;
}

template <typename E>
Tensor ScaleOf(const Tensor& amax, const AqtSide& side, const Arithmetic& arithmetic) {
  const bool reciprocal = ByReciprocal(arithmetic.division, side.per_tensor, 1, amax.size());
  const Divisor<E> by_bound(E::Round(side.numerics.quant_bound()), reciprocal);
  Tensor scale = Tensor::Empty(amax.shape(), E::kDType);
  auto in = amax.Values<typename E::Stored>();
  auto out = scale.template MutableValues<typename E::Stored>();
  for (size_t i = 0; i < in.size(); ++i) {
    float bound = E::Load(in[i]);
    if (bound == 0.0f) bound = 1.0f;
    if (side.clipping_scale > 0) bound = E::Round(bound * E::Round(static_cast<float>(side.clipping_scale)));
    if (side.constant_bound) bound = E::Round(static_cast<float>(*side.constant_bound));
    out[i] = E::Store(by_bound(bound));
  }
  return scale;
}

template <typename E>
float ReciprocalOf(float scale) {
  const float reciprocal = E::Round(1.0f / scale);
  return MagnitudeBits(reciprocal) == 0x7f800000u ? 1.0f : reciprocal;
}

template <typename E>
uint32_t Code(float value, const AqtNumerics& numerics) {
  const float clip = E::Round(numerics.clip());
  if (!IsNanBits(value)) value = std::min(std::max(value, -clip), clip);
  return ConvertTo(numerics.format(), value, E::kDType);
}

}  // namespace

Tensor MakeAqtNoise(RngKey key, const Shape& shape, AqtNoise noise) {
  if (noise == AqtNoise::kNone) ThrowUsage("MakeAqtNoise: no noise was asked for");
  Tensor result = Tensor::Empty(shape, DType::kF32);
  uint64_t index = 0;
  for (float& value : result.MutableValues<float>()) {
    if (noise == AqtNoise::kUniform) {
      value = Uniform(key, index) - 0.5f;
    } else {
      value = (1.0f + static_cast<float>(key.Bits16(index)) * 0x1p-16f) - (1.5f - 0x1p-17f);
    }
    ++index;
  }
  return result;
}

QArray AqtQuantize(const Tensor& array, const AqtSide& side, const std::vector<int>& shared_axes, const Tensor* noise,
                   const Arithmetic& arithmetic) {
  constexpr const char* kOp = "AqtQuantize";
  const ScopedFloatMode mode;
  const AqtNumerics& numerics = side.numerics;
  CheckSide(array, numerics);
  const Tensor amax = *Calibrate(array, AmaxHow(array, SharedAxes(array, side, shared_axes))).absmax;
  return WithElement(kOp, array.dtype(), [&](auto element) {
    using E = decltype(element);
    const Tensor packed = array.Contiguous();
    QArray result{Tensor::Empty(array.shape(), Info(numerics.format()).dtype), ScaleOf<E>(amax, side, arithmetic),
                  std::nullopt, numerics.format()};
    const Tensor added = noise == nullptr ? Tensor() : noise->BroadcastTo(array.shape()).Contiguous();
    auto values = packed.Values<typename E::Stored>();
    auto scales = result.scale.template Values<typename E::Stored>();
    std::byte* out = result.qvalue.MutableRawData();
    ForEachRun(array.shape(), result.scale.shape(), [&](int64_t begin, int64_t part, int64_t length) {
      const float reciprocal = ReciprocalOf<E>(E::Load(scales[static_cast<size_t>(part)]));
      for (int64_t i = begin; i < begin + length; ++i) {
        float value = E::Round(E::Load(values[static_cast<size_t>(i)]) * reciprocal);
        if (noise != nullptr) value = E::Round(value + added.Data<float>()[i]);
        out[i] = static_cast<std::byte>(Code<E>(value, numerics));
      }
    });
    return result;
  });
}

QArray AqtQuantize(const Run& run, const Tensor& array, const AqtSide& side, const std::vector<int>& shared_axes,
                   const Tensor* noise) {
  const AqtNumerics& numerics = side.numerics;
  CheckSide(array, numerics);
  if (run.reference) return AqtQuantize(array, side, shared_axes, noise, run.arithmetic);
  const ScopedFloatMode mode;
  Run plain = run;
  plain.arithmetic.non_finite = NonFinite::kPropagate;
  const Tensor amax = *Calibrate(plain, array, AmaxHow(array, SharedAxes(array, side, shared_axes))).absmax;
  return WithElement("AqtQuantize", array.dtype(), [&](auto element) {
    using E = decltype(element);
    QArray result{Tensor(), ScaleOf<E>(amax, side, run.arithmetic), std::nullopt, numerics.format()};
    if (numerics.kind == AqtNumerics::Kind::kInteger) {
      const int largest = static_cast<int>(numerics.clip());
      if (auto codes = TryKernelReciprocalCodes(run, array, result.scale, largest, noise)) {
        result.qvalue = *codes;
        return result;
      }
    }
    const auto blocks = AsMatrixBlocks(array.shape(), result.scale.shape());
    if (!blocks || noise != nullptr || numerics.kind != AqtNumerics::Kind::kFp8) {
      return AqtQuantize(array, side, shared_axes, noise, run.arithmetic);
    }
    std::vector<float> factors;
    for (auto stored : result.scale.template Values<typename E::Stored>()) {
      factors.push_back(ReciprocalOf<E>(E::Load(stored)));
    }
    const SmallFloatEncoder small(numerics.format());  // clips by itself
    result.qvalue = Tensor::Empty(array.shape(), DType::kU8);
    EncodeMatrix<E>(
        run, array.Contiguous(), *blocks,
        [&](float value, int64_t block) { return small(E::Round(value * factors[static_cast<size_t>(block)])); },
        result.qvalue.template MutableData<uint8_t>());
    return result;
  });
}

}  // namespace octavo::quant
