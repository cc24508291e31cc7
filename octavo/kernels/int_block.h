// One block of an integer product with both operands packed: what the drivers (matmul_i8.cc, matmul_u4.cc) hand to the
// instruction-set units. Plain structs. Both families share the geometry: K is cut into tiles, a tile into units; a
// unit of the right operand is one line of 64 bytes for 16 columns (4 steps of int8, 8 of int4), the same for every
// instruction set. AVX2: a unit of the left operand is 8 bytes per row (4 int16 or 8 int8 steps) and a few rows make a
// strip [tiles][units][rows][8 bytes]. AVX-512: four int8 codes make an element, and 14 rows a strip [tiles][units][1
// or 2 elements][rows][4 bytes]. AMX: 16 rows make a strip [tiles][blocks][16 rows][steps of a block], see CutAmx.
#pragma once

#include <cstdint>

#include "octavo/kernels/scale_epilogue.h"

namespace octavo::kernels {

inline constexpr int kPanelColumns = 16;
inline constexpr int64_t kLineBytes = 64;    // one unit of a panel
inline constexpr int64_t kUnitRowBytes = 8;  // one unit of one row of a strip, AVX2
inline constexpr int kStripRowsI8 = 4, kStripRowsU4 = 6, kStripRowsAvx512 = 14, kStripRowsAmx = 16;
inline constexpr int64_t kDirectRowsAvx512 = 3 * kStripRowsAvx512;  // up to these, VNNI takes panels as they are
inline constexpr int64_t kStepsI8 = 4, kStepsU4 = 8;                // steps of K in a unit

struct IntBlock {
  const uint8_t* strips = nullptr;  // all strips of the rows below
  const uint8_t* panels = nullptr;
  int64_t rows = 0, cols = 0;  // of the packed operands; out and scales have the same columns
  int64_t first_row = 0;       // row 0 of the strips is this row of the output and of the row scales
  int64_t tiles = 0, units = 0;
  int64_t k = 0, tile_length = 0;  // to know how many steps a tile has, for two zero points
  bool ready = false;              // the panels have the form that the kernel multiplies (AMX only): see CutAmx
  // The exact sum is raw + row_add + col_add, then without the zero points; null adds nothing. Rows' constants lie
  // strip by strip, [tiles][rows of the strip]; columns' [tiles, padded columns].
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

// `scratch` is one worker's memory, of RectScratch() bytes.
void BlockI8Avx2(const IntBlock& block, const IntRect& rect, uint8_t* scratch);
void BlockU4Avx2(const IntBlock& block, const IntRect& rect, uint8_t* scratch);
void BlockI8Avx512(const IntBlock& block, const IntRect& rect, uint8_t* scratch);
void BlockU4Avx512(const IntBlock& block, const IntRect& rect, uint8_t* scratch);
void BlockI8Amx(const IntBlock& block, const IntRect& rect, uint8_t* scratch);
void BlockU4Amx(const IntBlock& block, const IntRect& rect, uint8_t* scratch);

// AVX-512 rewrites the panels of a rectangle to `decoded` lines per line, so many lines of a long K at a time.
static constexpr int64_t PieceLines(int64_t decoded) { return 2048 / decoded; }
// With few strips the panels come and go pair by pair, and the next pair is fetched from memory meanwhile.
static constexpr bool ByPairs(const IntBlock& block, int64_t decoded, int64_t strips) {
  return strips <= 5 && block.units * block.tiles <= PieceLines(decoded);
}
// Bytes that a rectangle of that many strips and panels needs.
static constexpr int64_t RectScratch(const IntBlock& block, int64_t decoded, int64_t strips, int64_t panels) {
  if (decoded == 0) return 0;
  if (ByPairs(block, decoded, strips)) panels = 2;
  const bool pieces = block.tiles == 1 && block.units > PieceLines(decoded);
  const int64_t lines = pieces ? PieceLines(decoded) : block.tiles * block.units;
  const int64_t waiting = pieces ? strips * ((panels + 1) / 2) * kStripRowsAvx512 * 2 * kPanelColumns * 4 : 0;
  return panels * lines * decoded * kLineBytes + waiting;
}

// AMX multiplies blocks of up to 16 decoded lines (64 steps of K). A tile of K is cut into `blocks` of `lines` lines;
// the steps past its end are zeros in the strips, so what the panels hold there does not matter. Panels:
// [panels][tiles] [blocks][lines][64 bytes], decoded.
struct AmxCut {
  int64_t lines, blocks;
  constexpr int64_t row_bytes() const { return lines * 4; }             // of one row of a block
  constexpr int64_t block_bytes() const { return lines * kLineBytes; }  // of a block, of strips and of panels
  constexpr int64_t tile_bytes() const { return blocks * block_bytes(); }
};
static constexpr AmxCut CutAmx(int64_t decoded_lines) {
  return {decoded_lines < 16 ? decoded_lines : 16, (decoded_lines + 15) / 16};
}
// Blocks of a long K in one tile that are multiplied together, so that a pair of strips stays in the first cache. The
// int32 sums of a rectangle wait meanwhile, in squares of 32 rows x 32 columns.
inline constexpr int64_t kAmxPiece = 8, kAmxSquareBytes = 32 * 32 * 4;
// With few strips the panels come and go pair by pair, and the next pair is fetched from memory meanwhile.
static constexpr bool ByPairsAmx(const IntBlock& block, int64_t strips) {
  return strips <= 8 && block.tiles == 1 && !block.ready;
}
static constexpr int64_t RectScratchAmx(const IntBlock& block, int64_t decoded, int64_t strips, int64_t panels) {
  const AmxCut cut = CutAmx(block.units * decoded);
  if (ByPairsAmx(block, strips)) return 2 * cut.tile_bytes();
  const bool pieces = block.tiles == 1 && cut.blocks > kAmxPiece;
  const int64_t bytes = pieces ? kAmxPiece * cut.block_bytes() : block.tiles * cut.tile_bytes();
  const int64_t waiting = pieces ? ((strips + 1) / 2) * ((panels + 1) / 2) * kAmxSquareBytes : 0;
  return (block.ready ? 0 : panels * bytes) + waiting;
}

// Packing, in pieces: strips or panels begin … end. `add` holds minus the cross sums (pack_i8.h) for int8 in AVX2, and
// minus the offset of the weights (8, or 128 with VNNI) times the row's sum elsewhere; AMX multiplies signed codes and
// needs none.
struct StripsTarget {
  uint8_t* strips;
  int32_t* row_add;  // strip by strip, [tiles][rows of the strip]
  int32_t* row_sum;  // the same, or null
  int64_t tiles, units, tile_length;
};
void PackStripsI8Avx2(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
void PackStripsU4Avx2(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
void PackStripsI8Avx512(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
void PackStripsU4Avx512(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
void PackStripsI8Amx(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
void PackStripsU4Amx(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);

struct PanelsTarget {
  int8_t* data;
  int32_t* col_add;   // [tiles, padded]; AMX: null
  int32_t* col_sums;  // [tiles, padded] or null
  int64_t tiles, units, tile_length, padded;
};
void PackPanelsI8Reference(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
void PackPanelsI8Avx2(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
// Straight to the form that AMX multiplies, for an operand that is used once.
void PackPanelsI8Amx(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
// These say whether all codes were in -8 … 7.
bool PackPanelsU4Reference(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
bool PackPanelsU4Avx2(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);

}  // namespace octavo::kernels
