// The register tile of attention: C[R, 16] from A[R, steps] and B[steps, 16], R = 1 … 6, every element one ascending
// FMA chain. All products of attention, forward and backward, are made of it. For attention_*_avx2.cc only.
//
// A row of the tile is one piece of inline assembly (broadcast, two FMAs) over named accumulators: from intrinsics
// alone both compilers spill or reorder the twelve accumulators in some of the forms.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/attention_tiles.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kTileRows = 6;

// One step of one row.
#define OCTAVO_TILE_ROW(r, element)                      \
  if constexpr (R > r) {                                 \
    asm("vbroadcastss %[a], %[t]\n\t"                    \
        "vfmadd231ps %[b0], %[t], %[x]\n\t"              \
        "vfmadd231ps %[b1], %[t], %[y]"                  \
        : [x] "+x"(x##r), [y] "+x"(y##r), [t] "=&x"(t)   \
        : [a] "m"(element), [b0] "x"(b0), [b1] "x"(b1)); \
  }

#define OCTAVO_TILE_BEGIN(r)                          \
  if constexpr (R > r && finish == Finish::kResume) { \
    x##r = _mm256_load_ps(g.c + r * g.ldc);           \
    y##r = _mm256_load_ps(g.c + r * g.ldc + 8);       \
  }

#define OCTAVO_TILE_END(r)                                     \
  if constexpr (R > r) {                                       \
    float* at = g.c + r * g.ldc;                               \
    if constexpr (finish == Finish::kAdd) {                    \
      x##r = _mm256_add_ps(_mm256_load_ps(at), x##r);          \
      y##r = _mm256_add_ps(_mm256_load_ps(at + 8), y##r);      \
    }                                                          \
    if constexpr (finish == Finish::kRescale) {                \
      const __m256 f = _mm256_broadcast_ss(g.factor + r);      \
      x##r = _mm256_fmadd_ps(_mm256_load_ps(at), f, x##r);     \
      y##r = _mm256_fmadd_ps(_mm256_load_ps(at + 8), f, y##r); \
    }                                                          \
    _mm256_store_ps(at, x##r);                                 \
    _mm256_store_ps(at + 8, y##r);                             \
  }

#define OCTAVO_TILE_ALL(macro) macro(0) macro(1) macro(2) macro(3) macro(4) macro(5)

template <int R, AForm form, Finish finish>
[[gnu::noinline]] void Tile(const TileArgs& g) {
  const __m256 zero = _mm256_setzero_ps();
  __m256 x0 = zero, x1 = zero, x2 = zero, x3 = zero, x4 = zero, x5 = zero;
  __m256 y0 = zero, y1 = zero, y2 = zero, y3 = zero, y4 = zero, y5 = zero;
  OCTAVO_TILE_ALL(OCTAVO_TILE_BEGIN)
  const float *a = g.a, *b = g.b;
  const int64_t lda = g.lda, ldb = g.ldb;
  // Row pointers by threes keep every address within base + index forms.
  const float* a3 = a + 3 * lda;
  for (int64_t k = 0; k < g.steps; ++k) {
    const __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
    __m256 t;
    if constexpr (form == AForm::kRows) {
      OCTAVO_TILE_ROW(0, a[0])
      OCTAVO_TILE_ROW(1, a[lda])
      OCTAVO_TILE_ROW(2, a[2 * lda])
      OCTAVO_TILE_ROW(3, a3[0])
      OCTAVO_TILE_ROW(4, a3[lda])
      OCTAVO_TILE_ROW(5, a3[2 * lda])
      ++a;
      ++a3;
    } else {
      OCTAVO_TILE_ROW(0, a[0])
      OCTAVO_TILE_ROW(1, a[1])
      OCTAVO_TILE_ROW(2, a[2])
      OCTAVO_TILE_ROW(3, a[3])
      OCTAVO_TILE_ROW(4, a[4])
      OCTAVO_TILE_ROW(5, a[5])
      a += lda;
    }
    b += ldb;
  }
  OCTAVO_TILE_ALL(OCTAVO_TILE_END)
}

#undef OCTAVO_TILE_ROW
#undef OCTAVO_TILE_BEGIN
#undef OCTAVO_TILE_END
#undef OCTAVO_TILE_ALL

template <AForm form, Finish finish>
void TileOf(int rows, const TileArgs& g) {
  switch (rows) {
    case 6:
      return Tile<6, form, finish>(g);
    case 5:
      return Tile<5, form, finish>(g);
    case 4:
      return Tile<4, form, finish>(g);
    case 3:
      return Tile<3, form, finish>(g);
    case 2:
      return Tile<2, form, finish>(g);
    default:
      return Tile<1, form, finish>(g);
  }
}

// All tiles of C[rows, 16].
template <AForm form, Finish finish>
void TileColumn(int64_t rows, TileArgs g) {
  while (rows > 0) {
    const int height = TileHeight(rows, kTileRows);
    TileOf<form, finish>(height, g);
    g.a += form == AForm::kRows ? height * g.lda : height;
    g.c += height * g.ldc;
    if constexpr (finish == Finish::kRescale) g.factor += height;
    rows -= height;
  }
}

}  // namespace
}  // namespace octavo::kernels
