// The arithmetic of attention that depends on the instruction set, as a table of functions: products of register tiles
// and the elementwise parts of softmax, forward and backward. Everything around them (attention_forward_avx2.cc,
// attention_backward_avx2.cc) is the same for all. Plain structs; not for callers.
#pragma once

#include <cstdint>

namespace octavo::kernels {

// How A lies in memory: element (r, k) at r * lda + k, or at k * lda + r.
enum class AForm { kRows, kColumns };

// What happens with the chain x of an element of C.
enum class Finish {
  kStore,    // C = x
  kAdd,      // C = C + x
  kResume,   // the chain starts from C instead of +0; C = x
  kRescale,  // C = fma(C, factor[r], x)
};

// C[rows, 16] from A[rows, steps] and B[steps, 16], every element one ascending FMA chain.
struct TileArgs {
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  int64_t steps;
  const float* factor;  // [rows], kRescale only
};

// Scores and dp of 16 queries (lanes) and keys begin … end - 1 become p = exp(p - lse) and ds = p (ds - d); both 0
// where a lane does not see the key: lane i sees keys first[i] … last[i] - 1, key j being number k0 + j. No mask:
// first and last are null.
struct WeighArgs {
  float *p, *ds;
  int64_t stride;  // from key to key
  const float *lse, *d;
  int64_t begin, end, k0;
  const int32_t *first, *last;
};

struct AttentionTiles {
  int64_t height;  // most rows of one tile
  void (*rows_store)(int64_t rows, TileArgs args);
  void (*rows_add)(int64_t rows, TileArgs args);
  void (*rows_resume)(int64_t rows, TileArgs args);
  void (*columns_add)(int64_t rows, TileArgs args);
  void (*columns_rescale)(int64_t rows, TileArgs args);
  // z [64 keys][16 lanes] becomes p; updates m and l and gives the correction of what was summed before.
  void (*softmax)(float* z, float* m, float* l, float* factor);
  void (*weigh)(const WeighArgs& args);
};

extern const AttentionTiles kAttentionTilesAvx2, kAttentionTilesAvx512;

// Cuts rows into tiles of nearly equal height, `most` at most: 16 = 6 + 5 + 5, 64 = 9 * 6 + 2 * 5. One or two rows
// would not hide the latency of the FMAs.
static inline int TileHeight(int64_t rows, int64_t most) {
  const int64_t tiles = (rows + most - 1) / most;
  return static_cast<int>((rows + tiles - 1) / tiles);
}

}  // namespace octavo::kernels
