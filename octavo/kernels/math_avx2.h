// The functions of math.h on eight floats (AVX2, FMA), the same bits in every lane. For *_avx2.cc units only. A change
// here without the same change there fails math_test.cc.
#pragma once

#include <immintrin.h>

#include "octavo/kernels/math.h"

#define OCTAVO_INLINE [[gnu::always_inline]] static inline

namespace octavo::kernels {

OCTAVO_INLINE __m256 Fma8(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
OCTAVO_INLINE __m256 Fill8(float x) { return _mm256_set1_ps(x); }
OCTAVO_INLINE __m256 SignOf8(__m256 x) { return _mm256_and_ps(x, Fill8(-0.0f)); }
OCTAVO_INLINE __m256 Abs8(__m256 x) { return _mm256_andnot_ps(Fill8(-0.0f), x); }
// mask ? a : b, by the sign bit of each lane of `mask`
OCTAVO_INLINE __m256 Select8(__m256 mask, __m256 a, __m256 b) { return _mm256_blendv_ps(b, a, mask); }
OCTAVO_INLINE __m256 Less8(__m256 a, __m256 b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }

// e^c before the scaling by 2^n; *t keeps n in its low bits.
OCTAVO_INLINE __m256 ExpMantissa8(__m256 c, __m256 round, __m256* t) {
  *t = Fma8(c, Fill8(math::kLog2e), round);
  const __m256 n = _mm256_sub_ps(*t, round);
  __m256 r = _mm256_fnmadd_ps(n, Fill8(math::kLn2Hi), c);
  r = _mm256_fnmadd_ps(n, Fill8(math::kLn2Lo), r);
  __m256 q = Fill8(math::kExp[4]);
  q = Fma8(q, r, Fill8(math::kExp[3]));
  q = Fma8(q, r, Fill8(math::kExp[2]));
  q = Fma8(q, r, Fill8(math::kExp[1]));
  q = Fma8(q, r, Fill8(math::kExp[0]));
  return _mm256_add_ps(Fill8(1.0f), Fma8(_mm256_mul_ps(r, r), q, r));
}

OCTAVO_INLINE __m256 Exp8(__m256 x) {
  const __m256 c = _mm256_min_ps(Fill8(math::kExpHigh), _mm256_max_ps(Fill8(math::kExpLow), x));
  __m256 t;
  const __m256 p = ExpMantissa8(c, Fill8(math::kRound), &t);
  const __m256i whole = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(Fill8(math::kRound)));
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i scale0 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i scale1 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  const __m256 y = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(scale0)), _mm256_castsi256_ps(scale1));
  return _mm256_andnot_ps(Less8(x, Fill8(math::kExpLow)), y);
}

// Exp8 for x < 88 (or NaN), the case of softmax, where x is at most a rounding error above 0: one scaling is enough.
// Same bits as Exp8 there, no meaning beyond.
OCTAVO_INLINE __m256 ExpNotPositive8(__m256 x) {
  __m256 t;
  const __m256 p = ExpMantissa8(x, Fill8(math::kRound + 127.0f), &t);  // the low bits of t are n + 127 at once
  const __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
  return _mm256_andnot_ps(Less8(x, Fill8(math::kExpLow)), _mm256_mul_ps(p, scale));
}

OCTAVO_INLINE __m256 Log8(__m256 x) {
  const __m256i origin = _mm256_set1_epi32(math::kSqrtHalfBits);
  const __m256i above = _mm256_sub_epi32(_mm256_castps_si256(x), origin);
  const __m256 e = _mm256_cvtepi32_ps(_mm256_srai_epi32(above, 23));
  const __m256i mantissa = _mm256_add_epi32(_mm256_and_si256(above, _mm256_set1_epi32(0x007fffff)), origin);
  const __m256 f = _mm256_sub_ps(_mm256_castsi256_ps(mantissa), Fill8(1.0f));
  __m256 q = Fill8(math::kLog[8]);
  for (int i = 7; i >= 0; --i) q = Fma8(q, f, Fill8(math::kLog[i]));
  const __m256 square = _mm256_mul_ps(f, f);
  __m256 y = _mm256_mul_ps(_mm256_mul_ps(f, square), q);
  y = Fma8(e, Fill8(math::kLn2Lo), y);
  y = Fma8(Fill8(-0.5f), square, y);
  __m256 result = Fma8(e, Fill8(math::kLn2Hi), _mm256_add_ps(f, y));
  result = Select8(Less8(x, Fill8(math::kMinNormal)), Fill8(-__builtin_inff()), result);
  result = Select8(_mm256_cmp_ps(x, Fill8(-math::kMinNormal), _CMP_LE_OQ), Fill8(__builtin_nanf("")), result);
  return Select8(Less8(x, Fill8(__builtin_inff())), result, x);
}

