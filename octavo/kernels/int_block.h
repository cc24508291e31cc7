// One block of an integer product with both operands packed: what the drivers (matmul_i8.cc, matmul_u4.cc) hand to the
// instruction-set units. Plain structs. Both families share the geometry: K is cut into tiles, a tile into units; a
// unit of the left operand is 8 bytes per row (4 int16 or 8 int8 steps), a unit of the right operand one line of 64
// bytes for 16 columns. `strip_rows` rows make a strip [tiles][units][rows][8 bytes].
#pragma once

#include <cstdint>

#include "octavo/kernels/scale_epilogue.h"

namespace octavo::kernels {

inline constexpr int kPanelColumns = 16;
inline constexpr int64_t kLineBytes = 64;    // one unit of a panel
inline constexpr int64_t kUnitRowBytes = 8;  // one unit of one row of a strip
inline constexpr int kStripRowsI8 = 4, kStripRowsU4 = 6;
inline constexpr int64_t kStepsI8 = 4, kStepsU4 = 8;  // steps of K in a unit

struct IntBlock {
  const uint8_t* strips = nullptr;  // all strips of the rows below
  const uint8_t* panels = nullptr;
  int64_t rows = 0, cols = 0;  // of the packed operands; out and scales have the same columns
  int64_t first_row = 0;       // row 0 of the strips is this row of the output and of the row scales
  int64_t tiles = 0, units = 0;
  int64_t k = 0, tile_length = 0;  // to know how many steps a tile has, for two zero points
  // The exact sum is raw + row_add + col_add, then without the zero points. Rows' constants lie strip by strip,
  // [tiles][rows of the strip]; columns' [tiles, padded columns].
  const int32_t* row_add = nullptr;
  const int32_t* row_sum = nullptr;
  const int32_t* col_add = nullptr;
  const int32_t* col_sum = nullptr;
  ScaleEpilogue epilogue;
  IntOutput out;

  int64_t padded_cols() const { return (cols + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }
  int64_t panel_bytes() const { return tiles * units * kLineBytes; }
};

// A rectangle of strips and panels.
struct IntRect {
  int64_t strip_begin, strip_end, panel_begin, panel_end;
};

void BlockI8Avx2(const IntBlock& block, const IntRect& rect);
void BlockU4Avx2(const IntBlock& block, const IntRect& rect);

// Packing, in pieces: strips or panels begin … end. `add` holds minus the cross sums (pack_i8.h) for int8 and minus
// eight times the row's sum for int4 weights.
struct StripsTarget {
  uint8_t* strips;
  int32_t* row_add;  // strip by strip, [tiles][rows of the strip]
  int32_t* row_sum;  // the same, or null
  int64_t tiles, units, tile_length;
};
void PackStripsI8Avx2(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
void PackStripsU4Avx2(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);

struct PanelsTarget {
  int8_t* data;
  int32_t* col_add;   // [tiles, padded]
  int32_t* col_sums;  // [tiles, padded] or null
  int64_t tiles, units, tile_length, padded;
};
void PackPanelsI8Reference(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
void PackPanelsI8Avx2(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
// These say whether all codes were in -8 … 7.
bool PackPanelsU4Reference(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
bool PackPanelsU4Avx2(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);

}  // namespace octavo::kernels
