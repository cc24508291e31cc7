// Encode and decode of one value, in integer arithmetic. See format.h for the contracts.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "octavo/base/check.h"
#include "octavo/numerics/format.h"

namespace octavo {
namespace {

constexpr uint32_t kInfBits = 0x7f800000u;

constexpr float kNf4[16] = {-1.0f,
                            -0.6961928009986877f,
                            -0.5250730514526367f,
                            -0.39491748809814453f,
                            -0.28444138169288635f,
                            -0.18477343022823334f,
                            -0.09105003625154495f,
                            0.0f,
                            0.07958029955625534f,
                            0.16093020141124725f,
                            0.24611230194568634f,
                            0.33791524171829224f,
                            0.44070982933044434f,
                            0.5626170039176941f,
                            0.7229568362236023f,
                            1.0f};

uint32_t Mask(int bits) { return bits == 32 ? ~0u : (1u << bits) - 1u; }

// The code of the largest finite magnitude, without the sign bit.
uint32_t LargestCode(const FormatInfo& info) {
  const uint32_t all = Mask(info.exponent_bits + info.mantissa_bits);
  if (info.has_inf) return all - (1u << info.mantissa_bits);
  return info.nan == NanStyle::kAllOnes ? all - 1u : all;
}

uint32_t SignBit(const FormatInfo& info) { return info.has_sign ? 1u << (info.bits - 1) : 0u; }

uint32_t NanCode(const FormatInfo& info, bool negative) {
  const uint32_t sign = negative ? SignBit(info) : 0u;
  switch (info.nan) {
    case NanStyle::kIeee:  // infinity with the top bit of the mantissa
      return sign | (LargestCode(info) + 1u) | (1u << (info.mantissa_bits - 1));
    case NanStyle::kAllOnes:
      return sign | Mask(info.exponent_bits + info.mantissa_bits);
    case NanStyle::kNegativeZero:
      return SignBit(info);
    case NanStyle::kNone:
      break;
  }
  return 0;
}

bool FloatCodeIsNan(const FormatInfo& info, uint32_t code) {
  const uint32_t magnitude = code & Mask(info.exponent_bits + info.mantissa_bits);
  switch (info.nan) {
    case NanStyle::kIeee:
      return magnitude > LargestCode(info) + 1u;
    case NanStyle::kAllOnes:
      return magnitude > LargestCode(info);
    case NanStyle::kNegativeZero:
      return (code & Mask(info.bits)) == SignBit(info);
    case NanStyle::kNone:
      break;
  }
  return false;
}

float DecodeFloat(const FormatInfo& info, uint32_t code) {
  if (info.format == Format::kF32) return std::bit_cast<float>(code);
  const uint32_t sign = (code & SignBit(info)) != 0 ? 0x80000000u : 0u;
  const uint32_t magnitude = code & Mask(info.exponent_bits + info.mantissa_bits);
  if (FloatCodeIsNan(info, code)) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (info.has_inf && magnitude == LargestCode(info) + 1u) return std::bit_cast<float>(sign | kInfBits);
  uint32_t exponent = magnitude >> info.mantissa_bits;
  uint32_t mantissa = magnitude & Mask(info.mantissa_bits);
  if (info.format == Format::kF8E8M0FNU) return std::bit_cast<float>(exponent == 0 ? 0x00400000u : exponent << 23);
  if (info.format == Format::kBF16) return std::bit_cast<float>(code << 16);
  int shifted = 0;
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    // A subnormal of the format is a normal f32: move its highest bit to the implicit place.
    shifted = info.mantissa_bits - (std::bit_width(mantissa) - 1);
    mantissa = mantissa << shifted & Mask(info.mantissa_bits);
    exponent = 1;
  }
  const uint32_t exponent32 = static_cast<uint32_t>(static_cast<int>(exponent) - shifted - info.bias + 127);
  return std::bit_cast<float>(sign | exponent32 << 23 | mantissa << (23 - info.mantissa_bits));
}

int32_t DecodeInteger(const FormatInfo& info, uint32_t code) {
  const int unused = 32 - info.bits;
  const uint32_t top = code << unused;
  return info.has_sign ? static_cast<int32_t>(top) >> unused : static_cast<int32_t>(top >> unused);
}

// An f32 magnitude as significand * 2^(exponent - 150).
struct Split {
  uint32_t significand;
  int exponent;
};
Split SplitMagnitude(uint32_t magnitude) {
  const uint32_t exponent = magnitude >> 23, mantissa = magnitude & 0x7fffffu;
  if (exponent == 0) return {mantissa, 1};
  return {mantissa | 0x800000u, static_cast<int>(exponent)};
}

// The code (without sign) nearest to a finite magnitude, ties to even, as if the format had no largest number.
uint32_t RoundMagnitude(const FormatInfo& info, uint32_t magnitude) {
  const auto [significand, exponent] = SplitMagnitude(magnitude);
  const int lowest = 1 - info.bias + 127;  // the exponent of the smallest normal, biased as in f32
  const int kept = std::max(exponent, lowest);
  // In units of the format's last place at that exponent the value is significand / 2^shift.
  const int shift = kept - exponent + 23 - info.mantissa_bits;
  if (shift > 24) return 0;  // below half of the smallest number
  const uint32_t units = (significand + (1u << (shift - 1)) - 1u + (significand >> shift & 1u)) >> shift;
  // Adding instead of or-ing lets a carry move into the exponent.
  return (static_cast<uint32_t>(kept - lowest) << info.mantissa_bits) + units;
}

// The same with `noise` (in 2^-40 of the last place, at most half a place either way) added before the rounding.
uint32_t RoundMagnitudeWithNoise(const FormatInfo& info, uint32_t magnitude, int64_t noise) {
  constexpr int kFraction = 40;
  constexpr int64_t kOne = int64_t{1} << kFraction, kHalf = kOne / 2;
  const auto [significand, exponent] = SplitMagnitude(magnitude);
  const int lowest = 1 - info.bias + 127;
  const int kept = std::max(exponent, lowest);
  const int shift = kept - exponent + 23 - info.mantissa_bits;  // at least 13
  const int64_t wide = significand;
  const int64_t value = shift <= kFraction ? wide << (kFraction - shift) : shift < 64 ? wide >> (shift - kFraction) : 0;
  const int64_t sum = value + noise;
  if (sum <= 0) return 0;
  int64_t units = sum >> kFraction;
  const int64_t rest = sum & (kOne - 1);
  if (rest > kHalf || (rest == kHalf && (units & 1) != 0)) ++units;
  return (static_cast<uint32_t>(kept - lowest) << info.mantissa_bits) + static_cast<uint32_t>(units);
}

// Powers of two only. A tie goes up: the significand is always 1, so the even neighbour is always the upper one.
uint32_t EncodeE8M0(float value, OverflowPolicy policy) {
  constexpr uint32_t kNan = 255, kLargest = 254;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (bits == 0 || bits > kInfBits) return kNan;  // zero, negative, NaN
  if (policy == OverflowPolicy::kSaturate) {
    if (bits < 0x00800000u) return kNan;  // clipping flushes a subnormal to zero, which has no code
    if (bits >= kLargest << 23) return kLargest;
  }
  if (bits == kInfBits) return kNan;
  if (bits < 0x00800000u) return bits < 0x00600000u ? 0 : 1;  // there is no zero: all below go to 2^-127
  return (bits >> 23) + (bits >> 22 & 1u);
}

uint32_t OverflowCode(const FormatInfo& info, bool negative, OverflowPolicy policy) {
  const uint32_t sign = negative ? SignBit(info) : 0u;
  if (policy == OverflowPolicy::kSaturate || (!info.has_inf && info.nan == NanStyle::kNone)) {
    return sign | LargestCode(info);
  }
  return info.has_inf ? sign | (LargestCode(info) + 1u) : NanCode(info, negative);
}

// Puts the sign on a rounded magnitude and handles what is too large.
uint32_t Finish(const FormatInfo& info, uint32_t magnitude, bool negative, OverflowPolicy policy) {
  if (magnitude > LargestCode(info)) return OverflowCode(info, negative, policy);
  if (magnitude == 0 && info.nan == NanStyle::kNegativeZero) return 0;
  return (negative ? SignBit(info) : 0u) | magnitude;
}

uint32_t EncodeNan(const FormatInfo& info, bool negative, OverflowPolicy policy) {
  if (info.nan != NanStyle::kNone) return NanCode(info, negative);
  if (policy == OverflowPolicy::kMlDtypes) return negative ? 0u : SignBit(info);
  return SignBit(info);
}

uint32_t EncodeFloat(const FormatInfo& info, float value, OverflowPolicy policy) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool negative = (bits >> 31) != 0;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (info.format == Format::kF8E8M0FNU) return EncodeE8M0(value, policy);
  if (magnitude > kInfBits) return EncodeNan(info, negative, policy);
  if (magnitude == kInfBits) return OverflowCode(info, negative, policy);
  if (policy == OverflowPolicy::kSaturate && magnitude < 0x00800000u) magnitude = 0;
  if (info.format == Format::kF32) return (negative ? 0x80000000u : 0u) | magnitude;
  return Finish(info, RoundMagnitude(info, magnitude), negative, policy);
}

