#include "octavo/quant/ragged_dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::HasSubstr;

const DotDims kMatMul{{1}, {0}, {}, {}};

TEST(RaggedDot, EachGroupHasItsOwnWeight) {
  TestRun test;
  const Tensor x = Random({12, 32}, 1), w = Random({4, 32, 5}, 2);
  for (Format format : {Format::kInt8, Format::kF8E4M3FN}) {
    for (const std::vector<int>& channels : {std::vector<int>{2}, std::vector<int>{0, 2}}) {
      const QArray a = Quantize(x, {format, {{0}, {}}, {}}), b = Quantize(w, {format, {channels, {}}, {}});
      const std::vector<int64_t> sizes = {3, 0, 6, 2};  // one row belongs to nobody
      const Tensor out = RaggedDot(test.run, a, b, sizes);
      int64_t row = 0;
      for (size_t g = 0; g < sizes.size(); ++g) {
        if (sizes[g] == 0) continue;
        const QArray rows = Index(a, {IndexItem::Range(row, row + sizes[g])});
        const QArray own = Index(b, {IndexItem::At(static_cast<int64_t>(g))});
        EXPECT_TRUE(BitEqual(out.Slice(0, row, row + sizes[g]), FastDot(test.run, rows, own, kMatMul)));
        row += sizes[g];
      }
      for (float value : Floats(out.Slice(0, row, 12))) EXPECT_EQ(value, 0.0f);
    }
  }
}

TEST(RaggedDot, SizesPastTheEndStopThere) {
  TestRun test;
  const Tensor x = Random({4, 8}, 1), w = Random({2, 8, 3}, 2);
  const Tensor out = RaggedDot(test.run, x, w, std::vector<int64_t>{3, 9});
  EXPECT_TRUE(BitEqual(out.Slice(0, 3, 4), DotGeneral(test.run, x.Slice(0, 3, 4), w.Select(0, 1), kMatMul)));
}

TEST(RaggedDot, SlowForFloatsZeroPointsAndTables) {
  TestRun test;
  const Tensor x = Random({6, 8}, 1), w = Random({2, 8, 3}, 2);
  const std::vector<int64_t> sizes = {2, 4};
  const QArray a = Quantize(x, {Format::kInt8, {{0}, {}}, ParseCalibration("minmax")});
  const QArray b = Quantize(w, {Format::kNF4, {{0, 2}, {}}, {}});
  const Tensor expected = RaggedDot(test.run, Dequantize(a), Dequantize(b), sizes);
  EXPECT_TRUE(BitEqual(RaggedDot(test.run, a, b, sizes), expected));
  EXPECT_EQ(test.macs.integer, 0);
}

TEST(RaggedDot, ContractedRaggedAxisGivesOneProductPerGroup) {
  TestRun test;
  const Tensor x = Random({7, 4}, 1), g = Random({7, 3}, 2);
  const Tensor out = RaggedDotGeneral(test.run, x, g, std::vector<int64_t>{2, 0, 4}, {{{0}, {0}, {}, {}}, 0, -1});
  EXPECT_EQ(out.shape(), Shape({3, 4, 3}));
  EXPECT_LT(WorstError(out.Select(0, 0), DotInDouble(x.Slice(0, 0, 2), g.Slice(0, 0, 2), {{0}, {0}, {}, {}})), 1e-6);
  EXPECT_LT(WorstError(out.Select(0, 2), DotInDouble(x.Slice(0, 2, 6), g.Slice(0, 2, 6), {{0}, {0}, {}, {}})), 1e-6);
  for (float value : Floats(out.Select(0, 1))) EXPECT_EQ(value, 0.0f);
}

