// Every code of every format against a second, independent description: the value of a code from its fields in double,
// and rounding as a search for the nearest neighbour among all values.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "octavo/base/float_mode.h"
#include "octavo/base/rng.h"
#include "octavo/numerics/format.h"
#include "octavo/numerics/half.h"

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<Format> FloatFormats() {
  std::vector<Format> formats;
  for (const FormatInfo& info : AllFormats()) {
    if (info.kind == FormatKind::kFloat && info.bits <= 16 && info.format != Format::kF8E8M0FNU) {
      formats.push_back(info.format);
    }
  }
  return formats;
}

// What a float code means, from the definition of its fields; doubles hold every value exactly.
double ValueFromFields(const FormatInfo& info, uint32_t code) {
  const bool negative = (code >> (info.bits - 1) & 1u) != 0;
  const uint32_t exponent = code >> info.mantissa_bits & ((1u << info.exponent_bits) - 1u);
  const uint32_t mantissa = code & ((1u << info.mantissa_bits) - 1u);
  const double fraction = mantissa / std::ldexp(1.0, info.mantissa_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - info.bias)
                                         : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - info.bias);
  return negative ? -magnitude : magnitude;
}

// The class of each code, again from the definitions of the formats and not from the code under test.
bool IsNanByDefinition(Format format, uint32_t code) {
  switch (Info(format).storage) {
    case Format::kF8E4M3FN:
      return (code & 0x7f) == 0x7f;
    case Format::kF8E5M2:
      return (code & 0x7f) > 0x7c;
    case Format::kF8E4M3:
      return (code & 0x7f) > 0x78;
    case Format::kF8E3M4:
      return (code & 0x7f) > 0x70;
    case Format::kF8E4M3FNUZ:
    case Format::kF8E5M2FNUZ:
    case Format::kF8E4M3B11FNUZ:
      return code == 0x80;
    case Format::kBF16:
      return (code & 0x7fff) > 0x7f80;
    case Format::kF16:
      return (code & 0x7fff) > 0x7c00;
    default:
      return false;
  }
}
bool IsInfByDefinition(Format format, uint32_t code) {
  switch (Info(format).storage) {
    case Format::kF8E5M2:
      return (code & 0x7f) == 0x7c;
    case Format::kF8E4M3:
      return (code & 0x7f) == 0x78;
    case Format::kF8E3M4:
      return (code & 0x7f) == 0x70;
    case Format::kBF16:
      return (code & 0x7fff) == 0x7f80;
    case Format::kF16:
      return (code & 0x7fff) == 0x7c00;
    default:
      return false;
  }
}

TEST(Codec, DecodesEveryFloatCode) {
  for (Format format : FloatFormats()) {
    const FormatInfo& info = Info(format);
    for (uint32_t code = 0; code < (1u << info.bits); ++code) {
      const float value = Decode(format, code);
      ASSERT_EQ(IsNan(format, code), IsNanByDefinition(format, code)) << info.name << " " << code;
      if (IsNanByDefinition(format, code)) {
        ASSERT_TRUE(std::isnan(value)) << info.name << " " << code;
        continue;
      }
      const double expected = IsInfByDefinition(format, code) ? ((code >> (info.bits - 1) & 1u) != 0 ? -kInf : kInf)
                                                              : ValueFromFields(info, code);
      ASSERT_EQ(Bits(value), Bits(static_cast<float>(expected))) << info.name << " " << code;
    }
  }
}

