// Inside the F family: one thread's work, per instruction set. Plain structs, so that instruction-set units may include
// it.
// The blocked driver (matmul_f32_blocked.cc) cuts a product into these jobs.
#pragma once

#include <cstdint>

#include "octavo/kernels/float_source.h"

namespace octavo::kernels::internal {

inline constexpr int64_t kRowsOfTile = 6;         // a register tile is 6 x 16: twelve accumulators, two of B, two of A
inline constexpr int64_t kRowsOfTileAvx512 = 14;  // 14 x 32: twenty-eight accumulators, two of B, two of A
inline constexpr int64_t kColsOfTile = 16;        // of a panel of B

// Packed A: panels of 6 (or 14) rows, [panel][k][6]; packed B: panels of 16 columns, [panel][k][16]. Rows and columns
// past the edge are zero.
//
// Packs rows [row, row + rows) and columns [k0, k0 + depth) of `a` (rows a multiple of 6 or 14 except at the edge).
void PackRowsAvx2(const FloatSource& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* out);
void PackRowsAvx512(const FloatSource& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* out);
// Packs rows [k0, k0 + depth) and columns [col, col + cols) of `b`. Panel p goes to out + p * panel_stride.
void PackColsAvx2(const FloatSource& b, int64_t k0, int64_t depth, int64_t col, int64_t cols, float* out,
                  int64_t panel_stride);

// The end of a product for part of C; pointers are those of the part's first row and column.
struct FinishF32 {
  const float* row_scale = nullptr;
  const float* col_scale = nullptr;
  const float* bias = nullptr;
  int64_t row_scale_stride = 1, col_scale_stride = 1, bias_stride = 1;
  bool accumulate = false;
  Stored stored = Stored::kF32;
  void* c = nullptr;
  int64_t row_stride = 0, col_stride = 1;
};

// The same, `row` rows and `col` columns further. Static, so that no unit uses the code of another instruction set.
static inline FinishF32 FinishAt(const FinishF32& finish, int64_t row, int64_t col) {
  FinishF32 part = finish;
  if (part.row_scale != nullptr) part.row_scale += row * part.row_scale_stride;
  if (part.col_scale != nullptr) part.col_scale += col * part.col_scale_stride;
  if (part.bias != nullptr) part.bias += col * part.bias_stride;
  const int64_t bytes = part.stored == Stored::kF32 ? 4 : 2;
  part.c = static_cast<char*>(part.c) + (row * part.row_stride + col * part.col_stride) * bytes;
  return part;
}

// One leaf of a part of C: sums = A · B over `depth` <= 256, from packed panels.
struct LeafJob {
  const float* a = nullptr;  // panels of 6 or 14 rows, [depth][rows] each
  const float* b = nullptr;  // panels of 16 columns
  int64_t b_panel_stride = 0;
  int64_t rows = 0, cols = 0, depth = 0;
  float* partial = nullptr;  // sum of the leaves before this one; null when this is the first and the last
  int64_t partial_stride = 0;
  bool first = true, last = true;
  bool plain = true;  // on the last leaf: `partial` is C itself and there is nothing to finish
  FinishF32 finish;
};
void RunLeafAvx2(const LeafJob& job);
void RunLeafAvx512(const LeafJob& job);

// Small M: streams B once, unpacked. Columns [col, col + cols) of C = A · B for M <= kStreamRows; needs a unit stride
// in B. `a` holds A as [K][M] floats; `sums` is scratch of StreamScratch(M) floats.
inline constexpr int64_t kStreamRows = 8;
inline constexpr int64_t kStreamCols = 512;  // columns of one job at most
inline constexpr int64_t StreamScratch(int64_t rows) { return 2 * rows * kStreamCols; }

struct StreamJob {
  const float* a = nullptr;
  const float* b = nullptr;  // element (0, col)
  int64_t row_stride = 0, col_stride = 1;
  int64_t rows = 0, cols = 0, depth = 0;
  float* sums = nullptr;
  FinishF32 finish;
};
void RunStreamAvx2(const StreamJob& job);

// Applies the end of a product to sums[rows][cols] (row stride sums_stride).
void FinishAvx2(const FinishF32& finish, const float* sums, int64_t sums_stride, int64_t rows, int64_t cols);

}  // namespace octavo::kernels::internal
