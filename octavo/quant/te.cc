#include "octavo/quant/te.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

constexpr int64_t kMxBlock = 32, kNvBlock = 16;
constexpr float kNvMax = 6.0f, kScaleMax = 448.0f;

Shape Ones(int rank) { return Shape(std::vector<int64_t>(static_cast<size_t>(rank), 1)); }

// x as contiguous f32.
Tensor Floats(const Tensor& x) { return CastFloat(x, DType::kF32).Contiguous(); }

// The strides of a contiguous array and of its scales, and how many elements of each axis share one.
struct BlockGrid {
  Shape shape, scales;
  std::vector<int64_t> tile;

  int64_t ScaleOf(int64_t element) const {
    int64_t index = 0, step = 1;
    for (int axis = shape.rank(); axis-- > 0;) {
      index += element % shape[axis] / tile[static_cast<size_t>(axis)] * step;
      element /= shape[axis];
      step *= scales[axis];
    }
    return index;
  }
};

BlockGrid MakeGrid(const Shape& shape, const std::vector<int>& axes, int64_t block) {
  BlockGrid grid{shape, {}, std::vector<int64_t>(static_cast<size_t>(shape.rank()), 1)};
  std::vector<int64_t> scales(shape.begin(), shape.end());
  for (int axis : axes) {
    if (shape[axis] % block != 0) {
      throw Error(ErrorCode::kUsage, fmt::format("blocks of {} do not divide axis {} of {}", block, axis, shape),
                  "leave this site out by a rule before, or choose another recipe");
    }
    grid.tile[static_cast<size_t>(axis)] = block;
    scales[static_cast<size_t>(axis)] /= block;
  }
  grid.scales = Shape(scales);
  return grid;
}

std::vector<float> BlockMaxima(std::span<const float> values, const BlockGrid& grid) {
  std::vector<float> amax(static_cast<size_t>(grid.scales.size()), 0.0f);
  for (size_t i = 0; i < values.size(); ++i) {
    float& into = amax[static_cast<size_t>(grid.ScaleOf(static_cast<int64_t>(i)))];
    const float magnitude = std::abs(values[i]);
    if (magnitude > into || std::isnan(magnitude)) into = magnitude;
  }
  return amax;
}

float Clip(float x, float bound) { return std::isnan(x) ? x : std::clamp(x, -bound, bound); }

// A neighbour of |x| on the grid of e2m1, chosen by u in [0, 1): up when the distance to the lower one is at least u.
uint8_t StochasticE2m1(float x, float u) {
  constexpr float kGrid[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = std::min(std::abs(x), kNvMax);
  int low = 7;
  while (low > 0 && kGrid[low] > magnitude) --low;
  int code = low;
  if (low < 7 && magnitude > kGrid[low] && (magnitude - kGrid[low]) / (kGrid[low + 1] - kGrid[low]) >= u)
    code = low + 1;
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

}  // namespace

float TeScale(float amax, Format format, float otherwise) {
  if (!(amax > 0) || !std::isfinite(amax)) return otherwise;
  const float scale = Info(format).max_value / amax;
  return std::isinf(scale) ? FLT_MAX : scale;
}

QArray TeQuantizeTensor(const Tensor& x, Format format, float scale) {
  const Tensor floats = Floats(x);
  Tensor codes = Tensor::Empty(x.shape(), DType::kU8);
  const auto values = floats.Values<float>();
  const auto into = codes.MutableValues<uint8_t>();
  const float bound = Info(format).max_value;
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] = static_cast<uint8_t>(Encode(format, Clip(values[i] * scale, bound), OverflowPolicy::kCast));
  }
  const Tensor inverse = Tensor::FromValues<float>(Ones(x.rank()), DType::kF32, std::vector<float>{1.0f / scale});
  return QArray{codes, inverse, std::nullopt, format};
}

QArray TeQuantizeCurrent(const Tensor& x, Format format) {
  return TeQuantizeTensor(x, format, TeScale(AmaxOf(x), format, 1.0f));
}

Fp8Meta TeUpdatedMeta(const Fp8Meta& meta, float amax, Format format) {
  std::vector<float> history = meta.amax_history.ToVector<float>();
  history[0] = amax;
  float largest = 0;
  for (float value : history) {
    if (value > largest || std::isnan(value)) largest = value;
  }
  const float scale = TeScale(largest, format, meta.scale.ToVector<float>()[0]);
  std::rotate(history.begin(), history.begin() + 1, history.end());
  history[0] = 0;
  return {Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{scale}),
          Tensor::FromValues<float>(meta.amax_history.shape(), DType::kF32, history)};
}

uint8_t TeMxExponent(float amax) {
  if (std::isnan(amax)) return 0xFF;
  if (std::isinf(amax)) return 0xFE;
  // As integers: the product below may be subnormal, which the product's float mode would flush.
  const double quotient = static_cast<double>(amax) / static_cast<double>(kScaleMax);
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(quotient));
  const uint32_t exponent = bits >> 23 & 0xFF, mantissa = bits & 0x7FFFFF;
  const bool up = mantissa > 0 && exponent != 0xFE && !(exponent == 0 && mantissa <= 0x400000);
  return static_cast<uint8_t>(exponent + (up ? 1 : 0));
}

