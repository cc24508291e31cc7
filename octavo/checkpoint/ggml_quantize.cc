// Values to blocks, to the bit as the gguf package does it, which follows ggml's reference code.
#include <algorithm>
#include <cmath>

#include "octavo/checkpoint/ggml_blocks.h"

namespace octavo::ggml {
namespace {

constexpr int kBlock = 32, kHalf = kBlock / 2;

float Inverse(float scale) { return scale == 0 ? 0.0f : 1 / scale; }

// A whole number in [0, most]; what is no number gives 0.
uint8_t Clamped(float whole, int most) {
  if (!(whole > 0)) return 0;
  return static_cast<uint8_t>(std::min(whole, static_cast<float>(most)));
}

float LargestMagnitude(const float* values, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

// The value of the largest magnitude, with its sign; the first of equal ones.
float Peak(const float* values) {
  float peak = values[0];
  for (int i = 1; i < kBlock; ++i) {
    if (std::fabs(values[i]) > std::fabs(peak)) peak = values[i];
  }
  return peak;
}

// Codes around an offset: the peak takes the lowest code. In double and one rounding to float, as a fused
// multiply-add would come out.
void SymmetricCodes(const float* values, float inverse, int levels, uint8_t* codes) {
  const double middle = levels / 2 + 0.5;
  for (int i = 0; i < kBlock; ++i) {
    const auto shifted = static_cast<float>(static_cast<double>(values[i]) * static_cast<double>(inverse) + middle);
    codes[i] = Clamped(std::trunc(shifted), levels - 1);
  }
}

void AsymmetricCodes(const float* values, float minimum, float inverse, int levels, uint8_t* codes) {
  for (int i = 0; i < kBlock; ++i) {
    codes[i] = Clamped(std::trunc((values[i] - minimum) * inverse + 0.5f), levels - 1);
  }
}

void PackNibbles(const uint8_t* codes, uint8_t* packed) {
  for (int i = 0; i < kHalf; ++i) packed[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + kHalf] & 15) << 4);
}

void PackFifthBits(const uint8_t* codes, uint8_t* packed) {
  std::memset(packed, 0, 4);
  for (int i = 0; i < kBlock; ++i) packed[i / 8] = static_cast<uint8_t>(packed[i / 8] | (codes[i] >> 4) << (i % 8));
}

// 0, 1 or 2 for each of 256 values: -1, 0, 1 times the largest magnitude.
float TernaryCodes(const float* values, uint8_t* codes) {
  const float scale = LargestMagnitude(values, 256);
  const float inverse = Inverse(scale);
  for (int i = 0; i < 256; ++i) codes[i] = Clamped(std::round(values[i] * inverse) + 1, 2);
  return scale;
}

}  // namespace

void QuantizeF32(const float* values, uint8_t* block) { std::memcpy(block, values, sizeof(float)); }
void QuantizeF16(const float* values, uint8_t* block) { WriteF16(*values, block); }
void QuantizeBF16(const float* values, uint8_t* block) { WriteU16(F32ToBF16(*values), block); }

void QuantizeQ4_0(const float* values, uint8_t* block) {
  const float scale = Peak(values) / -8;
  uint8_t codes[kBlock];
  SymmetricCodes(values, Inverse(scale), 16, codes);
  WriteF16(scale, block);
  PackNibbles(codes, block + 2);
}

void QuantizeQ4_1(const float* values, uint8_t* block) {
  const auto [minimum, maximum] = std::minmax_element(values, values + kBlock);
  const float scale = (*maximum - *minimum) / 15;
  uint8_t codes[kBlock];
  AsymmetricCodes(values, *minimum, Inverse(scale), 16, codes);
  WriteF16(scale, block);
  WriteF16(*minimum, block + 2);
  PackNibbles(codes, block + 4);
}

void QuantizeQ5_0(const float* values, uint8_t* block) {
  const float scale = Peak(values) / -16;
  uint8_t codes[kBlock];
  SymmetricCodes(values, Inverse(scale), 32, codes);
  WriteF16(scale, block);
  PackFifthBits(codes, block + 2);
  PackNibbles(codes, block + 6);
}

void QuantizeQ5_1(const float* values, uint8_t* block) {
  const auto [minimum, maximum] = std::minmax_element(values, values + kBlock);
  const float scale = (*maximum - *minimum) / 31;
  uint8_t codes[kBlock];
  AsymmetricCodes(values, *minimum, Inverse(scale), 32, codes);
  WriteF16(scale, block);
  WriteF16(*minimum, block + 2);
  PackFifthBits(codes, block + 4);
  PackNibbles(codes, block + 8);
}

void QuantizeQ8_0(const float* values, uint8_t* block) {
  const float scale = LargestMagnitude(values, kBlock) / 127;
  const float inverse = Inverse(scale);
  WriteF16(scale, block);
  for (int i = 0; i < kBlock; ++i) {
    const float whole = std::round(values[i] * inverse);  // halves away from zero
    block[2 + i] = static_cast<uint8_t>(std::isnan(whole) ? 0 : static_cast<int8_t>(std::clamp(whole, -128.f, 127.f)));
  }
}

void QuantizeTQ1_0(const float* values, uint8_t* block) {
  uint8_t codes[256];
  const float scale = TernaryCodes(values, codes);
  // The digits of a byte as a number to base 3, then as the fraction of 243 in 256ths, rounded up.
  const auto byte = [&](int first, int step, int digits) {
    int number = 0;
    for (int n = 0; n < 5; ++n) number = number * 3 + (n < digits ? codes[first + n * step] : 0);
    return static_cast<uint8_t>((number * 256 + 242) / 243);
  };
  for (int i = 0; i < 32; ++i) block[i] = byte(i, 32, 5);
  for (int i = 0; i < 16; ++i) block[32 + i] = byte(160 + i, 16, 5);
  for (int i = 0; i < 4; ++i) block[48 + i] = byte(240 + i, 4, 4);
  WriteF16(scale, block + 52);
}

void QuantizeTQ2_0(const float* values, uint8_t* block) {
  uint8_t codes[256];
  const float scale = TernaryCodes(values, codes);
  for (int i = 0; i < 64; ++i) {
    const uint8_t* first = codes + i / 32 * 128 + i % 32;
    block[i] = static_cast<uint8_t>(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
  }
  WriteF16(scale, block + 64);
}

void QuantizeMXFP4(const float* values, uint8_t* block) {
  const float largest = LargestMagnitude(values, kBlock);
  // The logarithm is rounded to float before the floor, as the reference does.
  const float exponent =
      largest > 0 ? std::floor(static_cast<float>(std::log2(static_cast<double>(largest)))) - 2 + 127 : 0;
  block[0] = Clamped(exponent, 254);
  const float scale = HalfOfE8M0(block[0]);
  uint8_t codes[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    float least = INFINITY;
    codes[i] = 0;
    for (uint8_t code = 0; code < 16; ++code) {
      const float error = std::fabs(scale * static_cast<float>(kDoubledE2M1[code]) - values[i]);
      if (error < least) {
        least = error;
        codes[i] = code;
      }
    }
  }
  PackNibbles(codes, block + 1);
}

}  // namespace octavo::ggml
