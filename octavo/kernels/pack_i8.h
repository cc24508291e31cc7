// Packed int8 operands. Panels hold the right operand [K, N], the one copy of a weight that both the big product and
// the matrix-vector form stream: [N/16][K/2][16][2] int8, 16 columns and 2 steps of K together, because vpmaddwd sums
// pairs. Columns past N and steps past K (or past a tile) are zero. Strips hold the left operand [M, K] as int16 pairs,
// [M/6][K/2][6][2], made inside a product and small.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/view.h"

namespace octavo::kernels {

inline constexpr int kPanelColumns = 16;
inline constexpr int kStripRows = 6;

// `tile` cuts K; each tile starts at an even packed step. 0: K is one tile.
struct PanelsI8 {
  const int8_t* data = nullptr;       // 32-byte aligned is faster
  const int32_t* col_sums = nullptr;  // [tiles, columns padded to 16], needed only by row zero points
  int64_t k = 0, n = 0, tile = 0;
};

// How K is cut: `count` tiles of `length` (the last may be shorter), each `steps` packed pairs.
struct TileCut {
  int64_t count, length, steps;
  int64_t Length(int64_t tile, int64_t k) const { return k - tile * length < length ? k - tile * length : length; }
};
TileCut CutTiles(int64_t k, int64_t tile);

int64_t PanelsI8Bytes(int64_t k, int64_t n, int64_t tile);
int64_t PanelsI8Sums(int64_t k, int64_t n, int64_t tile);  // elements of col_sums

// Packs b [K, N] (any strides; fast when one is 1) into `data` and, unless null, its column sums.
PanelsI8 PackPanelsI8(ThreadPool& pool, Isa isa, MatrixView<const int8_t> b, int64_t tile, int8_t* data,
                      int32_t* col_sums);

// The code of element (k, n) of packed panels.
int8_t PanelsI8Code(const PanelsI8& panels, int64_t k, int64_t n);

}  // namespace octavo::kernels
