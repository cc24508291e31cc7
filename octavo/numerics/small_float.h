// Fast encoding to small floats (fp8, fp6, fp4) of values that were scaled already: the same codes as ConvertTo of
// format.h in a handful of operations without branches, so that loops over it vectorize. Used by quant/ and by the
// cache writer of kernels/; the tests of quant/ compare it with format.h on every boundary.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "octavo/numerics/format.h"

namespace octavo {

class SmallFloatEncoder {
 public:
  // Signed float formats of at most 8 bits.
  static bool Handles(Format format) {
    const FormatInfo& info = Info(format);
    return info.kind == FormatKind::kFloat && info.bits <= 8 && info.has_sign;
  }

  explicit SmallFloatEncoder(Format format) {
    const FormatInfo& info = Info(format);
    shift_ = 23 - info.mantissa_bits;
    const int lowest = 1 - info.bias;  // exponent of the smallest normal number
    normal_ = static_cast<uint32_t>(lowest + 127) << 23;
    rebias_ = static_cast<uint32_t>(lowest + 126) << 23;
    // Adding this makes the last place of the sum that of the format's subnormals.
    magic_ = static_cast<uint32_t>(lowest - info.mantissa_bits + 23 + 127) << 23;
    largest_ = std::bit_cast<uint32_t>(info.max_value);
    sign_shift_ = 32 - info.bits;
    keep_zero_sign_ = info.nan != NanStyle::kNegativeZero;
    nan_ = static_cast<uint8_t>(Encode(format, std::bit_cast<float>(0x7fc00000u), OverflowPolicy::kSaturate));
    negative_nan_ = static_cast<uint8_t>(Encode(format, std::bit_cast<float>(0xffc00000u), OverflowPolicy::kSaturate));
  }

  uint8_t operator()(float value) const {
    const uint32_t bits = std::bit_cast<uint32_t>(value), raw = bits & 0x7fffffffu;
    const uint32_t magnitude = std::min(raw, largest_);  // clipped first, as the reference does
    const uint32_t even = magnitude >> shift_ & 1u;
    const uint32_t rounded = (magnitude - rebias_ + (1u << (shift_ - 1)) - 1u + even) >> shift_;
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(magic_)) - magic_;
    const uint32_t code = magnitude < normal_ ? small : rounded;
    const uint32_t sign = keep_zero_sign_ || code != 0 ? (bits & 0x80000000u) >> sign_shift_ : 0u;
    const uint8_t finite = static_cast<uint8_t>(sign | code);
    return raw > 0x7f800000u ? (bits >> 31 != 0 ? negative_nan_ : nan_) : finite;
  }

 private:
  int shift_, sign_shift_;
  uint32_t normal_, rebias_, magic_, largest_;
  bool keep_zero_sign_;
  uint8_t nan_, negative_nan_;
};

}  // namespace octavo
