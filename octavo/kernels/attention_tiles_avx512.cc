// The tiles of attention in AVX-512: up to 14 rows, a row of 16 columns is one register. The same chains and the same
// steps per lane as attention_tiles_avx2.cc.
#include <immintrin.h>

#include "octavo/kernels/attention_tiles.h"
#include "octavo/kernels/math.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kLanes = 16, kKeys = 64, kHeight = 14;

// One step of one row, as assembly: compilers would load the element first and run out of registers.
#define OCTAVO_ROW(r, element)                                                                       \
  if constexpr (R > r) {                                                                             \
    asm("vfmadd231ps %[a]%{1to16%}, %[b], %[x]" : [x] "+v"(x[r]) : [a] "m"(element), [b] "v"(line)); \
  }

template <int R, AForm form, Finish finish>
[[gnu::noinline]] void Tile(const TileArgs& g) {
  __m512 x[R];
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r) x[r] = finish == Finish::kResume ? _mm512_loadu_ps(g.c + r * g.ldc) : _mm512_setzero_ps();
  const float *a = g.a, *b = g.b;
  const int64_t lda = g.lda, ldb = g.ldb;
  // Row pointers by threes keep every address within base + index forms.
  const float *a3 = a + 3 * lda, *a6 = a + 6 * lda, *a9 = a + 9 * lda, *a12 = a + 12 * lda;
  for (int64_t k = 0; k < g.steps; ++k) {
    const __m512 line = _mm512_loadu_ps(b);
    if constexpr (form == AForm::kRows) {
      OCTAVO_ROW(0, a[0])
      OCTAVO_ROW(1, a[lda])
      OCTAVO_ROW(2, a[2 * lda])
      OCTAVO_ROW(3, a3[0])
      OCTAVO_ROW(4, a3[lda])
      OCTAVO_ROW(5, a3[2 * lda])
      OCTAVO_ROW(6, a6[0])
      OCTAVO_ROW(7, a6[lda])
      OCTAVO_ROW(8, a6[2 * lda])
      OCTAVO_ROW(9, a9[0])
      OCTAVO_ROW(10, a9[lda])
      OCTAVO_ROW(11, a9[2 * lda])
      OCTAVO_ROW(12, a12[0])
      OCTAVO_ROW(13, a12[lda])
      ++a, ++a3, ++a6, ++a9, ++a12;
    } else {
      OCTAVO_ROW(0, a[0])
      OCTAVO_ROW(1, a[1])
      OCTAVO_ROW(2, a[2])
      OCTAVO_ROW(3, a[3])
      OCTAVO_ROW(4, a[4])
      OCTAVO_ROW(5, a[5])
      OCTAVO_ROW(6, a[6])
      OCTAVO_ROW(7, a[7])
      OCTAVO_ROW(8, a[8])
      OCTAVO_ROW(9, a[9])
      OCTAVO_ROW(10, a[10])
      OCTAVO_ROW(11, a[11])
      OCTAVO_ROW(12, a[12])
      OCTAVO_ROW(13, a[13])
      a += lda;
    }
    b += ldb;
  }
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r) {
    float* at = g.c + r * g.ldc;
    if constexpr (finish == Finish::kAdd) x[r] = _mm512_add_ps(_mm512_loadu_ps(at), x[r]);
    if constexpr (finish == Finish::kRescale) {
      x[r] = _mm512_fmadd_ps(_mm512_loadu_ps(at), _mm512_set1_ps(g.factor[r]), x[r]);
    }
    _mm512_storeu_ps(at, x[r]);
  }
}

#undef OCTAVO_ROW

// All tiles of C[rows, 16].
template <AForm form, Finish finish>
void Column(int64_t rows, TileArgs g) {
  using Function = void (*)(const TileArgs&);
  constexpr Function kTile[kHeight] = {Tile<1, form, finish>,  Tile<2, form, finish>,  Tile<3, form, finish>,
                                       Tile<4, form, finish>,  Tile<5, form, finish>,  Tile<6, form, finish>,
                                       Tile<7, form, finish>,  Tile<8, form, finish>,  Tile<9, form, finish>,
                                       Tile<10, form, finish>, Tile<11, form, finish>, Tile<12, form, finish>,
                                       Tile<13, form, finish>, Tile<14, form, finish>};
  while (rows > 0) {
    const int height = TileHeight(rows, kHeight);
    kTile[height - 1](g);
    g.a += form == AForm::kRows ? height * g.lda : height;
    g.c += height * g.ldc;
    if constexpr (finish == Finish::kRescale) g.factor += height;
    rows -= height;
  }
}

