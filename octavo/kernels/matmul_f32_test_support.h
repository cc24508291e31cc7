// Random operands of the F family in every storage, for its tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "octavo/kernels/code_table.h"
#include "octavo/kernels/float_source.h"

namespace octavo::kernels {

// A generator whose numbers are the same with every compiler and library.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  uint32_t Next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 32);
  }
  int64_t Below(int64_t bound) { return static_cast<int64_t>(Next()) % bound; }
  float Float() { return (static_cast<float>(Next() >> 8) * 0x1p-24f - 0.5f) * 4; }
  template <typename T, size_t n>
  T Of(const T (&list)[n]) {
    return list[Below(static_cast<int64_t>(n))];
  }

 private:
  uint64_t state_;
};

// Sixteen uneven values, as a lookup format has them.
inline const CodeTable& Lookup16() {
  static const CodeTable table = [] {
    float value[16];
    for (int c = 0; c < 16; ++c) value[c] = std::sin(static_cast<float>(c) - 7.3f);
    return MakeCodeTable(value, 16);
  }();
  return table;
}

// A random matrix in any storage, and the memory behind it.
struct Matrix {
  std::vector<uint8_t> bytes;
  std::vector<float> scale, zero_point;
  FloatSource source;
};

enum class Layout { kRows, kCols, kGaps };

inline void FillCodes(Numbers& numbers, Matrix& matrix, Stored stored, int64_t count) {
  static constexpr int64_t kBytes[] = {4, 2, 2, 1, 1, 1};
  matrix.bytes.resize(static_cast<size_t>(count * kBytes[static_cast<int>(stored)] + 64));
  for (int64_t i = 0; i < count; ++i) {
    const float value = numbers.Float();
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    uint8_t* at = matrix.bytes.data() + i * kBytes[static_cast<int>(stored)];
    const uint16_t bf16 = static_cast<uint16_t>(bits >> 16);
    const uint16_t f16 = static_cast<uint16_t>((bits >> 16 & 0x8000) | (0x3000 + (bits >> 8) % 0x1000));
    switch (stored) {
      case Stored::kF32:
        std::memcpy(at, &value, 4);
        break;
      case Stored::kBF16:
        std::memcpy(at, &bf16, 2);
        break;
      case Stored::kF16:
        std::memcpy(at, &f16, 2);
        break;
      case Stored::kByte:
        *at = static_cast<uint8_t>(bits % 127 | (bits >> 9 & 128));
        break;  // no NaN codes
      default:
        *at = static_cast<uint8_t>(bits >> 3);
    }
  }
}

inline Matrix RandomMatrix(Numbers& numbers, Stored stored, int64_t rows, int64_t cols, Layout layout) {
  Matrix matrix;
  FloatSource& s = matrix.source;
  s.stored = stored;
  s.rows = rows, s.cols = cols;
  s.offset = numbers.Below(5);
  const int64_t gap = layout == Layout::kGaps ? 2 : 1;
  if (layout == Layout::kCols) {
    s.row_stride = 1, s.col_stride = rows + numbers.Below(3);
  } else {
    s.col_stride = gap, s.row_stride = cols * gap + numbers.Below(3);
  }
  FillCodes(numbers, matrix, stored, s.offset + rows * s.row_stride + cols * s.col_stride + 8);
  s.data = matrix.bytes.data();
  if (stored == Stored::kByte) s.table = &CodeTableOf(Format::kF8E4M3FN);
  if (stored == Stored::kNibble) s.table = &Lookup16();
  return matrix;
}

inline void AddScales(Numbers& numbers, Matrix& matrix, int64_t tile_rows, int64_t tile_cols, bool zero_points) {
  TileScales& t = matrix.source.scales;
  t.row0 = numbers.Below(tile_rows), t.col0 = numbers.Below(tile_cols);
  const int64_t tiles_r = (matrix.source.rows + t.row0) / tile_rows + 1;
  const int64_t tiles_c = (matrix.source.cols + t.col0) / tile_cols + 1;
  for (int64_t i = 0; i < tiles_r * tiles_c; ++i) {
    matrix.scale.push_back(std::fabs(numbers.Float()) + 0.01f);
    matrix.zero_point.push_back(static_cast<float>(numbers.Below(7)));
  }
  t.tile_rows = tile_rows, t.tile_cols = tile_cols;
  t.row_stride = tiles_c, t.col_stride = 1;
  t.scale = matrix.scale.data();
  if (zero_points) t.zero_point = matrix.zero_point.data();
}

struct Output {
  std::vector<uint32_t> words;
  FloatResult result;
};

inline Output RandomOutput(Numbers& numbers, Stored stored, int64_t rows, int64_t cols, Layout layout) {
  Output output;
  FloatResult& c = output.result;
  c.stored = stored, c.rows = rows, c.cols = cols;
  const int64_t gap = layout == Layout::kGaps ? 3 : 1;
  if (layout == Layout::kCols) {
    c.row_stride = 1, c.col_stride = rows + 1;
  } else {
    c.col_stride = gap, c.row_stride = cols * gap + 2;
  }
  output.words.resize(static_cast<size_t>(rows * c.row_stride + cols * c.col_stride + 8));
  for (uint32_t& word : output.words) word = std::bit_cast<uint32_t>(numbers.Float()) & 0xffff3fffu;
  c.data = output.words.data();
  return output;
}

inline Output Copy(const Output& from) {
  Output copy = from;
  copy.result.data = copy.words.data();
  return copy;
}

}  // namespace octavo::kernels
