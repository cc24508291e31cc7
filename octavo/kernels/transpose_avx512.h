// Rows of 4-byte elements to strips: what packing the left operand of every AVX-512 product comes down to (floats, or
// four int8 codes at a time). For *_avx512.cc and *_amx.cc units only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo::kernels {
namespace {

// v[i] lane j becomes v[j] lane i.
inline void Transpose16x16(__m512i (&v)[16]) {
  __m512i t[16], u[16];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  // u[4 g + j]: rows 4 g … 4 g + 3 of the columns j, 4 + j, 8 + j, 12 + j.
  for (int g = 0; g < 4; ++g) {
    u[4 * g] = _mm512_unpacklo_epi64(t[4 * g], t[4 * g + 2]);
    u[4 * g + 1] = _mm512_unpackhi_epi64(t[4 * g], t[4 * g + 2]);
    u[4 * g + 2] = _mm512_unpacklo_epi64(t[4 * g + 1], t[4 * g + 3]);
    u[4 * g + 3] = _mm512_unpackhi_epi64(t[4 * g + 1], t[4 * g + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x44),
                  high01 = _mm512_shuffle_i32x4(u[j], u[4 + j], 0xEE);
    const __m512i low23 = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0xEE);
    v[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    v[4 + j] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    v[8 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    v[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
}

// Bytes [0, count) of a line; count may be less than 0 or more than 64.
inline __mmask64 FirstBytes(int64_t count) {
  if (count >= 64) return ~__mmask64{0};
  return count <= 0 ? 0 : (__mmask64{1} << count) - 1;
}
inline __mmask16 FirstLanes(int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1u << (count < 0 ? 0 : count)) - 1);
}

// `rows` <= 16 rows of `bytes` bytes each, contiguous, to [units][rows] elements of 4 bytes, zeros past the end of a
// row. Calls each(elements of all rows at one step) on the way.
template <typename Each>
inline void PackElements(const uint8_t* from, int64_t row_stride, int64_t rows, int64_t bytes, int64_t units,
                         uint8_t* to, const Each& each) {
  const __mmask16 inside = FirstLanes(rows);
  for (int64_t unit = 0; unit < units; unit += 16) {
    const __mmask64 mask = FirstBytes(bytes - unit * 4);
    __m512i v[16];
    for (int r = 0; r < 16; ++r) {
      v[r] = r < rows ? _mm512_maskz_loadu_epi8(mask, from + r * row_stride + unit * 4) : _mm512_setzero_si512();
    }
    Transpose16x16(v);
    uint8_t* at = to + unit * rows * 4;
#pragma GCC unroll 16
    for (int u = 0; u < 16; ++u) {
      if (unit + u >= units) break;
      _mm512_mask_storeu_epi32(at + u * rows * 4, inside, v[u]);
      each(v[u]);
    }
  }
}

}  // namespace
}  // namespace octavo::kernels