TEST(Codec, RoundTripsEveryCode) {
  for (const FormatInfo& info : AllFormats()) {
    if (info.bits > 16) continue;
    for (uint32_t code = 0; code < (1u << info.bits); ++code) {
      const float value = Decode(info.format, code);
      const uint32_t mask = (1u << info.bits) - 1u;
      if (IsNan(info.format, code)) {
        for (auto policy : {OverflowPolicy::kCast, OverflowPolicy::kMlDtypes, OverflowPolicy::kSaturate}) {
          ASSERT_TRUE(IsNan(info.format, Encode(info.format, value, policy))) << info.name << " " << code;
        }
        continue;
      }
      ASSERT_EQ(Encode(info.format, value, OverflowPolicy::kCast) & mask, code) << info.name;
      ASSERT_EQ(Encode(info.format, value, OverflowPolicy::kMlDtypes) & mask, code) << info.name;
      if (std::isinf(value)) continue;
      // Qwix's clip flushes subnormals of f32, which only e8m0 and bfloat16 can hold.
      const bool flushed = std::fabs(value) < 0x1p-126f && value != 0.0f;
      if (!flushed) {
        ASSERT_EQ(Encode(info.format, value, OverflowPolicy::kSaturate) & mask, code) << info.name;
      }
    }
  }
}

// All finite values of a format, ascending, with the code of each; of the two zeros the positive one.
std::vector<std::pair<double, uint32_t>> FiniteValues(Format format) {
  const FormatInfo& info = Info(format);
  std::map<double, uint32_t> values;
  for (uint32_t code = 0; code < (1u << info.bits); ++code) {
    if (IsNanByDefinition(format, code) || IsInfByDefinition(format, code)) continue;
    values.emplace(ValueFromFields(info, code), code);
  }
  return {values.begin(), values.end()};
}

// Nearest neighbour by comparison of distances, ties to the even code; no overflow handling.
uint32_t NearestByDefinition(const std::vector<std::pair<double, uint32_t>>& values, double value) {
  const auto above = std::lower_bound(values.begin(), values.end(), value,
                                      [](const auto& entry, double v) { return entry.first < v; });
  if (above == values.begin()) return above->second;
  const auto below = above - 1;
  if (above == values.end()) return below->second;
  const double up = above->first - value, down = value - below->first;
  if (up != down) return up < down ? above->second : below->second;
  return (above->second & 1u) == 0 ? above->second : below->second;
}

// Rounding of many f32 values: around every code, every midpoint, and random bits.
std::vector<float> HardValues(const std::vector<std::pair<double, uint32_t>>& values, uint64_t seed) {
  std::vector<float> hard;
  for (size_t i = 0; i < values.size(); ++i) {
    const double next = i + 1 < values.size() ? values[i + 1].first : values[i].first * 1.5;
    for (double exact : {values[i].first, (values[i].first + next) / 2}) {
      const float value = static_cast<float>(exact);
      hard.insert(hard.end(), {value, std::nextafterf(value, kInf), std::nextafterf(value, -kInf)});
    }
  }
  const RngKey key = RngKey::FromSeed(seed);
  for (uint64_t i = 0; i < 20000; ++i) hard.push_back(FromBits(key.Bits32(i)));
  return hard;
}

TEST(Codec, RoundsToTheNearestEvenCode) {
  for (Format format : FloatFormats()) {
    const FormatInfo& info = Info(format);
    const auto values = FiniteValues(format);
    const double largest = values.back().first;
    // Half a step past the largest number: from there on a value overflows; the tie goes to the even code.
    const double step = largest - values[values.size() - 2].first;
    for (float value : HardValues(values, static_cast<uint64_t>(format))) {
      if (!std::isfinite(value) || std::fabs(value) >= largest + step / 2) continue;
      const uint32_t expected = NearestByDefinition(values, value);
      const uint32_t code = Encode(format, value, OverflowPolicy::kCast);
      ASSERT_EQ(Decode(format, code), Decode(format, expected)) << info.name << " of " << value << " " << Bits(value);
      // The sign of zero is kept, where the format has two zeros.
      if (Decode(format, code) == 0.0f && info.nan != NanStyle::kNegativeZero) {
        ASSERT_EQ(std::signbit(Decode(format, code)), std::signbit(value)) << info.name << " of " << value;
      }
      ASSERT_EQ(Encode(format, value, OverflowPolicy::kMlDtypes), code) << info.name;
    }
  }
}

