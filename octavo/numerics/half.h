// bf16 and f16 to and from f32, one rounding to nearest even, in integer arithmetic only: the flush-to-zero mode of
// compute threads cannot touch subnormals here, as the reference's casts keep them. For loops that the compiler may
// vectorize; kernels have faster versions and are tested against these.
#pragma once

#include <bit>
#include <cstdint>

namespace octavo {

inline constexpr float BF16ToF32(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }

// NaN becomes the quiet NaN of the same sign.
inline constexpr uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline constexpr float F16ToF32(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  const uint32_t magnitude = code & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  if (magnitude == 0) return std::bit_cast<float>(sign);
  // A subnormal: the highest set bit becomes the implicit one.
  const int shift = std::countl_zero(magnitude) - 21;  // 1 … 10
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - shift) << 23) |
                              (magnitude << (13 + shift) & 0x7fffffu));
}

// Overflow gives infinity; NaN becomes the quiet NaN of the same sign.
inline constexpr uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude >= 0x38800000u) {                                              // normal in f16
    return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);  // 2^-25, a tie to even, and below
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 126u - (magnitude >> 23);  // 14 … 24
  const uint32_t rounded = (significand + (1u << (shift - 1)) - 1u + (significand >> shift & 1u)) >> shift;
  return static_cast<uint16_t>(sign | rounded);
}

// Rounds to the dtype's precision and comes back, as an operation whose result is stored in that dtype does.
inline constexpr float RoundToBF16(float value) { return BF16ToF32(F32ToBF16(value)); }
inline constexpr float RoundToF16(float value) { return F16ToF32(F32ToF16(value)); }

}  // namespace octavo