OCTAVO_INLINE __m256 Tanh8(__m256 x) {
  const __m256 a = Abs8(x);
  const __m256 square = _mm256_mul_ps(a, a);
  __m256 q = Fill8(math::kTanh[4]);
  for (int i = 3; i >= 0; --i) q = Fma8(q, square, Fill8(math::kTanh[i]));
  const __m256 small = Fma8(_mm256_mul_ps(a, square), q, a);
  const __m256 e = Exp8(_mm256_add_ps(a, a));
  const __m256 one = Fill8(1.0f);
  const __m256 large = _mm256_sub_ps(one, _mm256_div_ps(Fill8(2.0f), _mm256_add_ps(e, one)));
  return _mm256_or_ps(Abs8(Select8(Less8(a, Fill8(math::kTanhSmall)), small, large)), SignOf8(x));
}

OCTAVO_INLINE __m256 Sigmoid8(__m256 x) {
  const __m256 e = ExpNotPositive8(_mm256_or_ps(x, Fill8(-0.0f)));
  const __m256 one = Fill8(1.0f);
  return _mm256_div_ps(Select8(Less8(x, _mm256_setzero_ps()), e, one), _mm256_add_ps(one, e));
}

OCTAVO_INLINE __m256 Erf8(__m256 x) {
  const __m256 a = Abs8(x);
  const __m256 square = _mm256_mul_ps(a, a);
  __m256 q = Fill8(math::kErfSmall[5]);
  for (int i = 4; i >= 0; --i) q = Fma8(q, square, Fill8(math::kErfSmall[i]));
  const __m256 small = Fma8(a, q, a);
  const __m256 t = _mm256_min_ps(Fill8(math::kErfOne), a);
  __m256 u = Fill8(math::kErfLarge[6]);
  for (int i = 5; i >= 0; --i) u = Fma8(u, t, Fill8(math::kErfLarge[i]));
  const __m256 power = _mm256_xor_ps(Fma8(t, u, t), Fill8(-0.0f));
  const __m256 large = _mm256_sub_ps(Fill8(1.0f), ExpNotPositive8(power));
  return _mm256_or_ps(Abs8(Select8(Less8(a, Fill8(math::kErfSplit)), small, large)), SignOf8(x));
}

struct SinCos4Result {
  __m256d sin, cos;
};

// SinCos64 on four doubles.
OCTAVO_INLINE SinCos4Result SinCos4(__m256d x) {
  const __m256d round = _mm256_set1_pd(math::kRound64);
  const __m256d t = _mm256_fmadd_pd(x, _mm256_set1_pd(math::kTwoOverPi), round);
  const __m256d n = _mm256_sub_pd(t, round);
  __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(math::kHalfPiHi), x);
  r = _mm256_fnmadd_pd(n, _mm256_set1_pd(math::kHalfPiLo), r);
  const __m256d square = _mm256_mul_pd(r, r);
  __m256d p = _mm256_set1_pd(math::kSin[5]), q = _mm256_set1_pd(math::kCos[5]);
  for (int i = 4; i >= 0; --i) {
    p = _mm256_fmadd_pd(p, square, _mm256_set1_pd(math::kSin[i]));
    q = _mm256_fmadd_pd(q, square, _mm256_set1_pd(math::kCos[i]));
  }
  const __m256d s = _mm256_fmadd_pd(_mm256_mul_pd(r, square), p, r);
  const __m256d base = _mm256_fmadd_pd(square, _mm256_set1_pd(-0.5), _mm256_set1_pd(1.0));
  const __m256d c = _mm256_fmadd_pd(_mm256_mul_pd(square, square), q, base);
  const __m256i quarter = _mm256_castpd_si256(t);
  const __m256d odd = _mm256_castsi256_pd(_mm256_slli_epi64(quarter, 63));
  const __m256i two = _mm256_set1_epi64x(2);
  const __m256i next = _mm256_add_epi64(quarter, _mm256_set1_epi64x(1));
  const __m256d sin_sign = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_and_si256(quarter, two), 62));
  const __m256d cos_sign = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_and_si256(next, two), 62));
  const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
  const __m256d inside = _mm256_cmp_pd(magnitude, _mm256_set1_pd(math::kTrigLimit), _CMP_LE_OQ);
  const __m256d nan = _mm256_set1_pd(__builtin_nan(""));
  return {_mm256_blendv_pd(nan, _mm256_xor_pd(_mm256_blendv_pd(s, c, odd), sin_sign), inside),
          _mm256_blendv_pd(nan, _mm256_xor_pd(_mm256_blendv_pd(c, s, odd), cos_sign), inside)};
}

OCTAVO_INLINE __m256 Sin8(__m256 x) {
  const __m128 low = _mm256_cvtpd_ps(SinCos4(_mm256_cvtps_pd(_mm256_castps256_ps128(x))).sin);
  const __m128 high = _mm256_cvtpd_ps(SinCos4(_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))).sin);
  return _mm256_set_m128(high, low);
}

OCTAVO_INLINE __m256 Cos8(__m256 x) {
  const __m128 low = _mm256_cvtpd_ps(SinCos4(_mm256_cvtps_pd(_mm256_castps256_ps128(x))).cos);
  const __m128 high = _mm256_cvtpd_ps(SinCos4(_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))).cos);
  return _mm256_set_m128(high, low);
}

}  // namespace octavo::kernels