QArray TeQuantizeMx(const Tensor& x, const std::vector<int>& contract) {
  const Tensor floats = Floats(x);
  const BlockGrid grid = MakeGrid(x.shape(), {contract.back()}, kMxBlock);
  const auto values = floats.Values<float>();
  const std::vector<float> amax = BlockMaxima(values, grid);
  std::vector<float> scale(amax.size()), inverse(amax.size());
  for (size_t i = 0; i < amax.size(); ++i) {
    // Exponents stay inside the normal numbers: 2^-126 and below would be flushed.
    const int exponent = std::max<int>(TeMxExponent(amax[i]), 1) - 127;
    scale[i] = std::isnan(amax[i]) ? amax[i] : std::ldexp(1.0f, exponent);
    inverse[i] = std::isnan(amax[i]) ? amax[i] : std::ldexp(1.0f, std::min(-exponent, 127));
  }
  Tensor codes = Tensor::Empty(x.shape(), DType::kU8);
  const auto into = codes.MutableValues<uint8_t>();
  for (size_t i = 0; i < into.size(); ++i) {
    const float scaled = values[i] * inverse[static_cast<size_t>(grid.ScaleOf(static_cast<int64_t>(i)))];
    into[i] = static_cast<uint8_t>(Encode(Format::kF8E4M3FN, Clip(scaled, kScaleMax), OverflowPolicy::kCast));
  }
  return QArray{codes, Tensor::FromValues<float>(grid.scales, DType::kF32, scale), std::nullopt, Format::kF8E4M3FN};
}

QArray TeQuantizeNv(const Tensor& x, const std::vector<int>& contract, bool square, std::optional<RngKey> key) {
  const Tensor floats = Floats(x);
  std::vector<int> axes = {contract.back()};
  if (square) {
    for (int axis = x.rank(); axis-- > 0;) {
      if (std::find(contract.begin(), contract.end(), axis) == contract.end()) {
        axes.push_back(axis);
        break;
      }
    }
  }
  const BlockGrid grid = MakeGrid(x.shape(), axes, kNvBlock);
  const auto values = floats.Values<float>();
  const std::vector<float> amax = BlockMaxima(values, grid);
  float tensor_amax = 0;
  for (float value : amax) {
    if (value > tensor_amax || std::isnan(value)) tensor_amax = value;
  }
  float global = tensor_amax == 0 ? 1.0f : std::min(kNvMax * kScaleMax / tensor_amax, FLT_MAX);
  if (global == 0) global = 1.0f;
  const float inverse_global = 1.0f / global;
  std::vector<float> scale(amax.size()), factor(amax.size());
  for (size_t i = 0; i < amax.size(); ++i) {
    const float wanted = Clip(amax[i] / kNvMax * global, kScaleMax);
    const float block = Decode(Format::kF8E4M3FN, Encode(Format::kF8E4M3FN, wanted, OverflowPolicy::kCast));
    scale[i] = block * inverse_global;
    factor[i] = std::min(1.0f / scale[i], FLT_MAX);
  }
  Tensor codes = Tensor::Empty(x.shape(), DType::kU8);
  const auto into = codes.MutableValues<uint8_t>();
  for (size_t i = 0; i < into.size(); ++i) {
    const float scaled = Clip(values[i] * factor[static_cast<size_t>(grid.ScaleOf(static_cast<int64_t>(i)))], kNvMax);
    into[i] = key ? StochasticE2m1(scaled, Uniform(*key, i))
                  : static_cast<uint8_t>(Encode(Format::kF4E2M1FN, scaled, OverflowPolicy::kCast));
  }
  return QArray{codes, Tensor::FromValues<float>(grid.scales, DType::kF32, scale), std::nullopt, Format::kF4E2M1FN};
}

Tensor TeRotated(const Tensor& x, int axis) {
  constexpr int8_t kSigns[kNvBlock] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  const Tensor floats = Floats(x);
  if (x.dim(axis) % kNvBlock != 0) ThrowUsage("rotation: blocks of 16 do not divide axis {} of {}", axis, x.shape());
  int64_t inner = 1;
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.dim(i);
  Tensor out = Tensor::Empty(x.shape(), DType::kF32);
  const auto from = floats.Values<float>();
  const auto into = out.MutableValues<float>();
  const int64_t blocks = x.size() / kNvBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block / inner * inner * kNvBlock + block % inner;
    for (int64_t j = 0; j < kNvBlock; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < kNvBlock; ++i) {
        const float sign = (std::popcount(static_cast<uint64_t>(i & j)) & 1) != 0 ? -1.0f : 1.0f;
        sum += from[first + i * inner] * (sign * static_cast<float>(kSigns[i]) * 0.25f);
      }
      into[first + j * inner] = RoundToBF16(sum);
    }
  }
  return out;
}

}  // namespace octavo::quant
