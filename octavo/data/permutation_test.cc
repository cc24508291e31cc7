#include "octavo/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "octavo/data/unit_order.h"

namespace octavo::data {
namespace {

TEST(Permutation, IsOneToOneForEverySize) {
  for (uint64_t size = 1; size < 300; ++size) {
    const Permutation order(RngKey::FromSeed(3), size);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t to = order(i);
      ASSERT_LT(to, size);
      ASSERT_FALSE(seen[to]) << size;
      seen[to] = true;
    }
  }
}

TEST(Permutation, DependsOnTheKeyAndMixes) {
  constexpr uint64_t kSize = 10'000;
  const Permutation one(RngKey::FromSeed(1), kSize), two(RngKey::FromSeed(2), kSize);
  uint64_t equal = 0, near = 0;
  double distance = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    equal += one(i) == two(i) ? 1 : 0;
    distance += std::abs(static_cast<double>(one(i)) - static_cast<double>(i));
    if (i > 0) near += std::abs(static_cast<double>(one(i)) - static_cast<double>(one(i - 1))) < 100 ? 1 : 0;
  }
  EXPECT_LT(equal, 10u);                                   // one is expected by chance
  EXPECT_NEAR(distance / kSize / kSize, 1.0 / 3.0, 0.01);  // of two uniform numbers
  EXPECT_NEAR(static_cast<double>(near), 0.0199 * kSize, 60);
}

TEST(UnitOrder, TheSplitIsExactAndDoesNotMoveWithTheSeed) {
  const UnitOrder train(1000, 0.05, UnitOrder::Part::kTrain, true, 1);
  const UnitOrder other(1000, 0.05, UnitOrder::Part::kTrain, true, 2);
  const UnitOrder held_out(1000, 0.05, UnitOrder::Part::kHeldOut, false, 0);
  int count = 0;
  for (int64_t unit = 0; unit < 1000; ++unit) {
    count += train.IsHeldOut(unit) ? 1 : 0;
    EXPECT_EQ(train.IsHeldOut(unit), other.IsHeldOut(unit));
    EXPECT_EQ(held_out.At(0, unit), held_out.IsHeldOut(unit) ? unit : -1);
  }
  EXPECT_EQ(count, 50);
}

}  // namespace
}  // namespace octavo::data
