#include "octavo/cli/golden_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/float_mode.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Floats(const std::vector<float>& values) {
  return Tensor::FromValues(Shape{static_cast<int64_t>(values.size())}, DType::kF32, values);
}
Tensor Words(DType dtype, const std::vector<uint16_t>& values) {
  return Tensor::FromValues(Shape{static_cast<int64_t>(values.size())}, dtype, values);
}
Tensor Codes(const std::vector<uint8_t>& values) {
  return Tensor::FromValues(Shape{static_cast<int64_t>(values.size())}, DType::kU8, values);
}
float Next(float value) { return std::nextafterf(value, kInf); }

TEST(GoldenCompare, Bits) {
  EXPECT_FALSE(CompareBits(Floats({1, -2, 0.0f, kInf}), Floats({1, -2, -0.0f, kInf})));
  EXPECT_FALSE(CompareBits(Floats({kNan}), Floats({-std::bit_cast<float>(0x7fa00001u)})));
  EXPECT_TRUE(CompareBits(Floats({1}), Floats({Next(1)})));
  EXPECT_TRUE(CompareBits(Floats({kInf}), Floats({-kInf})));
  EXPECT_TRUE(CompareBits(Floats({kNan}), Floats({1})));
  EXPECT_TRUE(CompareBits(Floats({1}), Floats({kNan})));
  EXPECT_THAT(*CompareBits(Floats({1, 2, 3}), Floats({1, 5, 4})),
              HasSubstr("2 of 3 elements differ (bits); first at 1: expected 2 (0x40000000), found 5 (0x40a00000)"));
}

TEST(GoldenCompare, ShapesAndDTypesCount) {
  EXPECT_THAT(*CompareBits(Floats({1, 2}), Floats({1})), HasSubstr("expected f32[2], found f32[1]"));
  EXPECT_TRUE(CompareBits(Words(DType::kBF16, {0}), Words(DType::kF16, {0})));
  EXPECT_THAT(*CompareBits(Floats({1}), Tensor()), HasSubstr("nothing was computed"));
  EXPECT_FALSE(CompareBits(Floats({}), Floats({})));
}

TEST(GoldenCompare, SubnormalsAreNumbersInEveryMode) {
  ScopedFloatMode flush;
  const float tiny = std::bit_cast<float>(1u);
  EXPECT_TRUE(CompareBits(Floats({tiny}), Floats({0.0f})));
  EXPECT_TRUE(CompareBits(Floats({tiny}), Floats({std::bit_cast<float>(2u)})));
  EXPECT_TRUE(CompareBits(Words(DType::kBF16, {1}), Words(DType::kBF16, {0})));
  EXPECT_TRUE(CompareBits(Words(DType::kU16, {1}), Words(DType::kU16, {0}), Format::kBF16));
  EXPECT_FALSE(CompareUlps(Floats({tiny}), Floats({-tiny}), 2));
  EXPECT_TRUE(CompareUlps(Floats({tiny}), Floats({-tiny}), 1));
}

TEST(GoldenCompare, CodesHaveTheNansAndZerosOfTheirFormat) {
  EXPECT_TRUE(CompareBits(Codes({0x7f}), Codes({0xff})));
  EXPECT_FALSE(CompareBits(Codes({0x7f}), Codes({0xff}), Format::kF8E4M3FN));
  EXPECT_FALSE(CompareBits(Codes({0x00}), Codes({0x80}), Format::kF8E4M3FN));
  EXPECT_TRUE(CompareBits(Codes({0x00}), Codes({0x80}), Format::kF8E4M3FNUZ));  // 0x80 is NaN there
  EXPECT_TRUE(CompareBits(Codes({0x7e}), Codes({0x7f}), Format::kF8E4M3FN));
  EXPECT_FALSE(CompareBits(Codes({0x7d}), Codes({0xfe}), Format::kF8E5M2));
  EXPECT_TRUE(CompareBits(Codes({0x7c}), Codes({0x7d}), Format::kF8E5M2));  // infinity is no NaN
  EXPECT_FALSE(CompareBits(Codes({0}), Codes({8}), Format::kF4E2M1FN));
  EXPECT_TRUE(CompareBits(Codes({0}), Codes({8}), Format::kUint4));
  EXPECT_TRUE(CompareBits(Codes({0}), Codes({0x80}), Format::kF8E8M0FNU));
}

TEST(GoldenCompare, Dot) {
  EXPECT_FALSE(CompareDot(Floats({100, 1}), Floats({100, 1.0001f})));
  EXPECT_TRUE(CompareDot(Floats({100, 1}), Floats({100, 1.0003f})));
  EXPECT_TRUE(CompareDot(Floats({100, kNan}), Floats({100, 1})));
  EXPECT_TRUE(CompareDot(Floats({100, kInf}), Floats({100, 1})));
  EXPECT_FALSE(CompareDot(Floats({100, -kInf}), Floats({100, -kInf})));
  EXPECT_FALSE(CompareDot(Words(DType::kBF16, {0x3f80, 0x8000}), Words(DType::kBF16, {0x3f81, 0x0001})));
  EXPECT_TRUE(CompareDot(Words(DType::kBF16, {0x3f80}), Words(DType::kBF16, {0x3f82})));
  EXPECT_TRUE(CompareDot(Words(DType::kBF16, {0x7f7f}), Words(DType::kBF16, {0x7f80})));  // the largest and infinity
  EXPECT_TRUE(CompareDot(Codes({1}), Codes({2})));
}

TEST(GoldenCompare, RelativeAndChained) {
  EXPECT_FALSE(CompareRelative(Floats({1, 1e-3f}), Floats({Next(1), 1e-3f}), 1e-6));
  EXPECT_TRUE(CompareRelative(Floats({1, 1e-3f}), Floats({1, 1.00001e-3f}), 1e-6));
  EXPECT_TRUE(CompareRelative(Floats({0}), Floats({1e-9f}), 1e-6));
  EXPECT_FALSE(CompareToLargest(Floats({1, 0}), Floats({1, 1e-7f}), 1e-6));
  EXPECT_FALSE(CompareChained(Floats({1, 1, 1, 1}), Floats({1, 1, 1.01f, 1.01f})));
  EXPECT_THAT(*CompareChained(Floats({1, 1, 1, 1}), Floats({1, 1.01f, 1.01f, 1.01f})), HasSubstr("only 1 of 4"));
  EXPECT_TRUE(CompareChained(Floats({1, 1, 1, 1}), Floats({1, 1, 1, 1.03f})));
}

}  // namespace
}  // namespace octavo
