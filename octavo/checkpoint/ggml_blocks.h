// The functions of single blocks, by type; only the table in ggml_types.cc refers to them.
#pragma once

#include <cstdint>
#include <cstring>

#include "octavo/numerics/half.h"

namespace octavo::ggml {

inline uint16_t ReadU16(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
inline float ReadF16(const uint8_t* at) { return F16ToF32(ReadU16(at)); }
inline void WriteU16(uint16_t value, uint8_t* at) { std::memcpy(at, &value, sizeof(value)); }
inline void WriteF16(float value, uint8_t* at) { WriteU16(F32ToF16(value), at); }

// ggml_blocks.cc: plain numbers, and blocks of 32 with one scale.
void DecodeF32(const uint8_t* block, float* values);
void DecodeF16(const uint8_t* block, float* values);
void DecodeBF16(const uint8_t* block, float* values);
void DecodeQ4_0(const uint8_t* block, float* values);
void DecodeQ4_1(const uint8_t* block, float* values);
void DecodeQ5_0(const uint8_t* block, float* values);
void DecodeQ5_1(const uint8_t* block, float* values);
void DecodeQ8_0(const uint8_t* block, float* values);
void DecodeMXFP4(const uint8_t* block, float* values);
void DecodeIQ4_NL(const uint8_t* block, float* values);

// ggml_blocks_k.cc: blocks of 256 with scales of scales.
void DecodeQ2_K(const uint8_t* block, float* values);
void DecodeQ3_K(const uint8_t* block, float* values);
void DecodeQ4_K(const uint8_t* block, float* values);
void DecodeQ5_K(const uint8_t* block, float* values);
void DecodeQ6_K(const uint8_t* block, float* values);
void DecodeIQ4_XS(const uint8_t* block, float* values);
void DecodeTQ1_0(const uint8_t* block, float* values);
void DecodeTQ2_0(const uint8_t* block, float* values);

// ggml_quantize.cc.
void QuantizeF32(const float* values, uint8_t* block);
void QuantizeF16(const float* values, uint8_t* block);
void QuantizeBF16(const float* values, uint8_t* block);
void QuantizeQ4_0(const float* values, uint8_t* block);
void QuantizeQ4_1(const float* values, uint8_t* block);
void QuantizeQ5_0(const float* values, uint8_t* block);
void QuantizeQ5_1(const float* values, uint8_t* block);
void QuantizeQ8_0(const float* values, uint8_t* block);
void QuantizeTQ1_0(const float* values, uint8_t* block);
void QuantizeTQ2_0(const float* values, uint8_t* block);
void QuantizeMXFP4(const float* values, uint8_t* block);

// The 16 values of the "non-linear" 4-bit types, and those of float4 twice as large, in the order of their codes.
inline constexpr int8_t kNonLinear4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of the power of two that an e8m0 code means; below 2 it is subnormal.
float HalfOfE8M0(uint8_t code);

}  // namespace octavo::ggml
