#include "octavo/base/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/base/check.h"

namespace octavo {
namespace {

// Word `index` of the original layout: the counters 0 … count-1 (padded to an even number with one zero) are cut in two
// halves that are hashed pairwise; the first halves of the results come first.
uint32_t OriginalWord(const RngKey& key, uint64_t index, uint64_t count) {
  const uint64_t half = (count + 1) / 2;
  const uint64_t pair = index < half ? index : index - half;
  const uint64_t second = pair + half < count ? pair + half : 0;
  const auto [low, high] =
      Threefry2x32(key.word0, key.word1, static_cast<uint32_t>(pair), static_cast<uint32_t>(second));
  return index < half ? low : high;
}

std::pair<uint32_t, uint32_t> Block(const RngKey& key, uint64_t counter) {
  return Threefry2x32(key.word0, key.word1, static_cast<uint32_t>(counter >> 32), static_cast<uint32_t>(counter));
}

// Giles' single-precision inverse error function, the polynomial that XLA uses.
float ErfInv(float x) {
  if (std::fabs(x) == 1.0f) return x * std::numeric_limits<float>::infinity();
  constexpr float kNear[] = {2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f,
                             -0.00125372503f, -0.00417768164f, 0.246640727f,    1.50140941f};
  constexpr float kFar[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f,
                            -0.0076224613f,   0.00943887047f,  1.00167406f,    2.83297682f};
  // In double and rounded once, so that the result does not hang on the C library's float logarithm.
  float w = static_cast<float>(-std::log1p(-static_cast<double>(x) * static_cast<double>(x)));
  const bool near = w < 5.0f;
  w = near ? w - 2.5f : static_cast<float>(std::sqrt(static_cast<double>(w))) - 3.0f;
  float p = near ? kNear[0] : kFar[0];
  for (int i = 1; i < 9; ++i) p = (near ? kNear[i] : kFar[i]) + p * w;
  return p * x;
}

}  // namespace

std::pair<uint32_t, uint32_t> Threefry2x32(uint32_t key0, uint32_t key1, uint32_t counter0, uint32_t counter1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key0, key1, key0 ^ key1 ^ 0x1BD11BDAu};
  uint32_t x0 = counter0 + keys[0], x1 = counter1 + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (int rotation : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, rotation) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + group + 1;
  }
  return {x0, x1};
}

RngKey RngKey::FoldIn(uint32_t data) const {
  const auto [first, second] = Threefry2x32(word0, word1, 0, data);
  return {first, second};
}

RngKey RngKey::Split(uint64_t index) const {
  const auto [first, second] = Block(*this, index);
  return {first, second};
}

RngKey RngKey::Split(uint64_t index, uint64_t count, RngMode mode) const {
  OCTAVO_CHECK(index < count);
  if (mode == RngMode::kPartitionable) return Split(index);
  return {OriginalWord(*this, 2 * index, 2 * count), OriginalWord(*this, 2 * index + 1, 2 * count)};
}

uint32_t RngKey::Bits32(uint64_t index) const {
  const auto [first, second] = Block(*this, index);
  return first ^ second;
}

uint64_t RngKey::Bits64(uint64_t index) const {
  const auto [first, second] = Block(*this, index);
  return static_cast<uint64_t>(first) << 32 | second;
}

uint64_t RngKey::Bits(int width, uint64_t index, uint64_t size, RngMode mode) const {
  OCTAVO_CHECK(width == 8 || width == 16 || width == 32 || width == 64);
  OCTAVO_CHECK(index < size);
  if (mode == RngMode::kPartitionable) {
    if (width == 64) return Bits64(index);
    return Bits32(index) & (width == 32 ? ~0u : (1u << width) - 1u);
  }
  if (width == 64) {  // the first half of the words are the upper halves
    return static_cast<uint64_t>(OriginalWord(*this, index, 2 * size)) << 32 |
           OriginalWord(*this, index + size, 2 * size);
  }
  // Narrow elements are cut from 32-bit words, lowest first.
  const uint64_t per_word = 32 / static_cast<uint64_t>(width);
  const uint64_t words = (size + per_word - 1) / per_word;
  const uint32_t word = OriginalWord(*this, index / per_word, words);
  if (width == 32) return word;
  return word >> (index % per_word * static_cast<uint64_t>(width)) & ((1u << width) - 1u);
}

float UniformFromBits(uint32_t bits) { return std::bit_cast<float>(bits >> 9 | 0x3f800000u) - 1.0f; }

float UniformFromBits(uint32_t bits, float minimum, float maximum) {
  return std::max(minimum, UniformFromBits(bits) * (maximum - minimum) + minimum);
}

float UniformBF16FromBits(uint8_t bits) { return static_cast<float>(bits >> 1) * 0x1p-7f; }

float UniformF16FromBits(uint16_t bits) { return static_cast<float>(bits >> 6) * 0x1p-10f; }

float NormalFromBits(uint32_t bits) {
  const float lowest = std::bit_cast<float>(0xbf7fffffu);  // the f32 after -1
  return 1.41421356f * ErfInv(UniformFromBits(bits, lowest, 1.0f));
}

int32_t RandomInteger(RngKey key, uint64_t index, uint64_t size, int32_t minimum, int32_t maximum, RngMode mode) {
  const RngKey high_key = key.Split(0, 2, mode), low_key = key.Split(1, 2, mode);
  const uint32_t high = static_cast<uint32_t>(high_key.Bits(32, index, size, mode));
  const uint32_t low = static_cast<uint32_t>(low_key.Bits(32, index, size, mode));
  // An empty range gives its minimum.
  const uint32_t span = maximum <= minimum ? 1u : static_cast<uint32_t>(maximum) - static_cast<uint32_t>(minimum);
  // 64 random bits modulo span, in words of 32 bits that wrap as they do in JAX.
  uint32_t multiplier = 65536u % span;
  multiplier = multiplier * multiplier % span;
  const uint32_t offset = (high % span * multiplier + low % span) % span;
  return static_cast<int32_t>(static_cast<uint32_t>(minimum) + offset);
}

}  // namespace octavo
