// Scalar elementary functions, the reference for every faster version: each is a fixed chain of IEEE operations and
// explicit FMAs, so math_avx2.h (and any later instruction set) gives the same bits in every lane. Used by attention,
// norms, gates and the loss, and by instruction-set units for their tails. Not a replacement for <cmath>: no errno, no
// exceptions, results below the smallest normal number are 0 (what flush-to-zero gives anyway).
//
// Largest error found over all floats of the stated range, in ulp of the exact result (math_test.cc holds them to it):
//   Exp      1.02   all x; 0 below -87.33654
//   Log      0.81   all positive normal x; smaller ones count as 0 (-inf), negative ones give NaN
//   Tanh     1.34   all x
//   Sigmoid  2.41   x >= -87.33654; 0 below
//   Erf      1.07   all x
//   Sin, Cos 0.501  |x| <= 2^30; NaN beyond (there is no reduction for it). In double inside, rounded once.
//   SinCos64 1.6    ulp of double, |x| <= 2^30; NaN beyond. For position tables.
//
// Everything is `static inline` on purpose: an instruction-set unit must keep its own copy, or the linker could hand
// its AVX2 code to a machine that has none.
#pragma once

#include <cstdint>

namespace octavo::kernels {

// Coefficients are minimax fits (Remez in 200 bits, coefficients rounded one after the other, the rest fitted again).
namespace math {

// Adding 1.5 * 2^23 leaves round-to-nearest of the number in the low mantissa bits.
inline constexpr float kRound = 0x1.8p23f;
inline constexpr float kLog2e = 0x1.715476p+0f;
inline constexpr float kLn2Hi = 0x1.62e43p-1f;
inline constexpr float kLn2Lo = -0x1.05c61p-29f;  // ln 2 - kLn2Hi

// e^r = 1 + r + r^2 (kExp[0] + kExp[1] r + …), |r| <= ln(2) / 2, relative error 3.3e-9
inline constexpr float kExp[5] = {0x1.fffffcp-2f, 0x1.55548ep-3f, 0x1.5558a6p-5f, 0x1.123bd2p-7f, 0x1.6a58d6p-10f};
inline constexpr float kExpLow = -0x1.5d589ep+6f;  // -87.33654, the last x whose e^x is a normal number
inline constexpr float kExpHigh = 89.0f;           // e^x overflows before

// log(1 + f) = f - f^2 / 2 + f^3 (kLog[0] + kLog[1] f + …), sqrt(1/2) <= 1 + f < sqrt(2), relative error 8.6e-10
inline constexpr float kLog[9] = {0x1.555548p-2f,  -0x1.00000ep-2f, 0x1.99a47p-3f,   -0x1.5558c8p-3f, 0x1.2339d8p-3f,
                                  -0x1.fca04cp-4f, 0x1.e74c98p-4f,  -0x1.db78cep-4f, 0x1.10352cp-4f};
inline constexpr int32_t kSqrtHalfBits = 0x3f3504f3;
inline constexpr float kMinNormal = 0x1p-126f;

// tanh(x) = x + x^3 (kTanh[0] + kTanh[1] x^2 + …), |x| <= 0.625, relative error 4.2e-9
inline constexpr float kTanh[5] = {-0x1.555534p-2f, 0x1.11075ap-3f, -0x1.b8421ep-5f, 0x1.524826p-6f, -0x1.766a1cp-8f};
inline constexpr float kTanhSmall = 0.625f;

// erf(x) = x + x (kErfSmall[0] + kErfSmall[1] x^2 + …) for |x| <= 0.93;
// erf(x) = 1 - exp(-x - x (kErfLarge[0] + kErfLarge[1] x + …)) up to 4, where it has become 1
inline constexpr float kErfSmall[6] = {0x1.06eba6p-3f,  -0x1.8126ep-2f, 0x1.ce1936p-4f,
                                       -0x1.b677f4p-6f, 0x1.46c49ap-8f, -0x1.38263ep-11f};
inline constexpr float kErfLarge[7] = {0x1.077bdcp-3f, 0x1.452f76p-1f,   0x1.b34f14p-4f, -0x1.85e3ap-6f,
                                       0x1.dfa224p-9f, -0x1.56eec4p-12f, 0x1.876ef4p-17f};
inline constexpr float kErfSplit = 0.93f;
inline constexpr float kErfOne = 4.0f;

// sin(r) = r + r^3 P(r^2), cos(r) = 1 - r^2 / 2 + r^4 Q(r^2), |r| <= pi / 4, in double
inline constexpr double kSin[6] = {-0x1.555555555554dp-3, 0x1.111111110fd48p-7,   -0x1.a01a019c8e45fp-13,
                                   0x1.71de35d3a8c4fp-19, -0x1.ae5ea559d51c6p-26, 0x1.5da364b357f95p-33};
inline constexpr double kCos[6] = {0x1.5555555555553p-5,   -0x1.6c16c16c15f09p-10, 0x1.a01a019ddb1b8p-16,
                                   -0x1.27e4f8cad4ce2p-22, 0x1.1eea6383364f7p-29,  -0x1.8fe7c6c11db3cp-37};
inline constexpr double kRound64 = 0x1.8p52;
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
inline constexpr double kHalfPiHi = 0x1.921fb54442d18p+0;
inline constexpr double kHalfPiLo = 0x1.1a62633145c07p-54;
inline constexpr double kTrigLimit = 0x1p30;

}  // namespace math

static inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float Abs(float x) { return __builtin_fabsf(x); }

// Like vminps and vmaxps: the second operand when either is NaN.
static inline float Min(float a, float b) { return a < b ? a : b; }
static inline float Max(float a, float b) { return a > b ? a : b; }

static inline float Exp(float x) {
  const float c = Min(math::kExpHigh, Max(math::kExpLow, x));
  const float t = Fma(c, math::kLog2e, math::kRound);
  const float n = t - math::kRound;
  float r = Fma(n, -math::kLn2Hi, c);
  r = Fma(n, -math::kLn2Lo, r);
  float q = math::kExp[4];
  q = Fma(q, r, math::kExp[3]);
  q = Fma(q, r, math::kExp[2]);
  q = Fma(q, r, math::kExp[1]);
  q = Fma(q, r, math::kExp[0]);
  const float p = 1.0f + Fma(r * r, q, r);
  // 2^n in two factors, since 2^128 is no float. Both products are exact or overflow.
  const int32_t whole = __builtin_bit_cast(int32_t, t) - __builtin_bit_cast(int32_t, math::kRound);
  const int32_t half = whole >> 1;
  const float scale0 = __builtin_bit_cast(float, (half + 127) << 23);
  const float scale1 = __builtin_bit_cast(float, (whole - half + 127) << 23);
  return x < math::kExpLow ? 0.0f : p * scale0 * scale1;
}

static inline float Log(float x) {
  // Of a negative x it wraps; that result is not used.
  const auto above = static_cast<int32_t>(__builtin_bit_cast(uint32_t, x) - static_cast<uint32_t>(math::kSqrtHalfBits));
  const float e = static_cast<float>(above >> 23);
  const float f = __builtin_bit_cast(float, (above & 0x007fffff) + math::kSqrtHalfBits) - 1.0f;
  float q = math::kLog[8];
  for (int i = 7; i >= 0; --i) q = Fma(q, f, math::kLog[i]);
  const float square = f * f;
  float y = f * square * q;
  y = Fma(e, math::kLn2Lo, y);
  y = Fma(-0.5f, square, y);
  float result = Fma(e, math::kLn2Hi, f + y);
  result = x < math::kMinNormal ? -__builtin_inff() : result;
  result = x <= -math::kMinNormal ? __builtin_nanf("") : result;
  return x < __builtin_inff() ? result : x;  // +inf and NaN stay
}

static inline float Tanh(float x) {
  const float a = Abs(x);
  const float square = a * a;
  float q = math::kTanh[4];
  for (int i = 3; i >= 0; --i) q = Fma(q, square, math::kTanh[i]);
  const float small = Fma(a * square, q, a);
  const float large = 1.0f - 2.0f / (Exp(a + a) + 1.0f);
  return __builtin_copysignf(a < math::kTanhSmall ? small : large, x);
}

static inline float Sigmoid(float x) {
  const float e = Exp(-Abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float Erf(float x) {
  const float a = Abs(x);
  const float square = a * a;
  float q = math::kErfSmall[5];
  for (int i = 4; i >= 0; --i) q = Fma(q, square, math::kErfSmall[i]);
  const float small = Fma(a, q, a);
  const float t = Min(math::kErfOne, a);
  float u = math::kErfLarge[6];
  for (int i = 5; i >= 0; --i) u = Fma(u, t, math::kErfLarge[i]);
  const float large = 1.0f - Exp(-Fma(t, u, t));
  return __builtin_copysignf(a < math::kErfSplit ? small : large, x);
}

struct SinCosResult {
  double sin, cos;
};

static inline SinCosResult SinCos64(double x) {
  const double t = Fma(x, math::kTwoOverPi, math::kRound64);
  const double n = t - math::kRound64;
  double r = Fma(n, -math::kHalfPiHi, x);
  r = Fma(n, -math::kHalfPiLo, r);
  const double square = r * r;
  double p = math::kSin[5], q = math::kCos[5];
  for (int i = 4; i >= 0; --i) {
    p = Fma(p, square, math::kSin[i]);
    q = Fma(q, square, math::kCos[i]);
  }
  const double s = Fma(r * square, p, r);
  const double c = Fma(square * square, q, Fma(square, -0.5, 1.0));
  const uint64_t quarter = __builtin_bit_cast(uint64_t, t);  // its low two bits
  double sin = (quarter & 1) != 0 ? c : s;
  double cos = (quarter & 1) != 0 ? s : c;
  if ((quarter & 2) != 0) sin = -sin;
  if (((quarter + 1) & 2) != 0) cos = -cos;
  const bool inside = __builtin_fabs(x) <= math::kTrigLimit;
  const double nan = __builtin_nan("");
  return {inside ? sin : nan, inside ? cos : nan};
}

static inline float Sin(float x) { return static_cast<float>(SinCos64(static_cast<double>(x)).sin); }
static inline float Cos(float x) { return static_cast<float>(SinCos64(static_cast<double>(x)).cos); }

}  // namespace octavo::kernels
