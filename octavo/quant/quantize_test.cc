#include "octavo/quant/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"

namespace octavo::quant {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor F32(const Shape& shape, const std::vector<float>& values) {
  return Tensor::FromValues<float>(shape, DType::kF32, values);
}

Tensor As(DType dtype, const Shape& shape, const std::vector<float>& values) {
  return CastFloat(F32(shape, values), dtype);
}

std::vector<float> Floats(const Tensor& tensor) { return CastFloat(tensor, DType::kF32).ToVector<float>(); }

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

HowToQuantize How(Format format, std::vector<int> channels = {}, std::map<int, TileSize> tiles = {},
                  const char* method = "absmax") {
  return {format, {std::move(channels), std::move(tiles)}, ParseCalibration(method)};
}

TEST(Quantize, OneElementOfEachRange) {
  // absmax 3: one scale, so a true division: 3 / 127.5 = 0x3CC0C0C1; 3 / scale is 127.5, rounds to 128, saturates.
  QArray q = Quantize(F32({3}, {3.0f, -3.0f, 0.0f}), How(Format::kInt8));
  EXPECT_EQ(std::bit_cast<uint32_t>(q.scale.At<float>({0})), 0x3CC0C0C1u);
  EXPECT_THAT(q.qvalue.ToVector<int8_t>(), ElementsAre(127, -128, 0));
}

TEST(Quantize, ReciprocalRuleIsASwitch) {
  // Several scales in f32: absmax * fl(1 / 127.5), which is one unit above the quotient for 3.
  const Tensor x = F32({2, 1}, {3.0f, 0.1f});
  Arithmetic truth{DivisionRule::kTrue};
  EXPECT_EQ(std::bit_cast<uint32_t>(Quantize(x, How(Format::kInt8, {0})).scale.At<float>({0, 0})), 0x3CC0C0C2u);
  EXPECT_EQ(std::bit_cast<uint32_t>(Quantize(x, How(Format::kInt8, {0}), nullptr, truth).scale.At<float>({0, 0})),
            0x3CC0C0C1u);
  // bf16 divides truly either way.
  const Tensor b = CastFloat(x, DType::kBF16);
  EXPECT_TRUE(
      BitEqual(Quantize(b, How(Format::kInt8, {0})).scale, Quantize(b, How(Format::kInt8, {0}), nullptr, truth).scale));
}

TEST(Quantize, MinMaxUsesAllCodes) {
  std::vector<float> values(256);
  for (int i = 0; i < 256; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i) / 255.0f;
  QArray q = Quantize(F32({256}, values), How(Format::kInt8, {}, {}, "minmax"));
  EXPECT_EQ(q.zero_point->At<int8_t>({0}), -128);
  for (int64_t i = 0; i < 256; ++i) EXPECT_EQ(q.qvalue.At<int8_t>({i}), i - 128);
  const std::vector<float> back = Floats(Dequantize(q));
  for (size_t i = 0; i < 256; ++i) EXPECT_NEAR(back[i], values[i], 1e-6);
}

TEST(Quantize, BlockScales) {
  auto scale_of = [](Format format, float absmax, MxScaleRule rule) {
    Arithmetic arithmetic;
    arithmetic.mx_scale = rule;
    CalibrationRange range = CalibrationRange::Symmetric(F32({1}, {absmax}));
    return ComputeScale(range, format, arithmetic).scale.At<float>({0});
  };
  EXPECT_EQ(scale_of(Format::kMxfp4, 6.5f, MxScaleRule::kFloor), 1.0f);
  EXPECT_EQ(scale_of(Format::kMxfp4, 7.5f, MxScaleRule::kFloor), 2.0f);
  EXPECT_EQ(scale_of(Format::kMxfp8, 460.0f, MxScaleRule::kFloor), 1.0f);
  EXPECT_EQ(scale_of(Format::kMxfp8_16, 465.0f, MxScaleRule::kFloor), 2.0f);
  EXPECT_EQ(scale_of(Format::kMxfp4, 6.5f, MxScaleRule::kCeilLog2), 2.0f);
  EXPECT_EQ(scale_of(Format::kNvfp4, 6.6f, MxScaleRule::kFloor), 1.125f);  // 1.1 in e4m3
  EXPECT_EQ(scale_of(Format::kNvfp4, 6000.0f, MxScaleRule::kFloor), 448.0f);
}

TEST(Quantize, ZeroGuard) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    QArray q = Quantize(As(dtype, {2, 2}, {0, 0, 1, 2}), How(Format::kInt8, {0}));
    EXPECT_EQ(Floats(q.scale)[0], 1.0f);
    EXPECT_EQ(q.qvalue.At<int8_t>({0, 0}), 0);
  }
  // f16: any row below 127.5 / 128 gets scale 1.
  EXPECT_EQ(Floats(Quantize(As(DType::kF16, {1}, {0.9f}), How(Format::kInt8)).scale)[0], 1.0f);
  EXPECT_EQ(Floats(Quantize(As(DType::kF32, {1}, {1e-20f}), How(Format::kInt8)).scale)[0], 1.0f);
}

