#include "octavo/numerics/pack.h"

#include <gtest/gtest.h>

#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::vector<uint8_t> Pack(Format format, const std::vector<uint8_t>& codes) {
  std::vector<uint8_t> packed(PackedBytes(static_cast<int64_t>(codes.size()), Info(format).bits));
  PackCodes(format, codes, packed);
  return packed;
}

TEST(Pack, LowBitsFirst) {
  EXPECT_EQ(Pack(Format::kInt4, {0x01, 0xff, 0xf8}), (std::vector<uint8_t>{0xf1, 0x08}));
  EXPECT_EQ(Pack(Format::kUint2, {0, 1, 2, 3, 1}), (std::vector<uint8_t>{0xe4, 0x01}));
  EXPECT_EQ(Pack(Format::kF6E2M3FN, {0x3f, 0, 0x3f, 0}), (std::vector<uint8_t>{0x3f, 0xf0, 0x03}));
}

TEST(Pack, RoundTripsEveryWidthAndLength) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (int count = 0; count < 40; ++count) {
      std::vector<uint8_t> codes(count), back(count), packed(PackedBytes(count, bits));
      for (int i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>((i * 37 + 11) & ((1 << bits) - 1));
      PackCodes(codes, bits, packed);
      UnpackCodes(packed, bits, false, back);
      ASSERT_EQ(back, codes) << bits << " " << count;
      // Signed: every value of the width comes back sign-extended.
      for (uint8_t& code : codes) {
        const int sign = 1 << (bits - 1);
        code = static_cast<uint8_t>((code ^ sign) - sign);
      }
      UnpackCodes(packed, bits, true, back);
      ASSERT_EQ(back, codes) << bits << " " << count;
    }
  }
}

TEST(Pack, FormatsKnowTheirSign) {
  std::vector<uint8_t> back(2);
  UnpackCodes(Format::kInt4, std::vector<uint8_t>{0x8f}, back);
  EXPECT_EQ(back, (std::vector<uint8_t>{0xff, 0xf8}));
  UnpackCodes(Format::kUint4, std::vector<uint8_t>{0x8f}, back);
  EXPECT_EQ(back, (std::vector<uint8_t>{0x0f, 0x08}));
  UnpackCodes(Format::kF4E2M1FN, std::vector<uint8_t>{0x8f}, back);
  EXPECT_EQ(back, (std::vector<uint8_t>{0x0f, 0x08}));
}

TEST(Pack, WrongSizesAreErrors) {
  std::vector<uint8_t> codes(3), packed(1);
  EXPECT_THROW(PackCodes(codes, 4, packed), Error);
  EXPECT_THROW(UnpackCodes(packed, 4, true, codes), Error);
  EXPECT_THROW(PackCodes(codes, 9, packed), Error);
  EXPECT_THROW(PackCodes(codes, 0, packed), Error);
  EXPECT_THROW(PackCodes(Format::kBF16, codes, packed), Error);
  EXPECT_EQ(PackedBytes(0, 4), 0);
  EXPECT_EQ(PackedBytes(int64_t{1} << 60, 4), int64_t{1} << 59);
}

}  // namespace
}  // namespace octavo
