// Inputs for the tests of the integer kernels: repeatable codes and floats, and a hash of bytes. Tests only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace octavo::kernels {

// A small generator with a fixed sequence on every compiler.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x1234567u) {}
  uint32_t Bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 16);
  }
  int64_t Below(int64_t bound) { return static_cast<int64_t>(Bits()) % bound; }
  // About normal in magnitude, both signs, never exactly 0.
  float Float() {
    const float a = static_cast<float>(Bits() >> 8) * 0x1p-24f, b = static_cast<float>(Bits() >> 8) * 0x1p-24f;
    return (a + b - 1.0f) * 3.0f + 1e-6f;
  }

 private:
  uint64_t state_;
};

inline std::vector<int8_t> RandomCodes(uint64_t seed, int64_t count, int low = -128, int high = 127) {
  TestRandom random(seed);
  std::vector<int8_t> codes(static_cast<size_t>(count));
  for (int8_t& code : codes) code = static_cast<int8_t>(low + random.Below(high - low + 1));
  return codes;
}

inline std::vector<float> RandomFloats(uint64_t seed, int64_t count) {
  TestRandom random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.Float();
  return values;
}

// Positive, about 1e-3 … 1e-1, as scales are.
inline std::vector<float> RandomScales(uint64_t seed, int64_t count, bool bf16 = false) {
  TestRandom random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = 0.001f + static_cast<float>(random.Bits() >> 8) * 0x1p-24f * 0.1f;
    if (bf16) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000u);
  }
  return values;
}

template <typename T>
uint64_t HashOf(const std::vector<T>& values) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const T& value : values) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    hash = (hash ^ bits) * 0x100000001B3u;
  }
  return hash;
}

}  // namespace octavo::kernels
