// Sample data for the self test and the unit tests: reproducible numbers, and rows with a stride and guard elements, so
// that a comparison of bytes also finds a write outside the rows. Not for computing.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "octavo/kernels/element.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {

// Number `index` of stream `seed`: 64 well-mixed bits (splitmix64).
inline uint64_t SampleBits(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xd1342543de82ef95ull + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// In (-1, 1), bell-shaped, with all 24 bits of a float in use, so that sums of many depend on their order.
inline float SampleValue(uint64_t seed, uint64_t index) {
  const uint64_t a = SampleBits(seed, 2 * index), b = SampleBits(seed, 2 * index + 1);
  double sum = 0;
  for (uint64_t part : {a & 0xffffffff, a >> 32, b & 0xffffffff, b >> 32}) {
    sum += static_cast<double>(static_cast<int64_t>(part) - 0x80000000ll);
  }
  return static_cast<float>(sum * (1.0 / 8589934592.0));
}

inline std::vector<float> SampleFloats(int64_t count, uint64_t seed, float scale = 1.0f) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = SampleValue(seed, i) * scale;
  return values;
}

class SampleRows {
 public:
  // `gap` guard elements follow each row.
  SampleRows(DType dtype, int64_t rows, int64_t cols, int64_t gap = 3)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + gap), size_(dtype == DType::kF32 ? 4 : 2) {
    bytes_.assign((rows * stride_ + gap) * size_, 0xa5);
  }

  static SampleRows Random(DType dtype, int64_t rows, int64_t cols, uint64_t seed, float scale = 1.0f,
                           int64_t gap = 3) {
    SampleRows out(dtype, rows, cols, gap);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) out.Set(r, c, SampleValue(seed, r * cols + c) * scale);
    }
    return out;
  }

  ConstRows view() const { return {bytes_.data(), dtype_, rows_, cols_, stride_}; }
  MutRows mut() { return {bytes_.data(), dtype_, rows_, cols_, stride_}; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  float Get(int64_t r, int64_t c) const {
    const uint8_t* at = bytes_.data() + (r * stride_ + c) * size_;
    if (dtype_ == DType::kF32) {
      float value;
      std::memcpy(&value, at, 4);
      return value;
    }
    uint16_t code;
    std::memcpy(&code, at, 2);
    return dtype_ == DType::kBF16 ? BF16ToF32(code) : F16ToF32(code);
  }

  void Set(int64_t r, int64_t c, float value) {
    uint8_t* at = bytes_.data() + (r * stride_ + c) * size_;
    const uint16_t code = dtype_ == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
    dtype_ == DType::kF32 ? std::memcpy(at, &value, 4) : std::memcpy(at, &code, 2);
  }

  // Every byte, guards too.
  bool operator==(const SampleRows& other) const { return bytes_ == other.bytes_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  int64_t rows_, cols_, stride_;
  int64_t size_;
  std::vector<uint8_t> bytes_;
};

// FNV-1a of the bytes: for tests that compare with a number written down.
inline uint64_t HashOf(const void* data, int64_t bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto* at = static_cast<const uint8_t*>(data);
  for (int64_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3ull;
  return hash;
}
inline uint64_t HashOf(const std::vector<float>& values) {
  return HashOf(values.data(), static_cast<int64_t>(values.size()) * 4);
}
inline uint64_t HashOf(const SampleRows& rows) {
  return HashOf(rows.bytes().data(), static_cast<int64_t>(rows.bytes().size()));
}

}  // namespace octavo::kernels
