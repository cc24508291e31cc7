#include "octavo/kernels/quantize.h"

#include <gtest/gtest.h>

#include <limits>

#include "octavo/base/error.h"
#include "octavo/kernels/bf16_bits.h"
#include "octavo/kernels/int_test_support.h"

namespace octavo::kernels {
namespace {

TEST(QuantizeReference, RowsByHand) {
  const float x[] = {1.0f, -2.0f, 0.5f, 0.0f, 0.0f, 0.0f};
  float scale[2] = {};
  int8_t codes[6] = {};
  QuantizeArgs args{.source = {RowMajor(x, 2, 3), {}}, .block_rows = 1, .block_cols = 3};
  args.scale = RowMajor(scale, 2, 1);
  args.codes = RowMajor(codes, 2, 3);
  QuantizeReference(args);
  EXPECT_EQ(scale[0], 2.0f * (1.0f / 127.5f));
  EXPECT_EQ(scale[1], 1.0f);  // the zero guard
  EXPECT_EQ(codes[0], 64);    // 63.75
  EXPECT_TRUE(codes[1] == -128 || codes[1] == -127);
  EXPECT_EQ(codes[2], 32);
  EXPECT_EQ(codes[3], 0);
  args.spec.scale_division = args.spec.code_division = Division::kTrue;
  QuantizeReference(args);
  EXPECT_EQ(scale[0], 2.0f / 127.5f);
}

TEST(QuantizeReference, HardValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {inf, -inf, nan, 129.0f, -1300.0f, 3.5f, 2.5f, -127.5f};
  float scale = 1.0f;
  int8_t codes[8] = {};
  QuantizeArgs args{.source = {RowMajor(x, 1, 8), {}}, .block_rows = 1, .block_cols = 8};
  args.scale = RowMajor(&scale, 1, 1);
  args.codes = RowMajor(codes, 1, 8);
  QuantizeWithScaleReference(args);
  const int8_t expected[] = {127, -128, 0, 127, -128, 4, 2, -128};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(codes[i], expected[i]) << i;
}

TEST(QuantizeReference, ReferenceDivisionRule) {
  EXPECT_EQ(LikeReference({}, false, 4, 64).scale_division, Division::kReciprocal);
  EXPECT_EQ(LikeReference({}, false, 4, 64).code_division, Division::kReciprocal);
  EXPECT_EQ(LikeReference({}, false, 1, 64).scale_division, Division::kTrue);
  EXPECT_EQ(LikeReference({}, false, 64, 64).code_division, Division::kTrue);
  EXPECT_EQ(LikeReference({}, true, 4, 64).code_division, Division::kTrue);
}

}  // namespace
}  // namespace octavo::kernels
