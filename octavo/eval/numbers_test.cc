// The small parts: means, percentiles, rows of logits, windows. Expected numbers are worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/eval/mean.h"
#include "octavo/eval/row_numbers.h"
#include "octavo/eval/sample_text.h"
#include "octavo/eval/windows.h"

namespace octavo::eval {
namespace {

TEST(Mean, StandardErrorOfFourValues) {
  Mean mean;
  for (const double value : {1.0, 2.0, 4.0, 5.0}) mean.Add(value);
  EXPECT_EQ(mean.count(), 4);
  EXPECT_DOUBLE_EQ(mean.mean(), 3);
  EXPECT_DOUBLE_EQ(mean.deviation(), std::sqrt(10.0 / 3));  // 4 + 1 + 1 + 4 over n - 1
  EXPECT_DOUBLE_EQ(mean.standard_error(), std::sqrt(10.0 / 12));
  Mean one;
  one.Add(7);
  EXPECT_EQ(one.standard_error(), 0);
}

TEST(Mean, PercentileBetweenNeighbours) {
  const std::vector<double> values = {0, 10, 20, 40};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 0);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.5), 15);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.9), 34);
  EXPECT_DOUBLE_EQ(Percentile(values, 1), 40);
}

TEST(RowNumbers, LossOfATokenByHand) {
  // p = 1/6, 2/6, 3/6.
  const std::vector<float> logits = {0, static_cast<float>(std::log(2.0)), static_cast<float>(std::log(3.0))};
  EXPECT_NEAR(TokenLoss(logits, 0), std::log(6.0), 1e-7);
  EXPECT_NEAR(TokenLoss(logits, 2), std::log(2.0), 1e-7);
  // Large logits do not overflow.
  const std::vector<float> large = {3e38f, 3e38f};
  EXPECT_DOUBLE_EQ(TokenLoss(large, 0), std::log(2.0));
}

TEST(RowNumbers, NoNumberStaysNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(TokenLoss(std::vector<float>{0, nan}, 0)));
  EXPECT_TRUE(std::isnan(TokenLoss(std::vector<float>{0, inf}, 0)));
  EXPECT_TRUE(std::isnan(TokenLoss(std::vector<float>{-inf, -inf}, 0)));
  EXPECT_DOUBLE_EQ(TokenLoss(std::vector<float>{0, -inf}, 0), 0);
}

TEST(RowNumbers, DivergenceByHand) {
  const std::vector<float> a = {0, 0}, b = {0, static_cast<float>(std::log(3.0))};  // 1/2 1/2, 1/4 3/4
  const RowDivergence row = Diverge(a, b, 1);
  EXPECT_NEAR(row.kl, 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75), 1e-7);
  EXPECT_NEAR(row.delta_p, 0.25, 1e-7);
  EXPECT_FALSE(row.same_top);  // of equals the lower one is A's
  EXPECT_FALSE(row.equal);
  EXPECT_NEAR(row.loss_a, std::log(2.0), 1e-7);
  EXPECT_NEAR(row.loss_b, std::log(4.0 / 3), 1e-7);
  const RowDivergence back = Diverge(b, a, 1);
  EXPECT_NEAR(back.kl, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_NE(back.kl, row.kl);
}

TEST(RowNumbers, EqualRowsHaveNoDivergence) {
  const std::vector<float> a = {1.25f, -3, 0.5f, 7};
  const RowDivergence row = Diverge(a, a, 2);
  EXPECT_EQ(row.kl, 0);
  EXPECT_EQ(row.delta_p, 0);
  EXPECT_TRUE(row.equal && row.same_top);
  std::vector<float> b = a;
  b[1] = std::nextafter(b[1], 0.0f);
  EXPECT_FALSE(Diverge(a, b, 2).equal);
}

TEST(Windows, EveryTokenIsATargetOnce) {
  const std::vector<int32_t> text = {10, 11, 12, 13, 14, 15, 16, 17};
  const Windows plain(text, {.length = 3});
  EXPECT_EQ(plain.count(), 2);
  EXPECT_EQ(plain.At(1).tokens, (std::vector<int32_t>{13, 14, 15}));
  EXPECT_EQ(plain.At(1).targets, (std::vector<int32_t>{14, 15, 16}));
  EXPECT_EQ(plain.left_over(), 1);
  const Windows begun(text, {.length = 4, .bos = 1});
  EXPECT_EQ(begun.count(), 2);
  EXPECT_EQ(begun.At(1).tokens, (std::vector<int32_t>{1, 14, 15, 16}));
  EXPECT_EQ(begun.At(1).targets, (std::vector<int32_t>{14, 15, 16, 17}));
  EXPECT_EQ(begun.left_over(), 0);
  EXPECT_EQ(Windows(text, {.length = 3, .most = 1}).count(), 1);
}

TEST(Windows, TooShortSaysHowMuchIsNeeded) {
  const std::vector<int32_t> text(812, 5);
  try {
    Windows(text, {.length = 2048});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.message(), "data has 812 tokens, one window needs 2048");
  }
}

TEST(SampleText, IsThere) {
  EXPECT_GT(SampleText().size(), 10000u);
  EXPECT_EQ(SampleText().substr(0, 11), "GLOUCESTER:");
}

}  // namespace
}  // namespace octavo::eval
