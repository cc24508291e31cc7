// Number formats: one row per format, and the scalar code that is the reference for every faster version. Used by
// everyone above; knows nothing of tensors, scales or policy. Add a format: one row in format.cc, its codes in the
// tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "octavo/numerics/dtype.h"

namespace octavo {

enum class Format : uint8_t {
  // integers; a code is the value itself
  kInt2,
  kInt3,
  kInt4,
  kInt5,
  kInt6,
  kInt7,
  kInt8,
  kInt16,
  kInt32,
  kUint2,
  kUint4,
  kUint8,
  // small floats; a code is the bit pattern
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E4M3,
  kF8E3M4,
  kF8E4M3B11FNUZ,
  kF8E8M0FNU,
  kF6E2M3FN,
  kF6E3M2FN,
  kF4E2M1FN,
  // a table of 16 values; a code is the index
  kNF4,
  // 16 and 32 bits
  kBF16,
  kF16,
  kF32,
  // small floats with scales in blocks of a fixed size
  kMxfp8,
  kMxfp8_16,
  kMxfp4,
  kNvfp4,
};

enum class FormatKind : uint8_t { kInteger, kFloat, kTable };

// Which codes of a float format mean "not a number".
enum class NanStyle : uint8_t {
  kNone,          // every code is a number (float4, float6)
  kIeee,          // exponent all ones, mantissa not zero
  kAllOnes,       // exponent and mantissa all ones (fn; in e8m0 the code 255)
  kNegativeZero,  // the code of -0; there is no -0 (fnuz)
};

struct Bounds {
  float min, max;
  bool operator==(const Bounds&) const = default;
};

struct FormatInfo {
  Format format;
  std::string_view name;  // as ml_dtypes and Qwix spell it
  FormatKind kind;
  int bits;  // of one code

  // Floats only. e8m0 has no sign, no zero and no subnormals.
  bool has_sign;
  int exponent_bits, mantissa_bits, bias;
  bool has_inf;
  NanStyle nan;

  float min_value, max_value;  // the finite range

  // Quantizing. The bound is what a calibrated maximum is mapped to: the top bucket of an integer is used fully
  // (127.5), a float ends at its largest number. 0: not a format to quantize to.
  float symmetric_bound;
  std::optional<Bounds> asymmetric;  // int4, int8 and int16 only
  int32_t qmin, qmax;                // integers: the range codes are clipped to
  Format storage;                    // what a stored code is: int2 -> int4, mxfp8 -> float8_e4m3fn, else itself
  DType dtype;                       // of one unpacked code in memory
  int block;                         // elements that share a scale, where the format fixes it: 32 or 16; else 0
};

const FormatInfo& Info(Format format);
std::span<const FormatInfo> AllFormats();

// Accepts the spellings of ml_dtypes, Qwix, MaxText and ours, in any letter case: float8_e4m3fn, fp8_e4m3fn, f8e4m3fn,
// e4m3fn; bfloat16, bf16; int8, i8, s8. An unknown name is a usage error that proposes the nearest ones.
Format FormatByName(std::string_view name);
std::optional<Format> FindFormat(std::string_view name);  // the same without the error

// The bounds as a quantizer asks for them; a usage error for formats that have none.
float SymmetricBound(Format format);
Bounds AsymmetricBound(Format format);

// What happens to a value that the format cannot hold. All round once, to nearest even, straight from f32.
enum class OverflowPolicy : uint8_t {
  kCast,      // as XLA converts: infinity, else NaN, else the largest number; integers truncate and saturate
  kMlDtypes,  // as ml_dtypes converts: differs from kCast in NaN to a format without NaN (zero of the other sign)
  kSaturate,  // as Qwix's convert_to: subnormals flushed, clipped to the finite range first; integers round to even
};

// A code is the value itself for integers (sign-extended to 32 bits), the bit pattern for floats, the index for nf4.
// Block formats behave as their storage format. Neither function depends on the thread's floating-point mode.
float Decode(Format format, uint32_t code);  // reads the low bits only
uint32_t Encode(Format format, float value, OverflowPolicy policy);

bool IsNan(Format format, uint32_t code);

// Every value of a format of at most 8 bits: table[code & (2^bits - 1)]. For kernels and loaders.
std::span<const float> DecodeTable(Format format);

// Qwix's convert_to for one value that was divided by its scale already. `input` is the dtype that `value` came from:
// f32, bf16 or f16 (the clip bounds are rounded to it). `noise` (about -0.5 … 0.5) is added before rounding to int4,
// int8, int16, uint4 and uint8, and ignored for all other formats, as Qwix does.
uint32_t ConvertTo(Format format, float value, DType input = DType::kF32, std::optional<float> noise = std::nullopt);

// Stochastic rounding to an integer or float format: the value in units of its last place, plus `noise` in [-0.5, 0.5),
// to the nearest. Overflow saturates; NaN stays NaN where there is one. The expectation over uniform noise is the
// value, to 2^-40 units. nf4, e8m0 and f32 ignore the noise.
uint32_t EncodeStochastic(Format format, float value, float noise);

// Noise made of 8 random bits, as Qwix's low_bit_uniform: -0.498046875 … 0.498046875 in steps of 1/256, never 0.
float LowBitNoise(uint8_t bits);

}  // namespace octavo