TEST(Codec, Overflow) {
  const struct {
    Format format;
    float last_in;             // the largest f32 that still rounds to the largest number
    uint32_t cast, saturated;  // codes of +overflow
    uint32_t negative_cast, negative_saturated;
  } cases[] = {
      {Format::kF8E4M3FN, 464.0f, 0x7f, 0x7e, 0xff, 0xfe},
      {Format::kF8E5M2, std::nextafterf(61440.0f, 0), 0x7c, 0x7b, 0xfc, 0xfb},
      {Format::kF8E4M3FNUZ, std::nextafterf(248.0f, 0), 0x80, 0x7f, 0x80, 0xff},
      {Format::kF8E5M2FNUZ, std::nextafterf(61440.0f, 0), 0x80, 0x7f, 0x80, 0xff},
      {Format::kF8E4M3, std::nextafterf(248.0f, 0), 0x78, 0x77, 0xf8, 0xf7},
      {Format::kF8E3M4, std::nextafterf(15.75f, 0), 0x70, 0x6f, 0xf0, 0xef},
      {Format::kF8E4M3B11FNUZ, std::nextafterf(31.0f, 0), 0x80, 0x7f, 0x80, 0xff},
      {Format::kF6E2M3FN, 7.5f, 0x1f, 0x1f, 0x3f, 0x3f},
      {Format::kF6E3M2FN, 28.0f, 0x1f, 0x1f, 0x3f, 0x3f},
      {Format::kF4E2M1FN, 6.0f, 0x7, 0x7, 0xf, 0xf},
      {Format::kBF16, std::nextafterf(0x1.ffp127f, 0), 0x7f80, 0x7f7f, 0xff80, 0xff7f},
      {Format::kF16, std::nextafterf(65520.0f, 0), 0x7c00, 0x7bff, 0xfc00, 0xfbff},
      {Format::kMxfp8, 464.0f, 0x7f, 0x7e, 0xff, 0xfe},
      {Format::kNvfp4, 6.0f, 0x7, 0x7, 0xf, 0xf},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(Info(one.format).name);
    const uint32_t largest = one.saturated;
    EXPECT_EQ(Encode(one.format, one.last_in, OverflowPolicy::kCast), largest);
    EXPECT_EQ(Encode(one.format, one.last_in, OverflowPolicy::kSaturate), largest);
    for (float value : {std::nextafterf(one.last_in, kInf), kInf, std::numeric_limits<float>::max()}) {
      EXPECT_EQ(Encode(one.format, value, OverflowPolicy::kCast), one.cast) << value;
      EXPECT_EQ(Encode(one.format, value, OverflowPolicy::kMlDtypes), one.cast) << value;
      EXPECT_EQ(Encode(one.format, value, OverflowPolicy::kSaturate), one.saturated) << value;
      EXPECT_EQ(Encode(one.format, -value, OverflowPolicy::kCast), one.negative_cast) << value;
      EXPECT_EQ(Encode(one.format, -value, OverflowPolicy::kSaturate), one.negative_saturated) << value;
    }
  }
}

TEST(Codec, NanWithoutACodeForIt) {
  for (Format format : {Format::kF4E2M1FN, Format::kF6E2M3FN, Format::kF6E3M2FN, Format::kMxfp4}) {
    const uint32_t negative_zero = 1u << (Info(format).bits - 1);
    for (float nan : {kNan, -kNan}) {
      EXPECT_EQ(Encode(format, nan, OverflowPolicy::kCast), negative_zero);
      EXPECT_EQ(Encode(format, nan, OverflowPolicy::kSaturate), negative_zero);
    }
    EXPECT_EQ(Encode(format, FromBits(0x7fc00000), OverflowPolicy::kMlDtypes), negative_zero);
    EXPECT_EQ(Encode(format, FromBits(0xffc00000), OverflowPolicy::kMlDtypes), 0u);
  }
}