uint32_t ClipToInteger(const FormatInfo& info, double rounded) {
  if (std::isnan(rounded)) return 0;
  if (rounded <= info.qmin) return static_cast<uint32_t>(info.qmin);
  if (rounded >= info.qmax) return static_cast<uint32_t>(info.qmax);
  return static_cast<uint32_t>(static_cast<int32_t>(rounded));
}

uint32_t EncodeNf4(float value) {
  uint32_t best = 0;
  float smallest = std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < 16; ++i) {
    const float distance = std::fabs(kNf4[i] - value);
    if (distance < smallest) {
      smallest = distance;
      best = i;
    }
  }
  return best;
}

// Qwix rounds and clips int2, int3, int5, int6 and int7 itself and gives them no noise; other integers have it.
bool TakesNoise(const FormatInfo& info) {
  return info.kind == FormatKind::kInteger && (!info.has_sign || info.format == info.storage);
}

struct Tables {
  std::array<std::array<float, 256>, 32> rows;
};

Tables BuildTables() {
  Tables tables{};
  OCTAVO_CHECK(AllFormats().size() <= tables.rows.size());
  for (const FormatInfo& info : AllFormats()) {
    if (info.bits > 8) continue;
    for (uint32_t code = 0; code < (1u << info.bits); ++code) {
      tables.rows[static_cast<size_t>(info.format)][code] = Decode(info.format, code);
    }
  }
  return tables;
}

}  // namespace

