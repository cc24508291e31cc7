// Blocks of 256 elements. A sub-block of 16 or 32 has a small integer scale (and minimum), which one f16 scale of the
// whole block multiplies first; the product with the code is a second rounding.
#include "octavo/checkpoint/ggml_blocks.h"

namespace octavo::ggml {
namespace {

constexpr int kBlock = 256;

// Two-bit codes: each run of 128 elements has 32 bytes, element i in bits of byte i % 32.
int TwoBits(const uint8_t* codes, int i) { return codes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3; }

// Four-bit codes of Q4_K and Q5_K: each run of 64 elements has 32 bytes.
int FourBits(const uint8_t* codes, int i) { return codes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15; }

// One bit for each element: byte i % 32, bit i / 32.
int SpreadBit(const uint8_t* bits, int i) { return bits[i % 32] >> (i / 32) & 1; }

// The 6-bit scales and minimums of eight sub-blocks in 12 bytes: four whole ones of each, whose upper two bits are
// those of the other four, whose lower four bits share the last bytes.
struct ScaleAndMinimum {
  int scale, minimum;
};
ScaleAndMinimum SixBits(const uint8_t* packed, int sub) {
  if (sub < 4) return {packed[sub] & 63, packed[sub + 4] & 63};
  const int low = packed[sub + 4];
  return {(low & 15) | (packed[sub - 4] >> 2 & 48), (low >> 4) | (packed[sub] >> 2 & 48)};
}

}  // namespace

// 16 bytes of 4-bit scales and minimums, 64 of codes, f16 scale, f16 scale of the minimums.
void DecodeQ2_K(const uint8_t* block, float* values) {
  const float scale = ReadF16(block + 80), minimum = ReadF16(block + 82);
  for (int i = 0; i < kBlock; ++i) {
    const int pair = block[i / 16];
    const float low = minimum * static_cast<float>(pair >> 4);
    values[i] = scale * static_cast<float>(pair & 15) * static_cast<float>(TwoBits(block + 16, i)) - low;
  }
}

// 32 bytes of third bits (set: no offset), 64 of low bits, 12 of 6-bit scales, f16 scale.
void DecodeQ3_K(const uint8_t* block, float* values) {
  const float scale = ReadF16(block + 108);
  const uint8_t* packed = block + 96;
  for (int i = 0; i < kBlock; ++i) {
    const int sub = i / 16;
    const int low = sub < 8 ? packed[sub] & 15 : packed[sub - 8] >> 4;
    const int high = packed[8 + sub % 4] >> (sub / 4 * 2) & 3;
    const int code = TwoBits(block + 32, i) - (SpreadBit(block, i) != 0 ? 0 : 4);
    values[i] = scale * static_cast<float>((low | high << 4) - 32) * static_cast<float>(code);
  }
}

// f16 scale, f16 scale of the minimums, 12 bytes of scales and minimums, 128 of codes.
void DecodeQ4_K(const uint8_t* block, float* values) {
  const float scale = ReadF16(block), minimum = ReadF16(block + 2);
  for (int i = 0; i < kBlock; ++i) {
    const ScaleAndMinimum sub = SixBits(block + 4, i / 32);
    const float low = minimum * static_cast<float>(sub.minimum);
    values[i] = scale * static_cast<float>(sub.scale) * static_cast<float>(FourBits(block + 16, i)) - low;
  }
}

// As Q4_K, with 32 bytes of fifth bits before the codes.
void DecodeQ5_K(const uint8_t* block, float* values) {
  const float scale = ReadF16(block), minimum = ReadF16(block + 2);
  for (int i = 0; i < kBlock; ++i) {
    const ScaleAndMinimum sub = SixBits(block + 4, i / 32);
    const float low = minimum * static_cast<float>(sub.minimum);
    const int code = FourBits(block + 48, i) | SpreadBit(block + 16, i) << 4;
    values[i] = scale * static_cast<float>(sub.scale) * static_cast<float>(code) - low;
  }
}

// 128 bytes of low nibbles, 64 of upper pairs, 16 signed scales, f16 scale.
void DecodeQ6_K(const uint8_t* block, float* values) {
  const float scale = ReadF16(block + 208);
  for (int i = 0; i < kBlock; ++i) {
    const int low = block[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
    const int code = (low | TwoBits(block + 128, i) << 4) - 32;
    values[i] = scale * static_cast<float>(static_cast<int8_t>(block[192 + i / 16])) * static_cast<float>(code);
  }
}

// f16 scale, 16 bits of upper scale bits, 4 bytes of lower ones, 128 of indices: 16 bytes for each run of 32.
void DecodeIQ4_XS(const uint8_t* block, float* values) {
  const float scale = ReadF16(block);
  const int high = ReadU16(block + 2);
  for (int i = 0; i < kBlock; ++i) {
    const int sub = i / 32;
    const int factor = ((block[4 + sub / 2] >> (sub % 2 * 4) & 15) | (high >> (2 * sub) & 3) << 4) - 32;
    const int index = block[8 + sub * 16 + i % 16] >> (i / 16 % 2 * 4) & 15;
    values[i] = scale * static_cast<float>(factor) * static_cast<float>(kNonLinear4[index]);
  }
}

// Five ternary digits in a byte, as a fixed-point fraction: times 3^n, the digit is what three times the rest carries.
// 32 bytes hold the first 160 elements, 16 the next 80, 4 (of four digits) the last 16; f16 scale.
void DecodeTQ1_0(const uint8_t* block, float* values) {
  constexpr uint8_t kPower[] = {1, 3, 9, 27, 81};
  const float scale = ReadF16(block + 52);
  for (int i = 0; i < kBlock; ++i) {
    const int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
    const int byte = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
    const auto rest = static_cast<uint8_t>(block[byte] * kPower[digit]);
    values[i] = scale * static_cast<float>((rest * 3 >> 8) - 1);
  }
}

// 64 bytes of codes, f16 scale.
void DecodeTQ2_0(const uint8_t* block, float* values) {
  const float scale = ReadF16(block + 64);
  for (int i = 0; i < kBlock; ++i) values[i] = scale * static_cast<float>(TwoBits(block, i) - 1);
}

}  // namespace octavo::ggml