TEST(Codec, E8M0) {
  for (uint32_t code = 0; code < 255; ++code) {
    const double value = std::ldexp(1.0, static_cast<int>(code) - 127);
    ASSERT_EQ(static_cast<double>(Decode(Format::kF8E8M0FNU, code)), value);
    // A tie, three halves of the value, always goes up; just below it goes down.
    const float tie = static_cast<float>(value * 1.5);
    ASSERT_EQ(Encode(Format::kF8E8M0FNU, tie, OverflowPolicy::kCast), code + 1);
    ASSERT_EQ(Encode(Format::kF8E8M0FNU, FromBits(Bits(tie) - 1), OverflowPolicy::kCast), code);
  }
  EXPECT_TRUE(std::isnan(Decode(Format::kF8E8M0FNU, 255)));
  for (float value : {0.0f, -0.0f, -1.0f, -0x1p-149f, kNan, -kInf}) {
    for (auto policy : {OverflowPolicy::kCast, OverflowPolicy::kMlDtypes, OverflowPolicy::kSaturate}) {
      EXPECT_EQ(Encode(Format::kF8E8M0FNU, value, policy), 255u) << value;
    }
  }
  EXPECT_EQ(Encode(Format::kF8E8M0FNU, 0x1p-149f, OverflowPolicy::kCast), 0u);
  EXPECT_EQ(Encode(Format::kF8E8M0FNU, 0x1p-149f, OverflowPolicy::kSaturate), 255u);
  EXPECT_EQ(Encode(Format::kF8E8M0FNU, kInf, OverflowPolicy::kCast), 255u);
  EXPECT_EQ(Encode(Format::kF8E8M0FNU, kInf, OverflowPolicy::kSaturate), 254u);
  EXPECT_EQ(Encode(Format::kF8E8M0FNU, 0x1.8p127f, OverflowPolicy::kSaturate), 254u);
  EXPECT_EQ(ConvertTo(Format::kF8E8M0FNU, kInf, DType::kF16), 255u);
}

TEST(Codec, IntegersDecodeAndSaturate) {
  for (const FormatInfo& info : AllFormats()) {
    if (info.kind != FormatKind::kInteger) continue;
    SCOPED_TRACE(info.name);
    if (info.bits <= 16) {
      for (int32_t value = info.qmin; value <= info.qmax; ++value) {
        ASSERT_EQ(Decode(info.format, static_cast<uint32_t>(value)), static_cast<float>(value));
      }
    }
    for (auto policy : {OverflowPolicy::kCast, OverflowPolicy::kSaturate}) {
      EXPECT_EQ(static_cast<int32_t>(Encode(info.format, kInf, policy)), info.qmax);
      EXPECT_EQ(static_cast<int32_t>(Encode(info.format, -kInf, policy)), info.qmin);
      EXPECT_EQ(static_cast<int32_t>(Encode(info.format, 1e30f, policy)), info.qmax);
      EXPECT_EQ(static_cast<int32_t>(Encode(info.format, -1e30f, policy)), info.qmin);
      EXPECT_EQ(Encode(info.format, kNan, policy), 0u);
      EXPECT_EQ(Encode(info.format, -0.0f, policy), 0u);
      EXPECT_EQ(Encode(info.format, 0x1p-149f, policy), 0u);
    }
  }
}

TEST(Codec, IntegersTruncateOrRoundToEven) {
  const struct {
    float value;
    int cast, rounded;
  } cases[] = {{0.5f, 0, 0},        {1.5f, 1, 2},       {2.5f, 2, 2},       {3.5f, 3, 4},
               {-0.5f, 0, 0},       {-1.5f, -1, -2},    {-2.5f, -2, -2},    {-127.5f, -127, -128},
               {126.5f, 126, 126},  {127.5f, 127, 127}, {129.0f, 127, 127}, {-1300.0f, -128, -128},
               {0.49999997f, 0, 0}, {0.99999994f, 0, 1}};
  for (const auto& one : cases) {
    EXPECT_EQ(static_cast<int32_t>(Encode(Format::kInt8, one.value, OverflowPolicy::kCast)), one.cast) << one.value;
    EXPECT_EQ(static_cast<int32_t>(ConvertTo(Format::kInt8, one.value)), one.rounded) << one.value;
  }
  EXPECT_EQ(static_cast<int32_t>(Encode(Format::kInt32, 0x1p31f, OverflowPolicy::kCast)), 2147483647);
  EXPECT_EQ(static_cast<int32_t>(Encode(Format::kInt32, 2147483520.0f, OverflowPolicy::kCast)), 2147483520);
  EXPECT_EQ(ConvertTo(Format::kUint8, -3.0f), 0u);
  EXPECT_EQ(ConvertTo(Format::kUint8, 254.5f), 254u);
  EXPECT_EQ(ConvertTo(Format::kUint4, 15.5f), 15u);
}

