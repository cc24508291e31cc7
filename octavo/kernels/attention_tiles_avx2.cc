#include "octavo/kernels/attention_tiles.h"

#include "octavo/kernels/attention_tile_avx2.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kLanes = 16, kKeys = 64;

// Turns z into p for eight lanes.
void Softmax8(float* z, float* m, float* l, float* factor) {
  const __m256 before = _mm256_load_ps(m);
  __m256 m0 = before, m1 = before, m2 = before, m3 = before;
  for (int64_t j = 0; j < kKeys; j += 4) {
    m0 = _mm256_max_ps(_mm256_load_ps(z + j * kLanes), m0);
    m1 = _mm256_max_ps(_mm256_load_ps(z + (j + 1) * kLanes), m1);
    m2 = _mm256_max_ps(_mm256_load_ps(z + (j + 2) * kLanes), m2);
    m3 = _mm256_max_ps(_mm256_load_ps(z + (j + 3) * kLanes), m3);
  }
  const __m256 now = _mm256_max_ps(_mm256_max_ps(m0, m1), _mm256_max_ps(m2, m3));
  const __m256 correction = ExpNotPositive8(_mm256_sub_ps(before, now));
  // Lane j of the sum takes keys j, j + 16, j + 32, j + 48; the fold starts with j and j + 8.
  __m256 sum[8];
  for (int64_t j = 0; j < 8; ++j) {
    __m256 pair[2];
    for (int64_t half = 0; half < 2; ++half) {
      __m256 lane = _mm256_setzero_ps();
      for (int64_t key = j + half * 8; key < kKeys; key += 16) {
        const __m256 e = ExpNotPositive8(_mm256_sub_ps(_mm256_load_ps(z + key * kLanes), now));
        _mm256_store_ps(z + key * kLanes, e);
        lane = _mm256_add_ps(lane, e);
      }
      pair[half] = lane;
    }
    sum[j] = _mm256_add_ps(pair[0], pair[1]);
  }
  for (int step = 4; step >= 1; step /= 2) {
    for (int j = 0; j < step; ++j) sum[j] = _mm256_add_ps(sum[j], sum[j + step]);
  }
  _mm256_store_ps(m, now);
  _mm256_store_ps(l, Fma8(_mm256_load_ps(l), correction, sum[0]));
  _mm256_store_ps(factor, correction);
}

void Softmax(float* z, float* m, float* l, float* factor) {
  for (int64_t half = 0; half < kLanes; half += 8) Softmax8(z + half, m + half, l + half, factor + half);
}

template <bool masked>
void Weigh8(const WeighArgs& g, int64_t half) {
  const __m256 lse = _mm256_load_ps(g.lse + half), d = _mm256_load_ps(g.d + half);
  __m256i first{}, last{};
  if constexpr (masked) {
    first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(g.first + half));
    last = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(g.last + half));
  }
  for (int64_t j = g.begin; j < g.end; ++j) {
    float *p_at = g.p + j * g.stride + half, *ds_at = g.ds + j * g.stride + half;
    __m256 p = ExpNotPositive8(_mm256_sub_ps(_mm256_load_ps(p_at), lse));
    __m256 ds = _mm256_mul_ps(p, _mm256_sub_ps(_mm256_load_ps(ds_at), d));
    if constexpr (masked) {
      const __m256i k = _mm256_set1_epi32(static_cast<int32_t>(g.k0 + j));
      const __m256 sees =
          _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(first, k), _mm256_cmpgt_epi32(last, k)));
      p = _mm256_and_ps(p, sees);
      ds = _mm256_and_ps(ds, sees);
    }
    _mm256_store_ps(p_at, p);
    _mm256_store_ps(ds_at, ds);
  }
}

void Weigh(const WeighArgs& args) {
  for (int64_t half = 0; half < kLanes; half += 8) {
    args.first == nullptr ? Weigh8<false>(args, half) : Weigh8<true>(args, half);
  }
}

}  // namespace

const AttentionTiles kAttentionTilesAvx2{kTileRows,
                                         TileColumn<AForm::kRows, Finish::kStore>,
                                         TileColumn<AForm::kRows, Finish::kAdd>,
                                         TileColumn<AForm::kRows, Finish::kResume>,
                                         TileColumn<AForm::kColumns, Finish::kAdd>,
                                         TileColumn<AForm::kColumns, Finish::kRescale>,
                                         Softmax,
                                         Weigh};

}  // namespace octavo::kernels
