#include "octavo/quant/aqt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "octavo/numerics/half.h"
#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::HasSubstr;

const DotDims kMatMul{{1}, {0}, {}, {}};

AqtSide Int8() {
  AqtSide side;
  side.numerics = AqtNumerics::Integer(8);
  return side;
}

TEST(Aqt, Numerics) {
  EXPECT_EQ(AqtNumerics::Integer(8).quant_bound(), 127.5f);
  EXPECT_EQ(AqtNumerics::Integer(8).clip(), 127.0f);
  EXPECT_EQ(AqtNumerics::Integer(4).quant_bound(), 7.5f);
  EXPECT_EQ(AqtNumerics::Integer(2).clip(), 1.0f);
  EXPECT_EQ(AqtNumerics::Fp8(Format::kF8E5M2).quant_bound(), 57344.0f);
  EXPECT_EQ(ParseAqtBits("e4m3").format(), Format::kF8E4M3FN);
  EXPECT_EQ(ParseAqtBits("4").format(), Format::kInt4);
  EXPECT_EQ(ParseAqtBits("none").kind, AqtNumerics::Kind::kNone);
  for (const char* bad : {"1", "9", "16", "e3m4", "eight"}) EXPECT_THROW(ParseAqtBits(bad), Error) << bad;
  EXPECT_THROW(ParseAqtNoise("gaussian"), Error);
}

// Values of a table of the reference, one scale: a true division, then the rounded reciprocal.
TEST(Aqt, ScalesAndReciprocals) {
  struct Row {
    DType dtype;
    float largest;
    uint32_t scale;
  };
  for (const Row& row :
       {Row{DType::kF32, 1.0f, 0x3C008081}, Row{DType::kF32, 3.0f, 0x3CC0C0C1}, Row{DType::kF32, 0.1f, 0x3A4D9A67},
        Row{DType::kF32, 5.5f, 0x3D30B0B1}, Row{DType::kBF16, 1.0f, 0x3C010000}, Row{DType::kBF16, 3.0f, 0x3CC10000},
        Row{DType::kBF16, 5.5f, 0x3D310000}}) {
    AqtSide side = Int8();
    side.per_tensor = true;
    const QArray q = AqtQuantize(CastFloat(F32({2}, {row.largest, -row.largest}), row.dtype), side, {0});
    EXPECT_EQ(std::bit_cast<uint32_t>(Floats(q.scale)[0]), row.scale);
    EXPECT_EQ(q.qvalue.At<int8_t>({0}), 127);  // never 128, and never -128
    EXPECT_EQ(q.qvalue.At<int8_t>({1}), -127);
  }
}

TEST(Aqt, ZeroRowsAndConstantBounds) {
  const QArray zero = AqtQuantize(F32({2, 2}, {0, 0, 1, 2}), Int8(), {1});
  EXPECT_EQ(zero.scale.At<float>({0, 0}), 1.0f * (1.0f / 127.5f));
  EXPECT_EQ(zero.qvalue.At<int8_t>({0, 1}), 0);
  AqtSide fixed = Int8();
  fixed.constant_bound = 2.0;
  fixed.per_tensor = true;
  const QArray clipped = AqtQuantize(F32({3}, {5, -1, 0}), fixed, {0});
  EXPECT_EQ(clipped.scale.At<float>({0}), 2.0f / 127.5f);
  EXPECT_EQ(clipped.qvalue.At<int8_t>({0}), 127);
  EXPECT_EQ(clipped.qvalue.At<int8_t>({1}), -64);
}

TEST(Aqt, OnesComeOutBelowOne) {
  TestRun test;
  const AqtConfig config = AqtConfigV3({AqtNumerics::Integer(8), AqtNumerics::Integer(8), AqtNumerics::None()},
                                       AqtNoise::kNone, std::nullopt);
  const Tensor one = F32({1, 1}, {1.0f});
  test.run.arithmetic.division = DivisionRule::kReference;
  EXPECT_EQ(std::bit_cast<uint32_t>(AqtDotGeneral(test.run, one, one, kMatMul, config).out.At<float>({0, 0})),
            0x3F7DFF02u);
}

