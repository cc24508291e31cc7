#include "octavo/quant/quantize_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "octavo/base/float_mode.h"
#include "octavo/numerics/small_float.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/noise.h"
#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

TEST(SmallFloat, SameCodesAsTheFormatTable) {
  const ScopedFloatMode mode;
  for (Format format : {Format::kF8E4M3FN, Format::kF8E5M2, Format::kF8E4M3FNUZ, Format::kF8E5M2FNUZ, Format::kF8E4M3,
                        Format::kF8E3M4, Format::kF8E4M3B11FNUZ, Format::kF6E2M3FN, Format::kF6E3M2FN,
                        Format::kF4E2M1FN, Format::kMxfp8, Format::kMxfp4, Format::kNvfp4}) {
    ASSERT_TRUE(SmallFloatEncoder::Handles(format));
    const SmallFloatEncoder encode(format);
    const auto same = [&](uint32_t bits) {
      const float value = std::bit_cast<float>(bits);
      ASSERT_EQ(encode(value), ConvertTo(format, value) & 0xff) << Info(format).name << " " << value << " " << bits;
    };
    // Every sign and exponent with the mantissas around which roundings turn.
    for (uint32_t top = 0; top < 512; ++top) {
      for (uint32_t step = 0; step < 1024; ++step) {
        for (uint32_t near : {0u, 1u, 0x1fffu}) same(top << 23 | step << 13 | near);
      }
    }
  }
  EXPECT_FALSE(SmallFloatEncoder::Handles(Format::kF8E8M0FNU));
  EXPECT_FALSE(SmallFloatEncoder::Handles(Format::kInt8));
  EXPECT_FALSE(SmallFloatEncoder::Handles(Format::kNF4));
}

TEST(MatrixBlocks, FindsRowsColumnsAndTiles) {
  const auto is = [](const Shape& array, const Shape& scale, int64_t rows, int64_t cols, int64_t br, int64_t bc) {
    const auto b = AsMatrixBlocks(array, scale);
    return b && b->rows == rows && b->cols == cols && b->block_rows == br && b->block_cols == bc;
  };
  EXPECT_TRUE(is({2, 3, 8}, {2, 3, 1}, 6, 8, 1, 8));           // a scale per token
  EXPECT_TRUE(is({2, 3, 8}, {1, 1, 8}, 6, 8, 6, 1));           // per column
  EXPECT_TRUE(is({2, 3, 8}, {2, 3, 4}, 6, 8, 1, 2));           // tiles in a row
  EXPECT_TRUE(is({4, 8}, {2, 8}, 4, 8, 2, 1));                 // tiles down a column
  EXPECT_TRUE(is({8, 2, 3}, {1, 2, 3}, 8, 6, 8, 1));           // a weight [D, heads, head]
  EXPECT_TRUE(is({2, 5, 3, 8}, {2, 5, 1, 1}, 10, 24, 1, 24));  // a token's heads
  EXPECT_TRUE(is({2, 3, 8}, {1, 1, 1}, 6, 8, 6, 8));           // per tensor
  EXPECT_TRUE(is({2, 4, 3, 8}, {2, 1, 1, 8}, 24, 8, 12, 1));   // local shards
  EXPECT_FALSE(AsMatrixBlocks({2, 4, 8}, {1, 2, 8}));          // shared before its channels: no blocks of rows
  EXPECT_FALSE(AsMatrixBlocks({0, 4}, {0, 1}));
}

struct Case {
  Shape shape;
  Granularity granularity;
};
std::vector<Case> Cases() {
  return {{{5, 33}, {{0}, {}}},
          {{5, 33}, {{1}, {}}},
          {{5, 33}, {}},
          {{6, 64}, {{0}, {{1, int64_t{16}}}}},
          {{6, 64}, {{1}, {{0, int64_t{3}}}}},
          {{6, 64}, {{}, {{0, int64_t{2}}, {1, int64_t{8}}}}},
          {{2, 3, 40}, {{0, 1}, {}}},
          {{2, 4, 24}, {{2}, {{1, int64_t{2}}}}},  // not blocks of a matrix: the general way
          {{1, 7}, {{0}, {}}}};
}

// Fast and plain ways agree to the bit for every format, dtype, method and granularity.
TEST(QuantizeRun, EqualsThePlainWay) {
  TestRun test(2);
  uint32_t seed = 1;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (Format format : {Format::kInt8, Format::kInt4, Format::kInt3, Format::kF8E4M3FN, Format::kF8E5M2,
                          Format::kF4E2M1FN, Format::kNF4, Format::kInt16}) {
      for (const char* method : {"absmax", "absmax,0.7", "minmax", "rms,3", "fixed,2"}) {
        if (std::string_view(method) == "minmax" && !Info(format).asymmetric) continue;
        for (const Case& one : Cases()) {
          const HowToQuantize how{format, one.granularity, ParseCalibration(method)};
          const Tensor x = Random(one.shape, ++seed, dtype, 3.0f);
          const QArray fast = Quantize(test.run, x, how), plain = Quantize(x, how);
          ASSERT_TRUE(BitEqual(fast.qvalue, plain.qvalue)) << ToString(plain) << " " << method;
          ASSERT_TRUE(BitEqual(fast.scale, plain.scale)) << ToString(plain) << " " << method;
          ASSERT_EQ(fast.zero_point.has_value(), plain.zero_point.has_value());
          ASSERT_TRUE(BitEqual(Dequantize(test.run, fast), Dequantize(plain))) << ToString(plain) << " " << method;
        }
      }
    }
  }
}