TEST(Codec, Nf4) {
  const float exact[] = {-1.0f, -0.5f, 0.0f, 0.8f, 1.0f};
  const uint32_t codes[] = {0, 2, 7, 14, 15};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ConvertTo(Format::kNF4, exact[i]), codes[i]);
  EXPECT_EQ(Decode(Format::kNF4, 1), -0.6961928009986877f);
  EXPECT_EQ(Decode(Format::kNF4, 14), 0.7229568362236023f);
  for (float value : {kNan, kInf, -kInf}) EXPECT_EQ(ConvertTo(Format::kNF4, value), 0u);
  EXPECT_EQ(ConvertTo(Format::kNF4, 0x1p-149f), 7u);
  // Exactly between two entries (both distances equal in f32) the lower index wins.
  EXPECT_EQ(ConvertTo(Format::kNF4, -0.8480964004993439f), 0u);
}

TEST(Codec, TablesHoldEveryValue) {
  for (const FormatInfo& info : AllFormats()) {
    if (info.bits > 8) continue;
    const std::span<const float> table = DecodeTable(info.format);
    ASSERT_EQ(table.size(), size_t{1} << info.bits) << info.name;
    for (uint32_t code = 0; code < table.size(); ++code) {
      ASSERT_EQ(Bits(table[code]), Bits(Decode(info.format, code))) << info.name << " " << code;
    }
  }
  EXPECT_EQ(DecodeTable(Format::kInt8)[0x80], -128.0f);
  EXPECT_EQ(DecodeTable(Format::kInt4)[0xf], -1.0f);
}

TEST(Codec, FlushModeChangesNothing) {
  std::vector<uint32_t> plain, flushed;
  const auto run = [](std::vector<uint32_t>& out) {
    for (const FormatInfo& info : AllFormats()) {
      for (uint32_t bits : {0x00000001u, 0x00200001u, 0x00600000u, 0x007fffffu, 0x80000001u, 0x80400000u}) {
        for (auto policy : {OverflowPolicy::kCast, OverflowPolicy::kMlDtypes, OverflowPolicy::kSaturate}) {
          out.push_back(Encode(info.format, FromBits(bits), policy));
        }
        out.push_back(Bits(Decode(info.format, bits)));
      }
    }
    for (uint16_t code : {uint16_t{0x0001}, uint16_t{0x007f}, uint16_t{0x03ff}, uint16_t{0x8010}}) {
      out.push_back(Bits(F16ToF32(code)));
      out.push_back(Bits(BF16ToF32(code)));
      out.push_back(F32ToF16(F16ToF32(code)));
      out.push_back(F32ToBF16(BF16ToF32(code)));
    }
  };
  run(plain);
  {
    ScopedFloatMode mode;
    run(flushed);
  }
  EXPECT_EQ(plain, flushed);
  EXPECT_EQ(Encode(Format::kBF16, FromBits(0x00018000), OverflowPolicy::kCast), 2u);
}

TEST(Half, MatchesTheReferenceOnEveryCodeAndHardValue) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const uint16_t half = static_cast<uint16_t>(code);
    if (IsNan(Format::kBF16, code)) {
      ASSERT_TRUE(std::isnan(BF16ToF32(half)));
    } else {
      ASSERT_EQ(Bits(BF16ToF32(half)), Bits(Decode(Format::kBF16, code))) << code;
      ASSERT_EQ(F32ToBF16(BF16ToF32(half)), code);
    }
    if (IsNan(Format::kF16, code)) {
      ASSERT_TRUE(std::isnan(F16ToF32(half)));
    } else {
      ASSERT_EQ(Bits(F16ToF32(half)), Bits(Decode(Format::kF16, code))) << code;
      ASSERT_EQ(F32ToF16(F16ToF32(half)), code);
    }
  }
  for (Format format : {Format::kBF16, Format::kF16}) {
    for (float value : HardValues(FiniteValues(format), 3)) {
      const uint32_t code = format == Format::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      ASSERT_EQ(code, Encode(format, value, OverflowPolicy::kCast)) << Bits(value);
    }
    for (float value : {kInf, -kInf, kNan, -kNan, FromBits(0x7f800001), FromBits(0xffffffff), 0.0f, -0.0f}) {
      const uint32_t code = format == Format::kBF16 ? F32ToBF16(value) : F32ToF16(value);
      ASSERT_EQ(code, Encode(format, value, OverflowPolicy::kCast)) << Bits(value);
    }
  }
}