TEST(Quantize, RoundsInTheDtypeOfTheArray) {
  // In bf16 the quotient itself is rounded before it becomes an integer.
  std::vector<float> values = Normal(512, 3);
  for (float& value : values) value = RoundToBF16(value);
  QArray q = Quantize(As(DType::kBF16, {512}, values), How(Format::kInt8));
  const float scale = Floats(q.scale)[0];
  int differ = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = q.qvalue.At<int8_t>({static_cast<int64_t>(i)});
    EXPECT_EQ(code, std::clamp(std::nearbyint(RoundToBF16(values[i] / scale)), -128.0f, 127.0f));
    differ += code != std::nearbyint(values[i] / scale);
  }
  EXPECT_GT(differ, 0);
}

TEST(Quantize, TilesHaveTheirOwnScales) {
  // Every tile of a 2-D blocked array quantizes as it would alone.
  const Tensor x = F32({4, 6}, Normal(24, 7));
  QArray q = Quantize(x, How(Format::kInt8, {}, {{0, int64_t{2}}, {1, int64_t{3}}}));
  EXPECT_EQ(q.scale.shape(), Shape({2, 2}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      const Tensor block = x.Slice(0, 2 * i, 2 * i + 2).Slice(1, 3 * j, 3 * j + 3);
      float largest = 0;
      for (float value : block.ToVector<float>()) largest = std::max(largest, std::fabs(value));
      EXPECT_EQ(q.scale.At<float>({i, j}), largest * (1.0f / 127.5f));
    }
  }
}

TEST(Quantize, ErrorShrinksWithBits) {
  const Tensor x = F32({64, 64}, Normal(4096, 11));
  double last = 1.0;
  for (Format format :
       {Format::kInt2, Format::kInt3, Format::kInt4, Format::kInt5, Format::kInt6, Format::kInt7, Format::kInt8}) {
    const std::vector<float> in = x.ToVector<float>(), out = Floats(Dequantize(Quantize(x, How(format, {0}))));
    double error = 0, size = 0;
    for (size_t i = 0; i < in.size(); ++i) error += std::fabs(in[i] - out[i]), size += std::fabs(in[i]);
    EXPECT_LT(error / size, last * 0.65) << Info(format).name;
    last = error / size;
  }
  EXPECT_NEAR(last, 0.0077, 0.0015);
}

TEST(Quantize, NoiseMovesTheRounding) {
  const Tensor x = F32({2, 2}, {0.25f, 0.25f, 1.0f, 1.0f});
  ScaleAndZeroPoint unit{F32({1, 1}, {1.0f}), std::nullopt};
  const Tensor noise = F32({2, 1}, {0.3f, -0.4f});
  EXPECT_THAT(QuantizeWithScale(x, Format::kInt8, unit, &noise).qvalue.ToVector<int8_t>(), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(QuantizeWithScale(x, Format::kInt6, unit, &noise).qvalue.ToVector<int8_t>(), ElementsAre(0, 0, 1, 1));
  const Tensor wide = F32({3, 1}, {0, 0, 0});
  EXPECT_THROW(QuantizeWithScale(x, Format::kInt8, unit, &wide), Error);
}

TEST(Quantize, NonFiniteValuesPropagateOrStop) {
  for (float bad : {kNan, kInf, -kInf}) {
    const Tensor x = F32({2, 2}, {1.0f, 2.0f, bad, 4.0f});
    QArray q = Quantize(x, How(Format::kInt8, {0}));
    EXPECT_TRUE(std::isfinite(q.scale.At<float>({0, 0})));
    EXPECT_FALSE(std::isfinite(q.scale.At<float>({1, 0})));
    Arithmetic strict;
    strict.non_finite = NonFinite::kError;
    strict.site = "decoder/layers_3/mlp/wi_0";
    for (const char* method : {"absmax", "minmax", "rms,3"}) {
      try {
        Calibrate(x, How(Format::kInt8, {0}, {}, method), strict);
        FAIL() << method;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kNumbers);
        EXPECT_THAT(error.message(), HasSubstr("Calibrate at decoder/layers_3/mlp/wi_0: "));
      }
    }
  }
}