float Decode(Format format, uint32_t code) {
  const FormatInfo& info = Info(format);
  switch (info.kind) {
    case FormatKind::kInteger:
      return static_cast<float>(DecodeInteger(info, code));
    case FormatKind::kTable:
      return kNf4[code & 15u];
    case FormatKind::kFloat:
      break;
  }
  return DecodeFloat(info, code);
}

uint32_t Encode(Format format, float value, OverflowPolicy policy) {
  const FormatInfo& info = Info(format);
  switch (info.kind) {
    case FormatKind::kInteger: {
      const double wide = value;
      return ClipToInteger(info, policy == OverflowPolicy::kSaturate ? std::nearbyint(wide) : std::trunc(wide));
    }
    case FormatKind::kTable:
      return EncodeNf4(value);
    case FormatKind::kFloat:
      break;
  }
  return EncodeFloat(info, value, policy);
}

bool IsNan(Format format, uint32_t code) {
  const FormatInfo& info = Info(format);
  return info.kind == FormatKind::kFloat && FloatCodeIsNan(info, code);
}

std::span<const float> DecodeTable(Format format) {
  static const Tables tables = BuildTables();  // constant once built
  const FormatInfo& info = Info(format);
  OCTAVO_CHECK(info.bits <= 8);
  return std::span<const float>(tables.rows[static_cast<size_t>(format)]).first(size_t{1} << info.bits);
}

uint32_t ConvertTo(Format format, float value, DType input, std::optional<float> noise) {
  const FormatInfo& info = Info(format);
  if (noise && TakesNoise(info)) value += *noise;
  // f16 cannot hold the range of e8m0: its clip bounds become 0 and infinity, which leaves a cast.
  const bool bounds_overflow = input == DType::kF16 && info.kind == FormatKind::kFloat && info.max_value > 65504.0f;
  return Encode(format, value, bounds_overflow ? OverflowPolicy::kCast : OverflowPolicy::kSaturate);
}

uint32_t EncodeStochastic(Format format, float value, float noise) {
  const FormatInfo& info = Info(format);
  OCTAVO_DCHECK(noise >= -0.5f && noise <= 0.5f);
  if (info.kind == FormatKind::kInteger) {
    return ClipToInteger(info, std::nearbyint(static_cast<double>(value) + static_cast<double>(noise)));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool negative = (bits >> 31) != 0;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const bool no_place =
      info.kind == FormatKind::kTable || info.format == Format::kF8E8M0FNU || info.format == Format::kF32;
  if (no_place || magnitude >= kInfBits) return Encode(format, value, OverflowPolicy::kSaturate);
  const int64_t units = std::llrint(static_cast<double>(negative ? -noise : noise) * 0x1p40);
  return Finish(info, RoundMagnitudeWithNoise(info, magnitude, units), negative, OverflowPolicy::kSaturate);
}

float LowBitNoise(uint8_t bits) {
  return std::bit_cast<float>(0x3f800000u | static_cast<uint32_t>(bits) << 15) - (1.5f - 0x1p-9f);
}

}  // namespace octavo