TEST(Stochastic, NoiseIsAddedBeforeRoundingToBuiltinIntegers) {
  EXPECT_EQ(static_cast<int32_t>(ConvertTo(Format::kInt8, 3.4f, DType::kF32, 0.2f)), 4);
  EXPECT_EQ(static_cast<int32_t>(ConvertTo(Format::kInt8, 3.4f, DType::kF32, -0.2f)), 3);
  EXPECT_EQ(static_cast<int32_t>(ConvertTo(Format::kInt4, -3.4f, DType::kF32, -0.2f)), -4);
  EXPECT_EQ(ConvertTo(Format::kUint8, 3.4f, DType::kF32, 0.2f), 4u);
  EXPECT_EQ(static_cast<int32_t>(ConvertTo(Format::kInt16, 3.4f, DType::kF32, 0.2f)), 4);
  // Formats that Qwix gives no noise.
  for (Format format : {Format::kInt2, Format::kInt3, Format::kInt5, Format::kInt7, Format::kF8E4M3FN, Format::kNF4}) {
    EXPECT_EQ(ConvertTo(format, 0.4f, DType::kF32, 0.3f), ConvertTo(format, 0.4f)) << Info(format).name;
  }
}

TEST(Stochastic, LowBitNoise) {
  EXPECT_EQ(LowBitNoise(0), -0.498046875f);
  EXPECT_EQ(LowBitNoise(255), 0.498046875f);
  for (int u = 0; u < 256; ++u) {
    EXPECT_EQ(LowBitNoise(static_cast<uint8_t>(u)), -LowBitNoise(static_cast<uint8_t>(255 - u)));
    EXPECT_EQ(LowBitNoise(static_cast<uint8_t>(u)), (2 * u - 255) / 512.0f);
  }
}

TEST(Stochastic, WithoutNoiseItIsPlainRounding) {
  for (const FormatInfo& info : AllFormats()) {
    const RngKey key = RngKey::FromSeed(9);
    for (uint64_t i = 0; i < 3000; ++i) {
      const float value = FromBits(key.Bits32(i));
      if (std::isfinite(value) && std::fabs(value) < 0x1p-126f) continue;  // kSaturate flushes these
      ASSERT_EQ(EncodeStochastic(info.format, value, 0.0f), Encode(info.format, value, OverflowPolicy::kSaturate))
          << info.name << " " << Bits(value);
    }
  }
}

TEST(Stochastic, ExpectationIsTheValue) {
  for (Format format : {Format::kInt8, Format::kF8E4M3FN, Format::kF8E5M2, Format::kF4E2M1FN, Format::kBF16}) {
    for (float value : {1.3f, -1.3f, 0.017f, -5.9f, 0.3f}) {
      // Noise on a regular grid: the mean of the results must be the value to within half a grid step of a place.
      constexpr int kSteps = 1024;
      double sum = 0;
      for (int i = 0; i < kSteps; ++i) {
        const float noise = (i + 0.5f) / kSteps - 0.5f;
        sum += Decode(format, EncodeStochastic(format, value, noise));
      }
      const double place = format == Format::kBF16 ? 0.04 : 1.0;
      EXPECT_NEAR(sum / kSteps, value, place / kSteps) << Info(format).name << " " << value;
    }
  }
}

}  // namespace
}  // namespace octavo
