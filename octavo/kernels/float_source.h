// What the F family reads and writes: a matrix of numbers that are stored as floats or as codes, with the scales that
// turn a code into its value. Used by matmul_f32.h and weight_only.h and their callers; a plain description that owns
// nothing. The decoded value of an element is exact except for one rounding when a scale is given:
//     value = fl((decode(code) - zero_point) * scale)
#pragma once

#include <cstdint>

namespace octavo::kernels {

// How one element is stored.
enum class Stored : uint8_t {
  kF32,
  kBF16,
  kF16,
  kI8,      // the code is the value, -128 … 127 (narrower integers stored in a byte too)
  kByte,    // a byte that indexes a table of 256 values (fp8, fp4 or nf4 one to a byte)
  kNibble,  // two to a byte, the lower four bits first; indexes a table of 16 values
};

// The values of all codes of a format with at most 8 bits, and a quicker way to most of them: a format of up to 5
// exponent bits is a shift away from f16. Made by code_table.h; immutable afterwards.
struct CodeTable {
  float value[256] = {};
  // For a code c with magnitude m = c & 127 and sign c >> 7, unless m >= special_from or c == special_code:
  //     value[c] == f16(sign << 15 | m << half_shift) * half_factor      (both steps exact)
  bool has_half = false;
  int half_shift = 0;
  float half_factor = 1;
  int special_from = 128;
  int special_code = -1;
};

// A scale (and zero point) for each tile of tile_rows x tile_cols elements. Element (r, c) uses entry
// ((r + row0) / tile_rows) * row_stride + ((c + col0) / tile_cols) * col_stride; row0 and col0 let a slice start inside
// a tile. One scale for everything: strides 0. Per column: row_stride 0, tile_cols 1, col_stride 1.
struct TileScales {
  const float* scale = nullptr;       // null: no scales
  const float* zero_point = nullptr;  // null: none; subtracted before the scale is applied
  int64_t tile_rows = 1, tile_cols = 1;
  int64_t row_stride = 0, col_stride = 0;
  int64_t row0 = 0, col0 = 0;
};

// Element (r, c) is number offset + r * row_stride + c * col_stride behind `data`, counted in elements (in nibbles for
// kNibble). A transpose swaps the pairs.
struct FloatSource {
  const void* data = nullptr;
  Stored stored = Stored::kF32;
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 1;
  int64_t offset = 0;
  const CodeTable* table = nullptr;  // for kByte and kNibble
  TileScales scales;

  FloatSource Transposed() const;
  FloatSource RowRange(int64_t begin, int64_t end) const;  // rows [begin, end)
  FloatSource ColRange(int64_t begin, int64_t end) const;  // columns [begin, end)
};

// Row-major and without gaps.
FloatSource SourceF32(const float* data, int64_t rows, int64_t cols);
FloatSource SourceBF16(const uint16_t* data, int64_t rows, int64_t cols);
FloatSource SourceF16(const uint16_t* data, int64_t rows, int64_t cols);
FloatSource SourceI8(const int8_t* data, int64_t rows, int64_t cols);
FloatSource SourceBytes(const uint8_t* data, const CodeTable& table, int64_t rows, int64_t cols);
FloatSource SourceNibbles(const uint8_t* data, const CodeTable& table, int64_t rows, int64_t cols);

// The value of element (r, c): the reference for every pack and every decoding kernel.
float ValueAt(const FloatSource& source, int64_t r, int64_t c);

// Where a product goes. Results are computed in f32 and rounded once, to nearest even.
struct FloatResult {
  void* data = nullptr;
  Stored stored = Stored::kF32;  // kF32, kBF16 or kF16
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 1;

  FloatResult Transposed() const { return {data, stored, cols, rows, col_stride, row_stride}; }
  FloatResult RowRange(int64_t begin, int64_t end) const;
};

FloatResult ResultF32(float* data, int64_t rows, int64_t cols);
FloatResult ResultBF16(uint16_t* data, int64_t rows, int64_t cols);
FloatResult ResultF16(uint16_t* data, int64_t rows, int64_t cols);

}  // namespace octavo::kernels
