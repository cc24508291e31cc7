// reductions.h: magnitudes as integers, sums in sixteen double lanes (four registers).
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/reductions_rows.h"

namespace octavo::kernels {
namespace {

inline uint32_t LargestLane(__m256i v) {
  const __m128i four = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1))));
}

// Four elements as they are stored, as doubles.
inline __m256d Load4(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
inline __m256d Load4(const uint16_t* p) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(codes), 16)));
}

template <bool kSquares>
inline __m256d AddTo(__m256d sum, __m256d v) {
  return kSquares ? _mm256_fmadd_pd(v, v, sum) : _mm256_add_pd(sum, v);  // the product is exact either way
}

template <typename E, bool kSquares>
double ChunkSum(const typename E::Type* x, int64_t count) {
  __m256d sum[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
  int64_t at = 0;
  for (; at + 16 <= count; at += 16) {
    for (int q = 0; q < 4; ++q) sum[q] = AddTo<kSquares>(sum[q], Load4(x + at + 4 * q));
  }
  if (at < count) {
    typename E::Type rest[16] = {};
    for (int64_t i = at; i < count; ++i) rest[i - at] = x[i];
    for (int q = 0; q < 4; ++q) sum[q] = AddTo<kSquares>(sum[q], Load4(rest + 4 * q));
  }
  const __m256d low = _mm256_add_pd(sum[0], sum[2]), high = _mm256_add_pd(sum[1], sum[3]);
  const __m256d four = _mm256_add_pd(low, high);
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two))) + 0.0;
}

}  // namespace

uint32_t AbsMaxBitsAvx2(const ConstRows& x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  WithElement8(x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = 0; r < x.rows; ++r) {
      const auto* row = RowOf<E>(x, r);
      ForLanes(x.cols, [&](int64_t at, auto io, int half) {
        const __m256i bits = _mm256_castps_si256(io.template Load<E>(row + at));
        largest[half] = _mm256_max_epu32(largest[half], _mm256_and_si256(bits, magnitude));
      });
    }
  });
  return LargestLane(_mm256_max_epu32(largest[0], largest[1]));
}

double ChunkSumAvx2(SumOf what, const void* x, DType dtype, int64_t count) {
  double sum = 0;
  WithElement8(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* values = static_cast<const typename E::Type*>(x);
    sum = what == SumOf::kSquares ? ChunkSum<E, true>(values, count) : ChunkSum<E, false>(values, count);
  });
  return sum;
}

}  // namespace octavo::kernels