TEST(Quantize, RefusesOtherDtypes) {
  EXPECT_THROW(Quantize(Tensor::Zeros({2}, DType::kI32), How(Format::kInt8)), Error);
  EXPECT_THROW(Quantize(Tensor::Zeros({2}, DType::kF64), How(Format::kInt8)), Error);
  EXPECT_THROW(Quantize(F32({2}, {1, 2}), How(Format::kInt6, {}, {}, "minmax")), Error);
  EXPECT_THROW(Quantize(F32({2}, {1, 2}), How(Format::kF8E4M3FN, {}, {}, "fixed,-1,2")), Error);
  EXPECT_THROW(Quantize(Tensor::Meta({2}, DType::kF32), How(Format::kInt8)), Error);
  EXPECT_THROW(ComputeScale(CalibrationRange{}, Format::kInt8), Error);
  ScaleAndZeroPoint bad{F32({2}, {1, 1}), Tensor::Zeros({1}, DType::kI8)};
  EXPECT_THROW(QuantizeWithScale(F32({2}, {1, 2}), Format::kInt8, bad), Error);
  bad = {F32({3}, {1, 1, 1}), std::nullopt};
  EXPECT_THROW(QuantizeWithScale(F32({2}, {1, 2}), Format::kInt8, bad), Error);
}

TEST(Quantize, EmptyArrays) {
  QArray q = Quantize(Tensor::Zeros({0, 4}, DType::kF32), How(Format::kInt8, {0}));
  EXPECT_EQ(q.scale.shape(), Shape({0, 1}));
  q = Quantize(Tensor::Zeros({0, 4}, DType::kF32), How(Format::kInt8, {1}));
  EXPECT_THAT(q.scale.ToVector<float>(), Each(1.0f));
  EXPECT_EQ(Dequantize(q).shape(), Shape({0, 4}));
}

TEST(Quantize, StridedInputEqualsItsCopy) {
  const Tensor x = F32({6, 4}, Normal(24, 5)).Transpose();
  QArray view = Quantize(x, How(Format::kF8E4M3FN, {0})), copy = Quantize(x.Clone(), How(Format::kF8E4M3FN, {0}));
  EXPECT_TRUE(BitEqual(view.qvalue, copy.qvalue));
  EXPECT_TRUE(BitEqual(Dequantize(Transpose(view)), Dequantize(copy).Transpose()));
}

TEST(Quantize, ScaleDTypeAfterwards) {
  QArray q = Quantize(F32({2, 2}, {0.3f, 1, 2, 0.7f}), How(Format::kInt8, {0}));
  QArray b = WithScaleDType(q, DType::kBF16);
  EXPECT_TRUE(BitEqual(q.qvalue, b.qvalue));
  EXPECT_EQ(Dequantize(b).dtype(), DType::kBF16);
}

TEST(MaskGradient, OutsideTheRangeOnly) {
  const Tensor x = F32({5}, {-2, -1, 0, 1, 2}), grad = F32({5}, {1, 2, 3, 4, 5});
  auto masked = [&](const char* method) {
    HowToQuantize how = How(Format::kInt8, {}, {}, method);
    return MaskGradient(grad, x, Calibrate(x, how), how.calibration).ToVector<float>();
  };
  EXPECT_THAT(masked("absmax"), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(masked("absmax,1.5"), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(masked("absmax,0.5"), ElementsAre(0, 2, 3, 4, 0));  // the ends are inside
  EXPECT_THAT(masked("minmax,0.6"), ElementsAre(0, 2, 3, 4, 0));
  EXPECT_THAT(masked("fixed,-1,1.5"), ElementsAre(0, 2, 3, 4, 0));
  EXPECT_THAT(masked("rms,1"), ElementsAre(0, 2, 3, 4, 0));
  // Data outside a range that came from elsewhere is not masked when the method never clips.
  EXPECT_THAT(MaskGradient(grad, x, CalibrationRange::Symmetric(F32({1}, {0.5f})), ParseCalibration("absmax"))
                  .ToVector<float>(),
              ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(ClipToRange(x, CalibrationRange::Symmetric(F32({1}, {1.5f}))).ToVector<float>(),
              ElementsAre(-1.5f, -1, 0, 1, 1.5f));
  EXPECT_THROW(MaskGradient(F32({1}, {1}), x, CalibrationRange::Symmetric(F32({1}, {1})), ParseCalibration("rms,1")),
               Error);
}

}  // namespace
}  // namespace octavo::quant