TEST(Aqt, Int8TrainingRunsOnIntegerKernels) {
  TestRun test;
  const Tensor x = Random({4, 6, 16}, 1), w = Random({16, 8}, 2), g = Random({4, 6, 8}, 3);
  const DotDims dims{{2}, {0}, {}, {}};
  const AqtNumerics int8 = AqtNumerics::Integer(8);
  const AqtConfig config = AqtConfigV3({int8, int8, int8}, AqtNoise::kUniform, DType::kI32, 2);
  const auto forward = AqtDotGeneral(test.run, x, w, dims, config);
  const auto grads = AqtDotGeneralBackward(test.run, forward.residuals, config, g, RngKey{1, 2});
  EXPECT_EQ(test.macs.integer, 3 * 4 * 6 * 16 * 8);
  EXPECT_EQ(test.macs.floating, 0);
  EXPECT_EQ(grads.rhs_g->scale.shape(), Shape({2, 1, 1, 8}));  // scales of two blocks of the batch
  const Tensor flat = x.Reshape({24, 16}), flat_g = g.Reshape({24, 8});
  EXPECT_LT(WorstError(grads.rhs, DotInDouble(flat, flat_g, {{0}, {0}, {}, {}})), 0.02);
  EXPECT_LT(WorstError(grads.lhs, DotInDouble(flat_g, w, {{1}, {1}, {}, {}})), 0.03);
  const auto plain = AqtDotGeneral(test.Reference(), x, w, dims, config);
  EXPECT_TRUE(BitEqual(forward.out, plain.out));
  const auto plain_grads = AqtDotGeneralBackward(test.Reference(), plain.residuals, config, g, RngKey{1, 2});
  EXPECT_TRUE(BitEqual(grads.lhs, plain_grads.lhs));
  EXPECT_TRUE(BitEqual(grads.rhs, plain_grads.rhs));
}

TEST(Aqt, FrozenWeightsServeTheTrainingBits) {
  TestRun test;
  const Tensor x = Random({3, 5, 32}, 1), w = Random({32, 6}, 2);
  const DotDims dims{{2}, {0}, {}, {}};
  for (int bits : {4, 8}) {
    for (int64_t tile : {0, 8}) {
      for (bool weight_only : {false, true}) {
        AqtConfig config =
            AqtDotGeneralMake(weight_only ? AqtNumerics::None() : AqtNumerics::Integer(8), AqtNumerics::Integer(bits));
        config.tile = tile;
        const QArray frozen = AqtFreeze(test.run, w, dims, config);
        const Tensor trained = AqtDotGeneral(test.run, x, w, dims, config).out;
        EXPECT_TRUE(BitEqual(AqtServe(test.run, x, frozen, dims, config), trained));
        // One row alone.
        const Tensor row = x.Slice(0, 1, 2).Slice(1, 2, 3);
        EXPECT_TRUE(BitEqual(AqtServe(test.run, row, frozen, dims, config), trained.Slice(0, 1, 2).Slice(1, 2, 3)));
      }
    }
  }
}

TEST(Aqt, GradientsOfTilesAreThoseOfTheWhole) {
  TestRun test;
  const Tensor x = Random({4, 32}, 1), w = Random({32, 6}, 2), g = Random({4, 6}, 3);
  AqtConfig config = AqtDotGeneralMake(AqtNumerics::None(), AqtNumerics::Integer(8));
  config.tile = 8;
  const auto forward = AqtDotGeneral(test.run, x, w, kMatMul, config);
  const auto grads = AqtDotGeneralBackward(test.run, forward.residuals, config, g);
  EXPECT_LT(WorstError(grads.rhs, DotInDouble(x, g, {{0}, {0}, {}, {}})), 1e-6);  // original activations
  EXPECT_LT(WorstError(grads.lhs, DotInDouble(g, w, {{1}, {1}, {}, {}})), 0.03);
}

