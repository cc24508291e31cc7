// Rounding to bf16 that leaves the number in f32, for *_avx2.cc units. Internal linkage throughout.
#pragma once

#include <immintrin.h>

namespace octavo::kernels {
namespace {

// To nearest, ties to even. NaN becomes quiet and keeps the upper bits of its payload.
inline __m256 RoundBF16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_blendv_epi8(up, quiet, nan), _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
}

}  // namespace
}  // namespace octavo::kernels