// ExpNotPositive8 of math_avx2.h on sixteen lanes.
inline __attribute__((always_inline)) __m512 ExpNotPositive16(__m512 x) {
  const __m512 round = _mm512_set1_ps(math::kRound + 127.0f);
  const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(math::kLog2e), round);
  const __m512 n = _mm512_sub_ps(t, round);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(math::kLn2Hi), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(math::kLn2Lo), r);
  __m512 q = _mm512_set1_ps(math::kExp[4]);
  for (int i = 3; i >= 0; --i) q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(math::kExp[i]));
  const __m512 p = _mm512_add_ps(_mm512_set1_ps(1.0f), _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r));
  const __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23));
  return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(math::kExpLow), _CMP_NLT_UQ), p, scale);
}

void Softmax(float* z, float* m, float* l, float* factor) {
  const __m512 before = _mm512_loadu_ps(m);
  __m512 m0 = before, m1 = before, m2 = before, m3 = before;
  for (int64_t j = 0; j < kKeys; j += 4) {
    m0 = _mm512_max_ps(_mm512_loadu_ps(z + j * kLanes), m0);
    m1 = _mm512_max_ps(_mm512_loadu_ps(z + (j + 1) * kLanes), m1);
    m2 = _mm512_max_ps(_mm512_loadu_ps(z + (j + 2) * kLanes), m2);
    m3 = _mm512_max_ps(_mm512_loadu_ps(z + (j + 3) * kLanes), m3);
  }
  const __m512 now = _mm512_max_ps(_mm512_max_ps(m0, m1), _mm512_max_ps(m2, m3));
  const __m512 correction = ExpNotPositive16(_mm512_sub_ps(before, now));
  // Sum j takes keys j, j + 16, j + 32, j + 48; the fold starts with j and j + 8.
  __m512 sum[8];
  for (int64_t j = 0; j < 8; ++j) {
    __m512 pair[2];
    for (int64_t half = 0; half < 2; ++half) {
      __m512 lane = _mm512_setzero_ps();
      for (int64_t key = j + half * 8; key < kKeys; key += 16) {
        const __m512 e = ExpNotPositive16(_mm512_sub_ps(_mm512_loadu_ps(z + key * kLanes), now));
        _mm512_storeu_ps(z + key * kLanes, e);
        lane = _mm512_add_ps(lane, e);
      }
      pair[half] = lane;
    }
    sum[j] = _mm512_add_ps(pair[0], pair[1]);
  }
  for (int step = 4; step >= 1; step /= 2) {
    for (int j = 0; j < step; ++j) sum[j] = _mm512_add_ps(sum[j], sum[j + step]);
  }
  _mm512_storeu_ps(m, now);
  _mm512_storeu_ps(l, _mm512_fmadd_ps(_mm512_loadu_ps(l), correction, sum[0]));
  _mm512_storeu_ps(factor, correction);
}

void Weigh(const WeighArgs& g) {
  const __m512 lse = _mm512_loadu_ps(g.lse), d = _mm512_loadu_ps(g.d);
  const bool masked = g.first != nullptr;
  const __m512i first = masked ? _mm512_loadu_si512(g.first) : _mm512_setzero_si512();
  const __m512i last = masked ? _mm512_loadu_si512(g.last) : _mm512_setzero_si512();
  __mmask16 sees = 0xFFFF;
  for (int64_t j = g.begin; j < g.end; ++j) {
    float *p_at = g.p + j * g.stride, *ds_at = g.ds + j * g.stride;
    if (masked) {
      const __m512i k = _mm512_set1_epi32(static_cast<int32_t>(g.k0 + j));
      sees = _mm512_mask_cmpgt_epi32_mask(_mm512_cmple_epi32_mask(first, k), last, k);
    }
    const __m512 p = ExpNotPositive16(_mm512_sub_ps(_mm512_loadu_ps(p_at), lse));
    const __m512 ds = _mm512_maskz_mul_ps(sees, p, _mm512_sub_ps(_mm512_loadu_ps(ds_at), d));
    _mm512_storeu_ps(p_at, _mm512_maskz_mov_ps(sees, p));
    _mm512_storeu_ps(ds_at, ds);
  }
}

}  // namespace

const AttentionTiles kAttentionTilesAvx512{kHeight,
                                           Column<AForm::kRows, Finish::kStore>,
                                           Column<AForm::kRows, Finish::kAdd>,
                                           Column<AForm::kRows, Finish::kResume>,
                                           Column<AForm::kColumns, Finish::kAdd>,
                                           Column<AForm::kColumns, Finish::kRescale>,
                                           Softmax,
                                           Weigh};

}  // namespace octavo::kernels
