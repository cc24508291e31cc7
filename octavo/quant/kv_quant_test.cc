#include "octavo/quant/kv_quant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(KvQuant, SaturatesAtBothEnds) {
  const QuantizedKv stored = QuantizeKv(F32({1, 1, 4}, {1, -1, 0.5f, 0}), {Format::kInt8, KvAxes::kDkv});
  EXPECT_THAT(stored.codes.ToVector<int8_t>(), ElementsAre(127, -128, 64, 0));  // 127.5 saturates, 63.75 rounds
  EXPECT_EQ(stored.amax.At<float>({0, 0, 0}), 1.0f);
  EXPECT_THAT(QuantizeKv(F32({1, 1, 2}, {3, -3}), {Format::kInt4, KvAxes::kDkv}).codes.ToVector<int8_t>(),
              ElementsAre(7, -8));
}

TEST(KvQuant, AxesShareTheRange) {
  const Tensor kv = Random({2, 3, 4, 8}, 1);
  EXPECT_EQ(QuantizeKv(kv, {Format::kInt8, KvAxes::kDkv}).amax.shape(), Shape({2, 3, 4, 1}));
  EXPECT_EQ(QuantizeKv(kv, {Format::kInt8, KvAxes::kHeadsAndDkv}).amax.shape(), Shape({2, 3, 1, 1}));
  EXPECT_EQ(ParseKvAxes("dkv"), KvAxes::kDkv);
  EXPECT_THROW(ParseKvAxes("heads"), Error);
  EXPECT_THROW(ParseKvAxes(""), Error);
}

TEST(KvQuant, ZeroRowsStayZero) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN}) {
      const KvQuant how{format, KvAxes::kDkv};
      const QuantizedKv stored = QuantizeKv(CastFloat(F32({2, 1, 3}, {0, 0, 0, 1, 2, 3}), dtype), how);
      EXPECT_THAT(Floats(DequantizeKv(stored, how).Slice(0, 0, 1)), Each(0.0f));
    }
  }
}

TEST(KvQuant, ErrorIsSmall) {
  const Tensor kv = Random({4, 16, 2, 64}, 5);
  struct Limit {
    Format format;
    double error;
  };
  for (const Limit& limit : {Limit{Format::kInt8, 0.012}, Limit{Format::kInt4, 0.2}, Limit{Format::kF8E4M3FN, 0.04}}) {
    const KvQuant how{limit.format, KvAxes::kDkv};
    const auto a = Floats(kv), b = Floats(DequantizeKv(QuantizeKv(kv, how), how));
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) error += std::fabs(a[i] - b[i]), size += std::fabs(a[i]);
    EXPECT_LT(error / size, limit.error) << Info(limit.format).name;
    EXPECT_GT(error / size, limit.error / 10);
  }
}

// A token's stored and read values do not depend on what else is written or read with it.
TEST(KvQuant, OneTokenAloneHasTheBitsOfMany) {
  const Tensor kv = Random({7, 2, 16}, 5);
  for (KvAxes axes : {KvAxes::kDkv, KvAxes::kHeadsAndDkv}) {
    const KvQuant how{Format::kInt8, axes};
    const Tensor all = DequantizeKv(QuantizeKv(kv, how), how);
    for (int64_t token = 0; token < 7; ++token) {
      const Tensor one = DequantizeKv(QuantizeKv(kv.Slice(0, token, token + 1), how), how);
      EXPECT_TRUE(BitEqual(one, all.Slice(0, token, token + 1)));
    }
  }
}

TEST(KvQuant, RefusesOtherFormats) {
  EXPECT_THROW(QuantizeKv(Random({2, 2}, 1), {Format::kF8E5M2, KvAxes::kDkv}), Error);
  EXPECT_THROW(QuantizeKv(Random({2}, 1), {Format::kInt8, KvAxes::kHeadsAndDkv}), Error);
}

}  // namespace
}  // namespace octavo::quant
