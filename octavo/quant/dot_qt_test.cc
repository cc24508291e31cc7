#include "octavo/quant/dot_qt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/quant/dot_axes.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::HasSubstr;

DotQtConfig Config(std::optional<Format> forward, std::optional<Format> gradient) {
  DotQtConfig config;
  config.lhs.format = config.rhs.format = forward;
  config.grad_lhs.format = config.grad_rhs.format = gradient;
  return config;
}

struct Sample {
  Tensor lhs, rhs, grad;
  DotDims dims;
};
Sample Make(const Shape& lhs, const Shape& rhs, const DotDims& dims, uint32_t seed, DType dtype = DType::kF32) {
  return {Random(lhs, seed, dtype), Random(rhs, seed + 1, dtype),
          Random(DotShape("test", lhs, rhs, dims), seed + 2, dtype), dims};
}

// The gradient towards one operand by the formula, in double, from the quantized operands that the backward pass used.
DoubleDot FormulaGradient(bool for_lhs, const Sample& s, const DotQtForward& forward, const GradientTrace& trace) {
  const GradientAxes axes = AxesOfGradient(for_lhs, s.lhs.rank(), s.rhs.rank(), s.dims);
  const DotOperand& other = for_lhs ? forward.residuals.rhs : forward.residuals.lhs;
  const auto* array = std::get_if<QArray>(&other);
  Tensor y = array != nullptr ? Dequantize(*array) : std::get<Tensor>(other);
  Tensor g = s.grad;
  if (trace.grad) {
    g = Dequantize(*trace.grad);
    QArray bare = *array;  // its scale is in g now
    bare.scale = CastFloat(F32(Shape(std::vector<int64_t>(static_cast<size_t>(y.rank()), 1)), {1.0f}), y.dtype());
    y = Dequantize(bare);
  }
  return DotInDouble(g, y, axes.dims);
}

Tensor BackInProductOrder(const Tensor& gradient, const GradientAxes& axes) {
  std::vector<int> inverse(axes.order.size());
  for (size_t i = 0; i < axes.order.size(); ++i) inverse[static_cast<size_t>(axes.order[i])] = static_cast<int>(i);
  return gradient.Permute(inverse);
}

TEST(DotQt, GradientsFollowTheFormula) {
  TestRun test;
  const std::vector<Sample> samples = {
      Make({6, 40}, {40, 9}, {{1}, {0}, {}, {}}, 1), Make({2, 5, 24}, {24, 3, 4}, {{2}, {0}, {}, {}}, 4),
      Make({2, 5, 3, 8}, {3, 8, 7}, {{2, 3}, {0, 1}, {}, {}}, 7),
      Make({3, 4, 16}, {3, 16, 5}, {{2}, {1}, {0}, {0}}, 10), Make({8, 3, 4}, {8, 5, 3}, {{0, 1}, {0, 2}, {}, {}}, 13)};
  for (const Sample& s : samples) {
    for (Format gradient : {Format::kInt8, Format::kF8E5M2}) {
      const DotQtConfig config = Config(gradient == Format::kInt8 ? Format::kInt8 : Format::kF8E4M3FN, gradient);
      const DotQtForward forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
      const auto grads = DotGeneralQtBackward(test.run, forward.residuals, config, s.grad, std::nullopt, true);
      EXPECT_EQ(grads.lhs.shape(), s.lhs.shape());
      EXPECT_EQ(grads.rhs.shape(), s.rhs.shape());
      for (bool for_lhs : {true, false}) {
        const GradientAxes axes = AxesOfGradient(for_lhs, s.lhs.rank(), s.rhs.rank(), s.dims);
        const DoubleDot truth = FormulaGradient(for_lhs, s, forward, for_lhs ? grads.lhs_trace : grads.rhs_trace);
        EXPECT_LT(WorstError(BackInProductOrder(for_lhs ? grads.lhs : grads.rhs, axes), truth), 2e-6);
        // And it is near the float gradient.
        const DoubleDot exact = DotInDouble(s.grad, for_lhs ? s.rhs : s.lhs, axes.dims);
        EXPECT_LT(WorstError(BackInProductOrder(for_lhs ? grads.lhs : grads.rhs, axes), exact),
                  gradient == Format::kInt8 ? 0.06 : 0.2);
      }
    }
  }
}

TEST(DotQt, Int8RunsOnIntegerKernelsInAllThreeProducts) {
  TestRun test;
  const Sample s = Make({2, 16, 32}, {32, 12}, {{2}, {0}, {}, {}}, 3);
  DotQtConfig config = Config(Format::kInt8, Format::kInt8);
  const int64_t macs = 2 * 16 * 32 * 12;
  const DotQtForward forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
  EXPECT_EQ(test.macs.integer, macs);
  DotGeneralQtBackward(test.run, forward.residuals, config, s.grad);
  EXPECT_EQ(test.macs.integer, 3 * macs);
  EXPECT_EQ(test.macs.floating, 0);
  EXPECT_FALSE(forward.residuals.lhs_in.has_value());  // only the codes are kept
  EXPECT_FALSE(forward.residuals.rhs_in.has_value());
}