TEST(Aqt, ClippedValuesGetNoGradient) {
  TestRun test;
  AqtConfig config = AqtConfigV4({AqtNumerics::Integer(8), AqtNumerics::None(), AqtNumerics::None()}, AqtNoise::kNone);
  SetAqtClippingScale(config, 0.5);
  const Tensor x = F32({1, 3}, {-2, 0.5f, 2}), w = F32({3, 1}, {1, 1, 1});
  const auto forward = AqtDotGeneral(test.run, x, w, kMatMul, config);
  const auto grads = AqtDotGeneralBackward(test.run, forward.residuals, config, F32({1, 1}, {1}));
  EXPECT_EQ(Floats(grads.lhs)[0], 0.0f);
  EXPECT_EQ(Floats(grads.lhs)[1], 1.0f);
  EXPECT_EQ(Floats(grads.lhs)[2], 0.0f);
}

TEST(Aqt, NoiseIsInsideHalfAStep) {
  for (AqtNoise kind : {AqtNoise::kUniform, AqtNoise::kSixteenBits}) {
    const Tensor noise = MakeAqtNoise({3, 4}, {1000}, kind);
    double sum = 0;
    for (float value : noise.Values<float>()) {
      EXPECT_GE(value, -0.5f);
      EXPECT_LT(value, 0.5f);
      sum += value;
    }
    EXPECT_NEAR(sum / 1000, 0.0, 0.04);
  }
}

TEST(Aqt, Errors) {
  TestRun test;
  const AqtNumerics int8 = AqtNumerics::Integer(8);
  const AqtConfig config = AqtConfigV3({int8, int8, int8}, AqtNoise::kUniform, DType::kI32, 3);
  const Tensor x = Random({4, 16}, 1), w = Random({16, 8}, 2), g = Random({4, 8}, 3);
  const auto forward = AqtDotGeneral(test.run, x, w, kMatMul, config);
  EXPECT_THAT(UsageMessage([&] {
                AqtDotGeneralBackward(test.run, forward.residuals, config, g, RngKey{1, 2});
              }),
              HasSubstr("3 blocks"));
  EXPECT_THAT(UsageMessage([&] { AqtDotGeneral(test.run, x, CastFloat(w, DType::kBF16), kMatMul, config); }),
              HasSubstr("lhs is f32[4, 16], rhs bf16[16, 8]"));
  AqtConfig tiled = AqtDotGeneralMake(int8, int8);
  tiled.tile = 5;
  EXPECT_THAT(UsageMessage([&] { AqtDotGeneral(test.run, x, w, kMatMul, tiled); }), HasSubstr("tiles of 5"));
  AqtConfig bounds = AqtDotGeneralMake(int8, int8);
  EXPECT_THAT(UsageMessage([&] { SetAqtPerTensor(bounds, std::vector<double>{1, 2, 3}); }), HasSubstr("expected 6"));
  EXPECT_THROW(SetAqtPerTensor(bounds, std::vector<double>{1, 1, 0, 1, 1, 1}), Error);
  EXPECT_THROW(SetAqtClippingScale(bounds, -1), Error);
  const AqtConfig noisy = AqtConfigV3({int8, int8, AqtNumerics::None()}, AqtNoise::kUniform, std::nullopt);
  EXPECT_THAT(UsageMessage([&] { AqtDotGeneralBackward(test.run, forward.residuals, noisy, g); }),
              HasSubstr("needs a key"));
}

// intmp with a_bits alone: codes of the activations against the float weight; the weight's gradient meets the codes,
// the input's the float weight.
TEST(Aqt, ActivationsAlone) {
  TestRun test;
  const Tensor x = Random({6, 32}, 1), w = Random({32, 5}, 2), g = Random({6, 5}, 3);
  const AqtConfig config = AqtDotGeneralMake(AqtNumerics::Integer(8), AqtNumerics::None());
  const AqtForward forward = AqtDotGeneral(test.run, x, w, kMatMul, config);
  const QArray codes = AqtQuantize(x, Int8(), {1});
  const Tensor used = Dequantize(codes);
  EXPECT_LT(WorstError(forward.out, DotInDouble(used, w, kMatMul)), 1e-6);
  const AqtGradients grads = AqtDotGeneralBackward(test.run, forward.residuals, config, g);
  EXPECT_LT(WorstError(grads.lhs, DotInDouble(g, w, {{1}, {1}, {}, {}})), 1e-6);
  EXPECT_LT(WorstError(grads.rhs, DotInDouble(used, g, {{0}, {0}, {}, {}})), 1e-6);
}

}  // namespace
}  // namespace octavo::quant