TEST(RaggedDotQt, GradientsAreNearTheFloatOnesAndInteger) {
  TestRun test;
  const Tensor x = Random({12, 32}, 1), w = Random({3, 32, 6}, 2), grad = Random({12, 6}, 3);
  const std::vector<int64_t> sizes = {5, 0, 7};
  const RaggedDotQtConfig config{Format::kInt8, Format::kInt8, Format::kInt8, Format::kInt8};
  const auto forward = RaggedDotQt(test.run, x, w, sizes, config);
  const auto grads = RaggedDotQtBackward(test.run, forward, sizes, config, grad);
  EXPECT_EQ(test.macs.integer, 3 * 12 * 32 * 6);
  EXPECT_EQ(test.macs.floating, 0);
  EXPECT_LT(
      WorstError(grads.lhs.Slice(0, 5, 12), DotInDouble(grad.Slice(0, 5, 12), w.Select(0, 2), {{1}, {1}, {}, {}})),
      0.03);
  EXPECT_LT(WorstError(grads.rhs.Select(0, 0), DotInDouble(x.Slice(0, 0, 5), grad.Slice(0, 0, 5), {{0}, {0}, {}, {}})),
            0.08);
  for (float value : Floats(grads.rhs.Select(0, 1))) EXPECT_EQ(value, 0.0f);
  const auto plain =
      RaggedDotQtBackward(test.Reference(), RaggedDotQt(test.Reference(), x, w, sizes, config), sizes, config, grad);
  EXPECT_TRUE(BitEqual(grads.lhs, plain.lhs));
  EXPECT_TRUE(BitEqual(grads.rhs, plain.rhs));
}

// All groups in one kernel call, or one by one: the same bits, for scales per group, tiles, bf16 and rows of nobody.
TEST(RaggedDot, FusedAndPlainWaysAgree) {
  TestRun test(3);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor x = Random({23, 64}, 1, dtype), w = Random({4, 64, 17}, 2, dtype), g = Random({23, 17}, 3, dtype);
    const std::vector<int64_t> sizes = {9, 0, 1, 8};
    for (Format format : {Format::kInt8, Format::kInt4}) {
      for (const std::vector<int>& channels : {std::vector<int>{2}, std::vector<int>{0, 2}, std::vector<int>{}}) {
        for (const auto& tiles : {std::map<int, TileSize>{}, std::map<int, TileSize>{{1, int64_t{16}}}}) {
          const QArray a = Quantize(x, {Format::kInt8, {{0}, {}}, {}}),
                       b = Quantize(w, {format, {channels, tiles}, {}});
          EXPECT_TRUE(BitEqual(RaggedDot(test.run, a, b, sizes), RaggedDot(test.Reference(), a, b, sizes)));
        }
      }
      const QArray cols = Quantize(g, {format, {{1}, {}}, {}});
      const Codes rows{Quantize(x, {Format::kInt8, {{0}, {}}, {}}).qvalue, Format::kInt8};
      const RaggedDims dims{{{0}, {0}, {}, {}}, 0, -1};
      EXPECT_TRUE(BitEqual(RaggedDotGeneral(test.run, rows, cols, sizes, dims),
                           RaggedDotGeneral(test.Reference(), rows, cols, sizes, dims)));
    }
  }
}

TEST(RaggedDot, Errors) {
  TestRun test;
  const Tensor x = Random({6, 8}, 1), w = Random({2, 8, 3}, 2);
  EXPECT_THAT(UsageMessage([&] { RaggedDot(test.run, x, w, std::vector<int64_t>{6}); }), HasSubstr("1 group sizes"));
  EXPECT_THAT(UsageMessage([&] { RaggedDot(test.run, x, w, std::vector<int64_t>{-1, 7}); }), HasSubstr("-1 rows"));
  EXPECT_THAT(UsageMessage([&] {
                RaggedDot(test.run, w, x, std::vector<int64_t>{3, 3});
              }),
              HasSubstr("expected [M, K]"));
  EXPECT_THROW(RaggedDot(test.run, Random({6, 7}, 1), w, std::vector<int64_t>{3, 3}), Error);
}

}  // namespace
}  // namespace octavo::quant
