#include "octavo/quant/kv_quant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/kernels/kv_write.h"
#include "octavo/ops/kv_pages.h"
#include "octavo/ops/test_support.h"
#include "octavo/quant/quant_test_support.h"
#include "octavo/quant/quantize.h"

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

// What the cache's writer stores is what these formulas say, for every format, both axes, f32 and bf16.
TEST(KvQuant, TheCacheWriterHasTheseBits) {
  constexpr int64_t kTokens = 5, kHeads = 3, kWidth = 7;
  ThreadPool pool(2);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Tensor kv = ops::RandomTensor({kTokens, kHeads, kWidth}, 3, -4, 4);
    for (int64_t i = 0; i < kWidth * kHeads; ++i) kv.MutableData<float>()[2 * kWidth * kHeads + i] = 0;
    kv.MutableData<float>()[0] = -4.5f;  // the largest magnitude of its row is negative
    kv = CastFloat(kv, dtype).Contiguous();
    for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN}) {
      for (KvAxes axes : {KvAxes::kDkv, KvAxes::kHeadsAndDkv}) {
        const KvQuant how{format, axes};
        const QuantizedKv expected = QuantizeKv(kv, how);
        const Tensor scale = CastFloat(KvReadScale(expected.amax, how), DType::kF32).Contiguous();
        const bool per_head = axes == KvAxes::kDkv;
        const ops::KvFormat stored{format, per_head};
        std::vector<std::byte> data(static_cast<size_t>(kTokens * kHeads * kWidth));
        std::vector<float> scales(static_cast<size_t>(kTokens * kHeads), -1.0f);
        kernels::KvWriteArgs args;
        args.in = {kv.RawData(), dtype, kHeads * kWidth, kWidth};
        args.heads = kHeads;
        args.width = kWidth;
        args.side = ops::KvSideOfTokens(stored, kHeads, kWidth, data.data(), scales.data());
        args.data = data.data();
        args.scale = scales.data();
        kernels::AttentionSequence all;
        all.query_count = all.kv_length = kTokens;
        args.sequences = &all;
        args.sequence_count = 1;
        kernels::WriteKv(pool, args);
        const Tensor codes = expected.codes.Contiguous();
        for (int64_t t = 0; t < kTokens; ++t) {
          for (int64_t h = 0; h < kHeads; ++h) {
            const auto* row = reinterpret_cast<const uint8_t*>(kernels::KvRow(args.side, all, h, t));
            const int64_t part = per_head ? t * kHeads + h : t;
            EXPECT_EQ(*kernels::KvScaleAt(args.side, all, h, t), scale.Values<float>()[static_cast<size_t>(part)]);
            for (int64_t c = 0; c < kWidth; ++c) {
              const auto byte = static_cast<uint8_t>(codes.RawData()[(t * kHeads + h) * kWidth + c]);
              const int found = format == Format::kInt4 ? row[c / 2] >> (c % 2 * 4) & 15 : row[c];
              ASSERT_EQ(found, format == Format::kInt4 ? byte & 15 : byte)
                  << Info(format).name << " " << t << " " << h << " " << c;
            }
          }
        }
      }
    }
  }
}

TEST(KvQuant, FormatsByName) {
  EXPECT_EQ(ParseKvFormat("int4"), Format::kInt4);
  EXPECT_EQ(ParseKvFormat("fp8"), Format::kF8E4M3FN);
  EXPECT_THROW(ParseKvFormat("int2"), Error);
  EXPECT_THROW(ParseKvAxes("heads"), Error);
}

}  // namespace
}  // namespace octavo::quant
