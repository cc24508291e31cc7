#include "octavo/checkpoint/ggml_blocks.h"

#include <bit>

namespace octavo::ggml {
namespace {

constexpr int kBlock = 32, kHalf = kBlock / 2;

// The codes of a block of 32: the low nibbles are the first half, the high ones the second.
int Nibble(const uint8_t* codes, int i) { return i < kHalf ? codes[i] & 15 : codes[i - kHalf] >> 4; }

int Bit(const uint8_t* bits, int i) { return bits[i / 8] >> (i % 8) & 1; }

}  // namespace

float HalfOfE8M0(uint8_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code : static_cast<uint32_t>(code - 1) << 23);
}

void DecodeF32(const uint8_t* block, float* values) { std::memcpy(values, block, sizeof(float)); }
void DecodeF16(const uint8_t* block, float* values) { *values = ReadF16(block); }
void DecodeBF16(const uint8_t* block, float* values) { *values = BF16ToF32(ReadU16(block)); }

// f16 scale, 16 bytes of codes.
void DecodeQ4_0(const uint8_t* block, float* values) {
  const float scale = ReadF16(block);
  for (int i = 0; i < kBlock; ++i) values[i] = scale * static_cast<float>(Nibble(block + 2, i) - 8);
}

// f16 scale, f16 minimum, 16 bytes of codes.
void DecodeQ4_1(const uint8_t* block, float* values) {
  const float scale = ReadF16(block), minimum = ReadF16(block + 2);
  for (int i = 0; i < kBlock; ++i) values[i] = scale * static_cast<float>(Nibble(block + 4, i)) + minimum;
}

// f16 scale, 4 bytes of fifth bits, 16 bytes of low bits.
void DecodeQ5_0(const uint8_t* block, float* values) {
  const float scale = ReadF16(block);
  for (int i = 0; i < kBlock; ++i) {
    values[i] = scale * static_cast<float>((Nibble(block + 6, i) | Bit(block + 2, i) << 4) - 16);
  }
}

// f16 scale, f16 minimum, 4 bytes of fifth bits, 16 bytes of low bits.
void DecodeQ5_1(const uint8_t* block, float* values) {
  const float scale = ReadF16(block), minimum = ReadF16(block + 2);
  for (int i = 0; i < kBlock; ++i) {
    values[i] = scale * static_cast<float>(Nibble(block + 8, i) | Bit(block + 4, i) << 4) + minimum;
  }
}

// f16 scale, 32 signed bytes.
void DecodeQ8_0(const uint8_t* block, float* values) {
  const float scale = ReadF16(block);
  for (int i = 0; i < kBlock; ++i) values[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

// e8m0 scale, 16 bytes of float4 codes.
void DecodeMXFP4(const uint8_t* block, float* values) {
  const float scale = HalfOfE8M0(block[0]);
  for (int i = 0; i < kBlock; ++i) values[i] = scale * static_cast<float>(kDoubledE2M1[Nibble(block + 1, i)]);
}

// f16 scale, 16 bytes of indices.
void DecodeIQ4_NL(const uint8_t* block, float* values) {
  const float scale = ReadF16(block);
  for (int i = 0; i < kBlock; ++i) values[i] = scale * static_cast<float>(kNonLinear4[Nibble(block + 2, i)]);
}

}  // namespace octavo::ggml
