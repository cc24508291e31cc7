// Arithmetic in the dtype of an array, one element at a time: values are computed in f32 and every result is rounded to
// the dtype (round to nearest even), as the reference does for bf16 and f16. Only files of quant/ include this. The
// thread must be in the product's float mode (flush to zero); loads, stores and bit tricks keep subnormals, as the
// reference's casts, abs and max do.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/numerics/dtype.h"
#include "octavo/numerics/half.h"
#include "octavo/quant/arithmetic.h"

namespace octavo::quant {

struct F32Element {
  using Stored = float;
  static constexpr DType kDType = DType::kF32;
  static constexpr float kGuard = 0x1p-63f;  // sqrt of the smallest normal number; a smaller scale becomes 1
  static float Load(Stored stored) { return stored; }
  static Stored Store(float value) { return value; }
  static float Round(float value) { return value; }
};

struct BF16Element {
  using Stored = uint16_t;
  static constexpr DType kDType = DType::kBF16;
  static constexpr float kGuard = 0x1p-63f;
  static float Load(Stored stored) { return BF16ToF32(stored); }
  static Stored Store(float value) { return F32ToBF16(value); }
  static float Round(float value) { return RoundToBF16(value); }
};

struct F16Element {
  using Stored = uint16_t;
  static constexpr DType kDType = DType::kF16;
  static constexpr float kGuard = 0x1p-7f;
  static float Load(Stored stored) { return F16ToF32(stored); }
  static Stored Store(float value) { return F32ToF16(value); }
  static float Round(float value) { return RoundToF16(value); }
};

// Calls fn(Element{}) for the dtype; other dtypes are a usage error that begins with `op`.
template <typename Fn>
auto WithElement(std::string_view op, DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(F32Element{});
    case DType::kBF16:
      return fn(BF16Element{});
    case DType::kF16:
      return fn(F16Element{});
    default:
      ThrowUsage("{}: refuse to compute in {}; f32, bf16 and f16 are possible", op, NameOf(dtype));
  }
}

// Whether a division by one value per part runs as a multiplication with the reciprocal. `parts` values divide `whole`
// ones; `per_tensor` says that one value for everything was asked for.
inline bool ByReciprocal(DivisionRule rule, bool per_tensor, int64_t parts, int64_t whole) {
  if (rule == DivisionRule::kDeclared) return !per_tensor;
  return rule == DivisionRule::kReference && parts < whole;
}

// Divides many values by one, truly or with the rounded reciprocal (never in bf16, where it made no difference).
template <typename E>
class Divisor {
 public:
  Divisor(float by, bool reciprocal) : by_(by), reciprocal_(reciprocal && E::kDType != DType::kBF16) {
    if (reciprocal_) by_ = E::Round(1.0f / by);
  }
  float operator()(float x) const { return E::Round(reciprocal_ ? x * by_ : x / by_); }

 private:
  float by_;
  bool reciprocal_;
};

// |x| as an integer that orders like the magnitudes, NaN above infinity: the largest of these is the absolute maximum,
// with NaN propagated and subnormals kept.
inline uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }
inline bool IsNanBits(float x) { return MagnitudeBits(x) > 0x7f800000u; }
inline bool IsFiniteBits(float x) { return MagnitudeBits(x) < 0x7f800000u; }

// Minimum and maximum that propagate NaN and keep subnormals (compares as integers, so -0 is below +0).
inline int32_t OrderedBits(float x) {
  int32_t bits = std::bit_cast<int32_t>(x);
  return bits >= 0 ? bits : static_cast<int32_t>(0x80000000u) - bits - 1;
}
inline float MinNan(float a, float b) {
  if (IsNanBits(a)) return a;
  if (IsNanBits(b)) return b;
  return OrderedBits(a) <= OrderedBits(b) ? a : b;
}
inline float MaxNan(float a, float b) {
  if (IsNanBits(a)) return a;
  if (IsNanBits(b)) return b;
  return OrderedBits(a) >= OrderedBits(b) ? a : b;
}

}  // namespace octavo::quant
