// bf16 as its upper 16 bits of f32, for the plain loops of this folder. Functions are static so that a unit compiled
// for one instruction set cannot lend its copy to another.
#pragma once

#include <bit>
#include <cstdint>

namespace octavo::kernels {

[[maybe_unused]] static inline float FloatFromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// To nearest even; a NaN stays a NaN (its upper payload bits, quiet).
[[maybe_unused]] static inline uint16_t BF16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

[[maybe_unused]] static inline float RoundToBF16(float value) { return FloatFromBF16(BF16FromFloat(value)); }

}  // namespace octavo::kernels