TEST(DotQt, FastAndPlainWaysAgree) {
  TestRun test(2);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Sample s = Make({2, 8, 32}, {32, 12}, {{2}, {0}, {}, {}}, 5, dtype);
    std::vector<DotQtConfig> configs = {Config(Format::kInt8, Format::kInt8), Config(Format::kInt4, Format::kInt8),
                                        Config(Format::kF8E4M3FN, Format::kF8E5M2),
                                        Config(Format::kInt8, std::nullopt)};
    configs[0].grad_rhs.tile = 0.5;
    configs[1].lhs.calibration = ParseCalibration("absmax,0.6");
    for (const DotQtConfig& config : configs) {
      const auto fast = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
      const auto plain = DotGeneralQt(test.Reference(), s.lhs, s.rhs, s.dims, config);
      EXPECT_TRUE(BitEqual(fast.out, plain.out));
      const auto a = DotGeneralQtBackward(test.run, fast.residuals, config, s.grad);
      const auto b = DotGeneralQtBackward(test.Reference(), plain.residuals, config, s.grad);
      EXPECT_TRUE(BitEqual(a.lhs, b.lhs));
      EXPECT_TRUE(BitEqual(a.rhs, b.rhs));
    }
  }
}

TEST(DotQt, FloatBackwardUsesQuantizedOrOriginalResiduals) {
  TestRun test;
  const Sample s = Make({6, 40}, {40, 9}, {{1}, {0}, {}, {}}, 1);
  DotQtConfig config = Config(Format::kInt4, std::nullopt);
  const GradientAxes axes = AxesOfGradient(true, 2, 2, s.dims);
  for (bool original : {false, true}) {
    config.original_residuals = original;
    const auto forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
    const auto grads = DotGeneralQtBackward(test.run, forward.residuals, config, s.grad);
    const Tensor y = original ? s.rhs : Dequantize(std::get<QArray>(forward.residuals.rhs));
    EXPECT_LT(WorstError(grads.lhs, DotInDouble(s.grad, y, axes.dims)), 1e-6);
  }
}

TEST(DotQt, TiledForwardFallsBackToOriginalsInBackward) {
  TestRun test;
  const Sample s = Make({6, 40}, {40, 9}, {{1}, {0}, {}, {}}, 1);
  DotQtConfig config = Config(Format::kInt8, Format::kInt8);
  config.tile = int64_t{8};
  const auto forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
  ASSERT_TRUE(forward.residuals.rhs_in.has_value());
  const auto grads = DotGeneralQtBackward(test.run, forward.residuals, config, s.grad, std::nullopt, true);
  const GradientAxes axes = AxesOfGradient(true, 2, 2, s.dims);
  EXPECT_LT(WorstError(grads.lhs, DotInDouble(Dequantize(*grads.lhs_trace.grad), s.rhs, axes.dims)), 1e-6);
}

TEST(DotQt, GradientsAreMaskedOutsideAClippedRange) {
  TestRun test;
  const Tensor lhs = F32({1, 3}, {-2, 0, 2}), rhs = F32({3, 1}, {1, 1, 1}), grad = F32({1, 1}, {1});
  DotQtConfig config = Config(Format::kInt8, std::nullopt);
  config.lhs.calibration = ParseCalibration("absmax,0.5");
  const DotDims dims{{1}, {0}, {}, {}};
  const auto forward = DotGeneralQt(test.run, lhs, rhs, dims, config);
  const auto masked = Floats(DotGeneralQtBackward(test.run, forward.residuals, config, grad).lhs);
  EXPECT_EQ(masked[0], 0.0f);
  EXPECT_NEAR(masked[1], 1.0f, 0.01f);
  EXPECT_EQ(masked[2], 0.0f);
  config.mask_gradients = false;
  const auto open = DotGeneralQt(test.run, lhs, rhs, dims, config);
  EXPECT_NEAR(Floats(DotGeneralQtBackward(test.run, open.residuals, config, grad).lhs)[0], 1.0f, 0.01f);
}

TEST(DotQt, GivenRangesReplaceTheData) {
  TestRun test;
  const Sample s = Make({4, 8}, {8, 3}, {{1}, {0}, {}, {}}, 2);
  const DotQtConfig config = Config(Format::kInt8, std::nullopt);
  const CalibrationRange range = CalibrationRange::Symmetric(F32({1, 1}, {127.5f}));
  const auto forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config, {&range, nullptr});
  EXPECT_EQ(std::get<QArray>(forward.residuals.lhs).scale.At<float>({0, 0}), 1.0f);
}

