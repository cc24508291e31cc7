#include "octavo/quant/fp8_delayed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::ElementsAre;

const DotDims kMatMul{{1}, {0}, {}, {}};

TEST(Fp8, ScalesOfTheReference) {
  const auto bits = [](float amax, float top) { return std::bit_cast<uint32_t>(Fp8ScaleFromAmax(amax, 1.0f, top)); };
  EXPECT_EQ(bits(1.0f, 448), 0x3B124925u);
  EXPECT_EQ(bits(2.5f, 448), 0x3BB6DB6Eu);
  EXPECT_EQ(bits(3.0f, 448), 0x3BDB6DB7u);
  EXPECT_EQ(bits(0.7f, 448), 0x3ACCCCCDu);
  EXPECT_EQ(bits(1.0f, 57344), 0x37924925u);
  // Nothing to learn from: the old scale, through two reciprocals.
  const float inf = std::numeric_limits<float>::infinity();
  for (float amax : {0.0f, inf, std::numeric_limits<float>::quiet_NaN(), 1e-45f}) {
    EXPECT_EQ(Fp8ScaleFromAmax(amax, 0.3f, 448), 1.0f / (1.0f / 0.3f));
  }
}

TEST(Fp8, HistoryIsARing) {
  Fp8Meta meta = InitialFp8Meta(4);
  for (float amax : {1.0f, 2.0f, 3.0f}) meta = UpdatedFp8Meta(meta, amax, Format::kF8E4M3FN);
  EXPECT_THAT(meta.amax_history.ToVector<float>(), ElementsAre(3, 0, 1, 2));
  // The scale of a step knows the steps before it only.
  EXPECT_EQ(meta.scale.At<float>({0}), Fp8ScaleFromAmax(2.0f, 1.0f, 448));
  EXPECT_THROW(InitialFp8Meta(0), Error);
  const Fp8Meta short_one = UpdatedFp8Meta(InitialFp8Meta(1), 5.0f, Format::kF8E4M3FN);
  EXPECT_THAT(short_one.amax_history.ToVector<float>(), ElementsAre(5));
}

TEST(Fp8, MicroStepsMergeByMaximum) {
  const Fp8Meta start = InitialFp8Meta(3);
  const Fp8Meta a = UpdatedFp8Meta(start, 2.0f, Format::kF8E4M3FN), b = UpdatedFp8Meta(start, 5.0f, Format::kF8E4M3FN);
  const Fp8Meta both = UpdatedFp8Meta(start, 5.0f, Format::kF8E4M3FN);
  EXPECT_TRUE(BitEqual(MergedFp8Meta(a, b).amax_history, both.amax_history));
  EXPECT_TRUE(BitEqual(MergedFp8Meta(b, a).scale, both.scale));
  EXPECT_THROW(MergedFp8Meta(a, InitialFp8Meta(4)), Error);
}

TEST(Fp8, StepsLearnTheScale) {
  TestRun test;
  for (Fp8DotForm form : {Fp8DotForm::kDirect, Fp8DotForm::kQdq}) {
    const Fp8DotConfig config{form, Format::kF8E4M3FN, Format::kF8E5M2};
    Fp8DotState state = InitialFp8DotState(4);
    const Tensor x = Random({6, 24}, 1, DType::kF32, 1e-3f), w = Random({24, 5}, 2),
                 g = Random({6, 5}, 3, DType::kF32, 1e-6f);
    double first = 0, later = 0;
    for (int step = 0; step < 3; ++step) {
      const auto forward = Fp8Dot(test.run, x, w, kMatMul, state, config);
      const auto grads = Fp8DotBackward(test.run, forward, state, config, g);
      const double error = WorstError(forward.out, DotInDouble(x, w, kMatMul));
      (step == 0 ? first : later) = error;
      if (step > 0) {
        EXPECT_LT(WorstError(grads.x, DotInDouble(g, w, {{1}, {1}, {}, {}})), 0.15);
        EXPECT_LT(WorstError(grads.kernel, DotInDouble(x, g, {{0}, {0}, {}, {}})), 0.15);
      }
      state = {forward.input, forward.kernel, grads.output_grad};
    }
    EXPECT_GT(first, 0.1);  // scale 1: 1e-3 is coarse in e4m3
    EXPECT_LT(later, 0.06);
  }
}

TEST(Fp8, ThreadsAndPlainLoopsAgree) {
  TestRun test(3);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor x = Random({70, 130}, 1, dtype, 20.0f);
    EXPECT_EQ(AmaxOf(x), AmaxOf(test.run, x));
    for (Format format : {Format::kF8E4M3FN, Format::kF8E5M2, Format::kF8E4M3FNUZ, Format::kF8E5M2FNUZ}) {
      EXPECT_TRUE(BitEqual(QuantizeFp8(x, format, 0.11f).values, QuantizeFp8(test.run, x, format, 0.11f).values));
    }
  }
}

TEST(Fp8, ReplayingAStepChangesNothing) {
  TestRun test;
  const Fp8DotConfig config;
  Fp8DotState state = InitialFp8DotState(4);
  state.input = UpdatedFp8Meta(state.input, 3.0f, Format::kF8E4M3FN);
  const Tensor x = Random({6, 24}, 1), w = Random({24, 5}, 2);
  const auto once = Fp8Dot(test.run, x, w, kMatMul, state, config),
             twice = Fp8Dot(test.run, x, w, kMatMul, state, config);
  EXPECT_TRUE(BitEqual(once.out, twice.out));
  EXPECT_TRUE(BitEqual(once.input.amax_history, twice.input.amax_history));
}

TEST(Fp8, ComputesInTheDtypeOfTheKernel) {
  TestRun test;
  const Tensor x = Random({3, 8}, 1), w = Random({8, 2}, 2, DType::kBF16);
  const auto forward = Fp8Dot(test.run, x, w, kMatMul, InitialFp8DotState(2), {});
  EXPECT_EQ(forward.out.dtype(), DType::kBF16);
  const auto grads = Fp8DotBackward(test.run, forward, InitialFp8DotState(2), {}, Random({3, 2}, 3, DType::kBF16));
  EXPECT_EQ(grads.x.dtype(), DType::kF32);
  EXPECT_EQ(grads.kernel.dtype(), DType::kBF16);
  EXPECT_THROW(QuantizeFp8(test.run, x, Format::kInt8, 1.0f), Error);
  EXPECT_THROW(Fp8DotBackward(test.run, forward, InitialFp8DotState(2), {}, Random({2, 2}, 3)), Error);
}

}  // namespace
}  // namespace octavo::quant
