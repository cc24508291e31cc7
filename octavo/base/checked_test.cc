#include "octavo/base/checked.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(Checked, AddSubMul) {
  EXPECT_EQ(CheckedAdd(kMost - 1, 1), kMost);
  EXPECT_EQ(CheckedAdd(kMost, 1), std::nullopt);
  EXPECT_EQ(CheckedAdd(-kMost, -2), std::nullopt);
  EXPECT_EQ(CheckedSub<uint64_t>(3, 3), 0u);
  EXPECT_EQ(CheckedSub<uint64_t>(3, 4), std::nullopt);
  EXPECT_EQ(CheckedMul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(CheckedMul(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(CheckedMul<uint8_t>(16, 16), std::nullopt);
  EXPECT_EQ(CheckedMul<uint8_t>(15, 17), 255);
}

std::optional<int64_t> Product(std::vector<int64_t> shape) { return CheckedProduct(shape); }

TEST(Checked, ProductOfAShape) {
  EXPECT_EQ(Product({}), 1);
  EXPECT_EQ(Product({2, 3, 4}), 24);
  EXPECT_EQ(Product({2, 0, 4}), 0);
  EXPECT_EQ(Product({-1}), std::nullopt);
  EXPECT_EQ(Product({0, -1}), std::nullopt);
  EXPECT_EQ(Product({int64_t{1} << 32, int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(Product({int64_t{1} << 32, int64_t{1} << 31, 0}), std::nullopt);
  EXPECT_EQ(Product({0, int64_t{1} << 32, int64_t{1} << 31}), std::nullopt);
  EXPECT_EQ(Product({kMost, 1}), kMost);
}

TEST(Checked, Casts) {
  EXPECT_EQ(CheckedCast<int32_t>(int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(CheckedCast<uint32_t>(int64_t{-1}), std::nullopt);
  EXPECT_EQ(CheckedCast<int8_t>(uint64_t{127}), 127);
  EXPECT_EQ(Narrow<int>(int64_t{-5}), -5);
  EXPECT_THROW(Narrow<uint8_t>(256), Error);
}

}  // namespace
}  // namespace octavo