TEST(DotQt, SparseWeightsGetNoGradientWherePruned) {
  TestRun test;
  const Sample s = Make({4, 8}, {8, 4}, {{1}, {0}, {}, {}}, 2);
  DotQtConfig config = Config(Format::kInt8, Format::kInt8);
  config.rhs_sparsity = SparsityPattern{2, 4};
  const auto forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
  const auto grads = DotGeneralQtBackward(test.run, forward.residuals, config, s.grad);
  const auto mask = forward.residuals.rhs_mask->ToVector<uint8_t>();
  const auto grad = Floats(grads.rhs);
  int kept = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) {
      EXPECT_EQ(grad[i], 0.0f);
    }
    kept += mask[i];
  }
  EXPECT_EQ(kept, 16);
  EXPECT_TRUE(BitEqual(forward.out, DotGeneralQt(test.run, s.lhs, Pruned(s.rhs, *forward.residuals.rhs_mask), s.dims,
                                                 Config(Format::kInt8, Format::kInt8))
                                        .out));
}

TEST(DotQt, NoiseNeedsAKeyAndIsUnbiased) {
  TestRun test;
  // Long rows: the one element at the end of the range, which saturates, must not matter.
  const Sample s = Make({4, 16}, {16, 200}, {{1}, {0}, {}, {}}, 2);
  DotQtConfig config = Config(Format::kInt8, Format::kInt4);
  config.grad_lhs.rounding = config.grad_rhs.rounding = Rounding::kUniformNoise;
  config.grad_lhs.noise_axes = config.grad_rhs.noise_axes = {0, 1};
  const auto forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
  EXPECT_THAT(UsageMessage([&] { DotGeneralQtBackward(test.run, forward.residuals, config, s.grad); }),
              HasSubstr("needs a key"));
  const auto once = DotGeneralQtBackward(test.run, forward.residuals, config, s.grad, RngKey{1, 2});
  EXPECT_TRUE(BitEqual(once.lhs, DotGeneralQtBackward(test.run, forward.residuals, config, s.grad, RngKey{1, 2}).lhs));
  std::vector<double> mean(static_cast<size_t>(once.lhs.size()), 0.0);
  constexpr int kRounds = 400;
  for (uint32_t i = 0; i < kRounds; ++i) {
    const auto values = Floats(DotGeneralQtBackward(test.run, forward.residuals, config, s.grad, RngKey{7, i}).lhs);
    for (size_t j = 0; j < mean.size(); ++j) mean[j] += values[j] / kRounds;
  }
  DotQtConfig plain = config;
  plain.grad_lhs.format = plain.grad_rhs.format = std::nullopt;
  const auto exact = Floats(DotGeneralQtBackward(test.run, forward.residuals, plain, s.grad).lhs);
  const auto nearest = [&] {
    DotQtConfig c = config;
    c.grad_lhs.rounding = c.grad_rhs.rounding = Rounding::kNearest;
    return Floats(DotGeneralQtBackward(test.run, forward.residuals, c, s.grad).lhs);
  }();
  double stochastic_error = 0, nearest_error = 0;
  for (size_t j = 0; j < mean.size(); ++j) {
    stochastic_error += std::fabs(mean[j] - exact[j]);
    nearest_error += std::fabs(nearest[j] - exact[j]);
  }
  EXPECT_LT(stochastic_error, 0.35 * nearest_error);
}

TEST(DotQt, Errors) {
  TestRun test;
  const Sample s = Make({4, 8}, {8, 4}, {{1}, {0}, {}, {}}, 2);
  DotQtConfig config = Config(Format::kInt6, Format::kInt8);
  const auto forward = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
  EXPECT_THAT(UsageMessage([&] { DotGeneralQtBackward(test.run, forward.residuals, config, s.grad); }),
              HasSubstr("a residual in int6 cannot enter a quantized gradient"));
  config = Config(Format::kInt8, Format::kInt8);
  config.rhs.calibration = ParseCalibration("minmax");
  const auto asymmetric = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
  EXPECT_THAT(UsageMessage([&] { DotGeneralQtBackward(test.run, asymmetric.residuals, config, s.grad); }),
              HasSubstr("with a zero point"));
  config = Config(Format::kInt8, Format::kInt8);
  const auto good = DotGeneralQt(test.run, s.lhs, s.rhs, s.dims, config);
  EXPECT_THAT(UsageMessage([&] {
                DotGeneralQtBackward(test.run, good.residuals, config, Random({4, 5}, 1));
              }),
              HasSubstr("the gradient is [4, 5], the output was [4, 4]"));
  config.grad_rhs.tile = int64_t{3};
  EXPECT_THAT(UsageMessage([&] { DotGeneralQtBackward(test.run, good.residuals, config, s.grad); }),
              HasSubstr("cannot be tiled by 3"));
  EXPECT_THAT(UsageMessage([&] {
                DotGeneralQt(test.run, s.lhs, s.rhs, {{0}, {0}, {}, {}}, config);
              }),
              HasSubstr("DotGeneralQt: lhs [4, 8] contracts 4, rhs [8, 4] wants 8"));
}

}  // namespace
}  // namespace octavo::quant
