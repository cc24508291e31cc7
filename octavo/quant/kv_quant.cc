#include "octavo/quant/kv_quant.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/numerics/small_float.h"
#include "octavo/quant/element.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/tile_runs.h"

namespace octavo::quant {
namespace {

float BoundOf(const KvQuant& how) {
  switch (how.format) {
    case Format::kInt8:
    case Format::kInt4:
    case Format::kF8E4M3FN:
      return SymmetricBound(how.format);
    default:
      ThrowUsage("QuantizeKv: format {}; a cache is stored in int8, int4 or float8_e4m3fn", Info(how.format).name);
  }
}

HowToQuantize AmaxHow(const Tensor& kv, KvAxes axes) {
  const int reduced = axes == KvAxes::kDkv ? 1 : 2;
  if (kv.rank() < reduced) ThrowUsage("QuantizeKv: {} has no heads and head dimension", kv.shape());
  HowToQuantize how;
  for (int axis = 0; axis < kv.rank() - reduced; ++axis) how.granularity.channelwise_axes.push_back(axis);
  return how;
}

template <typename E>
void Encode(const Tensor& kv, const Tensor& amax, const KvQuant& how, Tensor& codes) {
  const bool wide = how.format == Format::kF8E4M3FN;  // the bound is an f32 there, so the arithmetic is f32
  const float bound = BoundOf(how);
  auto values = kv.Values<typename E::Stored>();
  auto largest = amax.Values<typename E::Stored>();
  std::byte* out = codes.MutableRawData();
  const FormatInfo& info = Info(how.format);
  const SmallFloatEncoder small(Format::kF8E4M3FN);
  const auto low = static_cast<float>(info.qmin), high = static_cast<float>(info.qmax);
  const auto encode = [&](float value) {
    if (wide) return static_cast<int>(small(value));
    return IsNanBits(value) ? 0 : static_cast<int>(std::min(std::max(std::nearbyint(value), low), high));
  };
  ForEachRun(kv.shape(), amax.shape(), [&](int64_t begin, int64_t part, int64_t length) {
    const float top = E::Load(largest[static_cast<size_t>(part)]);
    const bool zero = how.zero_guard && top == 0.0f;
    const float factor = wide ? bound / top : E::Round(bound / top);
    for (int64_t i = begin; i < begin + length; ++i) {
      const float value = E::Load(values[static_cast<size_t>(i)]) * factor;
      out[i] = static_cast<std::byte>(zero ? 0 : encode(wide ? value : E::Round(value)));
    }
  });
}

}  // namespace

KvAxes ParseKvAxes(std::string_view text) {
  if (text == "dkv") return KvAxes::kDkv;
  if (text == "heads_and_dkv") return KvAxes::kHeadsAndDkv;
  ThrowUsage("kv_quant_axis '{}': possible are dkv, heads_and_dkv", text);
}

Format ParseKvFormat(std::string_view text) {
  constexpr std::pair<std::string_view, Format> kKnown[] = {
      {"int8", Format::kInt8},    {"int4", Format::kInt4},
      {"fp8", Format::kF8E4M3FN}, {"float8_e4m3fn", Format::kF8E4M3FN},
      {"float32", Format::kF32},  {"bfloat16", Format::kBF16}};
  for (const auto& [name, format] : kKnown) {
    if (name == text) return format;
  }
  throw Error(ErrorCode::kUsage, fmt::format("kv_quant_dtype '{}' is not known", text),
              "known: int8 int4 fp8 float32 bfloat16");
}

QuantizedKv QuantizeKv(const Tensor& kv, const KvQuant& how) {
  const ScopedFloatMode mode;
  BoundOf(how);
  const Tensor packed = kv.Contiguous();
  QuantizedKv result{Tensor::Empty(kv.shape(), Info(how.format).dtype), *Calibrate(kv, AmaxHow(kv, how.axes)).absmax};
  WithElement("QuantizeKv", kv.dtype(),
              [&](auto element) { Encode<decltype(element)>(packed, result.amax, how, result.codes); });
  return result;
}

Tensor KvReadScale(const Tensor& amax, const KvQuant& how, const Arithmetic& arithmetic) {
  const ScopedFloatMode mode;
  const Tensor packed = amax.Contiguous();
  return WithElement("KvReadScale", amax.dtype(), [&](auto element) {
    using E = decltype(element);
    const bool reciprocal = ByReciprocal(arithmetic.division, /*per_tensor=*/false, 1, amax.size());
    const Divisor<E> by_bound(E::Round(BoundOf(how)), reciprocal);
    Tensor scale = Tensor::Empty(amax.shape(), amax.dtype());
    auto in = packed.Values<typename E::Stored>();
    auto out = scale.MutableValues<typename E::Stored>();
    for (size_t i = 0; i < in.size(); ++i) out[i] = E::Store(by_bound(E::Load(in[i])));
    return scale;
  });
}

Tensor DequantizeKv(const QuantizedKv& stored, const KvQuant& how, const Arithmetic& arithmetic) {
  return Dequantize({stored.codes, KvReadScale(stored.amax, how, arithmetic), std::nullopt, how.format});
}

}  // namespace octavo::quant
