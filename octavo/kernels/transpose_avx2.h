// Transposing 8 x 8 floats in registers, for the *_avx2.cc units that read B along K. Internal linkage throughout.
#pragma once

#include <immintrin.h>

namespace octavo::kernels {
namespace {

// v[i] lane j becomes v[j] lane i.
inline void Transpose8x8(__m256 (&v)[8]) {
  const __m256 a0 = _mm256_unpacklo_ps(v[0], v[1]), a1 = _mm256_unpackhi_ps(v[0], v[1]);
  const __m256 a2 = _mm256_unpacklo_ps(v[2], v[3]), a3 = _mm256_unpackhi_ps(v[2], v[3]);
  const __m256 a4 = _mm256_unpacklo_ps(v[4], v[5]), a5 = _mm256_unpackhi_ps(v[4], v[5]);
  const __m256 a6 = _mm256_unpacklo_ps(v[6], v[7]), a7 = _mm256_unpackhi_ps(v[6], v[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
  v[0] = _mm256_permute2f128_ps(b0, b4, 0x20), v[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
  v[1] = _mm256_permute2f128_ps(b1, b5, 0x20), v[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
  v[2] = _mm256_permute2f128_ps(b2, b6, 0x20), v[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
  v[3] = _mm256_permute2f128_ps(b3, b7, 0x20), v[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

}  // namespace
}  // namespace octavo::kernels