TEST(QuantizeRun, EqualsThePlainWayOnHardValues) {
  TestRun test;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = F32({4, 6}, {0, 0, 0,   -0.0f, 0,    0,      1e-40f, -1e-39f, 0,  1e-41f, 0, 0,
                                1, 2, inf, -3,    0.5f, 1e-30f, nan,    1,       -1, 5,      0, 2});
  for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN, Format::kF8E5M2}) {
    for (int axis : {0, 1}) {
      const HowToQuantize how{format, {{axis}, {}}, {}};
      const QArray fast = Quantize(test.run, x, how), plain = Quantize(x, how);
      EXPECT_TRUE(BitEqual(fast.qvalue, plain.qvalue)) << Info(format).name << axis;
      for (size_t i = 0; i < static_cast<size_t>(fast.scale.size()); ++i) {
        const float a = Floats(fast.scale)[i], b = Floats(plain.scale)[i];
        EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)));
      }
    }
  }
}

TEST(QuantizeRun, NoiseAndFactorAreFolded) {
  TestRun test;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor x = Random({6, 20}, 3, dtype);
    for (const Shape& varies : {Shape{6, 1}, Shape{1, 20}, Shape{1, 1}, Shape{6, 20}}) {
      const Tensor factor = Random(varies, 4, dtype);
      for (Format format : {Format::kInt8, Format::kInt6}) {
        for (int axis : {0, 1}) {
          for (int noise_axis : {0, 1}) {
            const HowToQuantize how{format, {{axis}, {}}, {}};
            const Tensor noise = MakeNoise({1, 2}, x.shape(), Rounding::kUniformNoise, std::vector<int>{noise_axis});
            const QArray fast = Quantize(test.run, x, how, &noise, &factor);
            const QArray plain = Quantize(TimesScale(x, factor), how, &noise);
            ASSERT_TRUE(BitEqual(fast.qvalue, plain.qvalue) && BitEqual(fast.scale, plain.scale));
          }
        }
      }
    }
  }
}

// The bits of a row do not depend on the rows that are quantized with it.
TEST(QuantizeRun, ARowAloneHasTheBitsOfTheBatch) {
  TestRun test;
  const Tensor x = Random({9, 48}, 8);
  for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN}) {
    for (auto tiles : {std::map<int, TileSize>{}, std::map<int, TileSize>{{1, int64_t{16}}}}) {
      const HowToQuantize how{format, {{0}, tiles}, {}};
      const QArray all = Quantize(test.run, x, how);
      for (int64_t row = 0; row < 9; ++row) {
        for (const QArray& one :
             {Quantize(test.run, x.Slice(0, row, row + 1), how), Quantize(x.Slice(0, row, row + 1), how)}) {
          EXPECT_TRUE(BitEqual(one.qvalue, all.qvalue.Slice(0, row, row + 1)));
          EXPECT_TRUE(BitEqual(one.scale, all.scale.Slice(0, row, row + 1)));
        }
      }
    }
  }
}

TEST(QuantizeRun, ThreadsDoNotMatter) {
  const Tensor x = Random({37, 130}, 8);
  for (Format format : {Format::kInt8, Format::kF8E4M3FN}) {
    for (int axis : {0, 1}) {
      const HowToQuantize how{format, {{axis}, {}}, {}};
      TestRun one(1);
      const QArray expected = Quantize(one.run, x, how);
      for (int threads : {2, 3, 7}) {
        TestRun many(threads);
        const QArray found = Quantize(many.run, x, how);
        EXPECT_TRUE(BitEqual(found.qvalue, expected.qvalue) && BitEqual(found.scale, expected.scale));
      }
    }
  }
}

TEST(QuantizeRun, NonFiniteIsAnErrorIfAsked) {
  TestRun test;
  test.run.arithmetic.non_finite = NonFinite::kError;
  test.run.arithmetic.site = "decoder/logits";
  const Tensor x = F32({2, 2}, {1, 2, std::numeric_limits<float>::quiet_NaN(), 0});
  for (Format format : {Format::kInt8, Format::kF8E4M3FN}) {
    try {
      Quantize(test.run, x, {format, {{0}, {}}, {}});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNumbers);
      EXPECT_THAT(error.message(), ::testing::HasSubstr("at decoder/logits"));
    }
  }
}

}  // namespace
}  // namespace octavo::quant
