// Packed int8 operands. Panels hold the right operand [K, N], the one copy of a weight that both the big product and
// the matrix-vector form stream: [N/16][K/2][16][2] int8, 16 columns and 2 steps of K together, because vpmaddwd sums
// pairs. Columns past N and steps past K (or past a tile) are zero. The left operand is packed inside a product.
//
// The product multiplies half as often as it seems to, with Winograd's identity for inner products: two steps apart,
//   a0 b0 + a2 b2 = (a0 + b2) (a2 + b0) - a0 a2 - b0 b2,
// and the last two terms, summed over K, are constants of a row and of a column ("cross sums"). Sums wrap modulo 2^32
// on the way and the exact result fits, so nothing is lost; additions have twice the ports of multiplications.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/int_block.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/view.h"

namespace octavo::kernels {

// `data` points to PanelsI8Bytes() bytes: the panels, then minus the cross sums [tiles, columns padded to 16] int32.
// Aligned to 64 bytes.
// `tile` cuts K; each tile starts at a new line of 4 steps. 0: K is one tile.
struct PanelsI8 {
  const int8_t* data = nullptr;
  const int32_t* col_sums = nullptr;  // [tiles, columns padded to 16], needed only by row zero points
  int64_t k = 0, n = 0, tile = 0;
};

// How K is cut: `count` tiles of `length` steps (the last may be shorter).
struct TileCut {
  int64_t count, length;
  int64_t Length(int64_t tile, int64_t k) const { return k - tile * length < length ? k - tile * length : length; }
  int64_t Units(int64_t steps_per_unit) const { return (length + steps_per_unit - 1) / steps_per_unit; }
};
TileCut CutTiles(int64_t k, int64_t tile);

int64_t PaddedColumns(int64_t n);                           // up to a multiple of 16
int64_t PanelsI8Bytes(int64_t k, int64_t n, int64_t tile);  // bytes of data, cross sums included
int64_t PanelsI8Sums(int64_t k, int64_t n, int64_t tile);   // elements of col_sums
const int32_t* CrossSums(const PanelsI8& panels);

// Packs b [K, N] (any strides; fast when one is 1) into `data` and, unless null, its column sums.
PanelsI8 PackPanelsI8(ThreadPool& pool, Isa isa, MatrixView<const int8_t> b, int64_t tile, int8_t* data,
                      int32_t* col_sums);

// The pieces of the above, for products that pack on the way: where things go, and the panels once they are there.
PanelsTarget TargetOfPanels(int64_t k, int64_t n, int64_t tile, int8_t* data, int32_t* col_sums);

// The code of element (k, n) of packed panels.
int8_t PanelsI8Code(const PanelsI8& panels, int64_t k, int64_t n);

}  // namespace octavo::kernels
