#include "octavo/quant/noise.h"

#include <gtest/gtest.h>

#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

TEST(Noise, VariesAlongTheAxesAskedFor) {
  const RngKey key{1, 2};
  EXPECT_EQ(MakeNoise(key, {3, 4}, Rounding::kUniformNoise, std::vector<int>{0}).shape(), Shape({3, 1}));
  EXPECT_EQ(MakeNoise(key, {3, 4}, Rounding::kUniformNoise, std::vector<int>{0, 1}).shape(), Shape({3, 4}));
  EXPECT_EQ(MakeNoise(key, {3, 4}, Rounding::kUniformNoise, {}).shape(), Shape({1, 1}));
  EXPECT_THROW(MakeNoise(key, {3, 4}, Rounding::kUniformNoise, std::vector<int>{2}), Error);
  EXPECT_THROW(MakeNoise(key, {3, 4}, Rounding::kNearest, {}), Error);
}

TEST(Noise, IsInsideHalfAStepAndFollowsTheKey) {
  for (Rounding rounding : {Rounding::kUniformNoise, Rounding::kLowBitNoise}) {
    const Tensor noise = MakeNoise({1, 2}, {2000}, rounding, std::vector<int>{0});
    double sum = 0;
    for (float value : noise.Values<float>()) {
      EXPECT_GE(value, -0.5f);
      EXPECT_LT(value, 0.5f);
      sum += value;
    }
    EXPECT_NEAR(sum / 2000, 0.0, 0.03);
    EXPECT_TRUE(BitEqual(noise, MakeNoise({1, 2}, {2000}, rounding, std::vector<int>{0})));
    EXPECT_FALSE(BitEqual(noise, MakeNoise({1, 3}, {2000}, rounding, std::vector<int>{0})));
    // Elements do not depend on how many there are.
    EXPECT_TRUE(BitEqual(noise.Slice(0, 0, 7), MakeNoise({1, 2}, {7}, rounding, std::vector<int>{0})));
  }
}

}  // namespace
}  // namespace octavo::quant
