#include "octavo/quant/dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/quant/dot_axes.h"
#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

QArray Quantized(const Tensor& array, const std::vector<int>& contract, Format format,
                 std::optional<TileSize> tile = std::nullopt, const char* method = "absmax") {
  return Quantize(array, {format, GranularityForDot(array.shape(), contract, tile), ParseCalibration(method)});
}

TEST(Dot, PathsAreChosenAsTheReferenceDoes) {
  const Tensor x = Random({4, 256}, 1), w = Random({256, 8}, 2);
  const DotDims dims{{1}, {0}, {}, {}};
  const auto path = [&](const DotOperand& a, const DotOperand& b) { return ChooseDotPath(a, b, dims).path; };
  const auto left = [&](Format format, std::optional<TileSize> tile = std::nullopt) {
    return Quantized(x, {1}, format, tile);
  };
  const auto right = [&](Format format, std::optional<TileSize> tile = std::nullopt) {
    return Quantized(w, {0}, format, tile);
  };
  EXPECT_EQ(path(left(Format::kInt8), right(Format::kInt4)), DotPath::kFast);
  EXPECT_EQ(path(x, right(Format::kInt8)), DotPath::kSlow);
  EXPECT_EQ(path(left(Format::kInt8), right(Format::kNF4)), DotPath::kSlow);
  EXPECT_EQ(path(left(Format::kInt8, int64_t{128}), right(Format::kInt8, int64_t{128})), DotPath::kFast);
  EXPECT_EQ(path(left(Format::kInt8), right(Format::kInt8, int64_t{64})), DotPath::kSlow);
  EXPECT_EQ(path(left(Format::kInt8, int64_t{256}), right(Format::kInt8)), DotPath::kFast);  // one tile is no tile
  EXPECT_EQ(path(left(Format::kMxfp8, int64_t{32}), right(Format::kMxfp4, int64_t{32})), DotPath::kBlock);
  EXPECT_EQ(path(Codes{left(Format::kInt8).qvalue, Format::kInt8}, right(Format::kInt8)), DotPath::kFast);
  EXPECT_THAT(ChooseDotPath(left(Format::kInt8), right(Format::kInt8, int64_t{64}), dims).reason,
              HasSubstr("tile 64 of rhs"));
}

TEST(Dot, ResultDTypes) {
  const auto of = [](DType scale, Format format) {
    return DotOperand(
        QArray{Tensor::Meta({2, 2}, Info(format).dtype), Tensor::Meta({2, 1}, scale), std::nullopt, format});
  };
  const auto raw = [](Format format) { return DotOperand(Codes{Tensor::Meta({2, 2}, Info(format).dtype), format}); };
  EXPECT_EQ(DotResultDType(of(DType::kBF16, Format::kInt4), of(DType::kF32, Format::kInt8)), DType::kF32);
  EXPECT_EQ(DotResultDType(of(DType::kBF16, Format::kInt8), of(DType::kBF16, Format::kInt8)), DType::kBF16);
  EXPECT_EQ(DotResultDType(of(DType::kBF16, Format::kInt8), of(DType::kF16, Format::kInt8)), DType::kF32);
  EXPECT_EQ(DotResultDType(of(DType::kF16, Format::kInt8), raw(Format::kInt8)), DType::kF16);
  EXPECT_EQ(DotResultDType(raw(Format::kInt8), raw(Format::kInt4)), DType::kI32);
  EXPECT_EQ(DotResultDType(raw(Format::kF8E4M3FN), raw(Format::kF8E4M3FN)), DType::kBF16);
  EXPECT_EQ(DotResultDType(of(DType::kF32, Format::kInt8), raw(Format::kF8E5M2)), DType::kF32);
  EXPECT_EQ(DotResultDType(of(DType::kF32, Format::kInt8), raw(Format::kInt8), DType::kBF16), DType::kBF16);
}

TEST(Dot, TwoRoundedMultiplicationsLhsFirst) {
  TestRun test;
  // 1 x 1 x 1 products: (code * code) * lhs scale * rhs scale, in this order.
  const QArray a{Tensor::FromValues<int8_t>({1, 1}, DType::kI8, std::vector<int8_t>{127}), F32({1, 1}, {0.1f}),
                 std::nullopt, Format::kInt8};
  const QArray b{Tensor::FromValues<int8_t>({1, 1}, DType::kI8, std::vector<int8_t>{-113}), F32({1, 1}, {0.3f}),
                 std::nullopt, Format::kInt8};
  const float expected = (static_cast<float>(127 * -113) * 0.1f) * 0.3f;
  EXPECT_EQ(FastDot(test.run, a, b, {{1}, {0}, {}, {}}).At<float>({0, 0}), expected);
  EXPECT_EQ(FastDot(test.Reference(), a, b, {{1}, {0}, {}, {}}).At<float>({0, 0}), expected);
}

// Random axes, tiles and formats: against double, the fused way against the plain one, and each way against the others.
TEST(Dot, AnyAxesTilesAndFormats) {
  TestRun test(2);
  std::mt19937 engine(5);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  };
  for (int round = 0; round < 120; ++round) {
    // Axes of each side in random order: batch, free, contract.
    const int batch = static_cast<int>(pick(0, 2)), contract = static_cast<int>(pick(1, 2));
    std::vector<int64_t> batch_dims, contract_dims, left_free, right_free;
    for (int i = 0; i < batch; ++i) batch_dims.push_back(pick(1, 3));
    for (int i = 0; i < contract; ++i) contract_dims.push_back(4 * pick(1, 5));
    for (int64_t i = pick(0, 2); i > 0; --i) left_free.push_back(pick(1, 5));
    for (int64_t i = pick(0, 2); i > 0; --i) right_free.push_back(pick(1, 5));
    const auto arrange = [&](const std::vector<int64_t>& free, std::vector<int>& c, std::vector<int>& b) {
      std::vector<std::pair<int64_t, int>> axes;  // length and role
      for (int i = 0; i < batch; ++i) axes.emplace_back(batch_dims[static_cast<size_t>(i)], i);
      for (int i = 0; i < contract; ++i) axes.emplace_back(contract_dims[static_cast<size_t>(i)], 10 + i);
      for (int64_t n : free) axes.emplace_back(n, 99);
      std::shuffle(axes.begin(), axes.end(), engine);
      b.resize(static_cast<size_t>(batch));
      c.resize(static_cast<size_t>(contract));
      std::vector<int64_t> dims;
      for (size_t i = 0; i < axes.size(); ++i) {
        dims.push_back(axes[i].first);
        if (axes[i].second < 10) b[static_cast<size_t>(axes[i].second)] = static_cast<int>(i);
        if (axes[i].second >= 10 && axes[i].second < 99)
          c[static_cast<size_t>(axes[i].second - 10)] = static_cast<int>(i);
      }
      return Shape(dims);
    };
    DotDims dims;
    const Shape ls = arrange(left_free, dims.lhs_contract, dims.lhs_batch);
    const Shape rs = arrange(right_free, dims.rhs_contract, dims.rhs_batch);
    const DType dtype = pick(0, 3) == 0 ? DType::kBF16 : DType::kF32;
    const Format formats[] = {Format::kInt8, Format::kInt4, Format::kInt6, Format::kF8E4M3FN, Format::kInt8};
    const Format lf = formats[pick(0, 4)], rf = formats[pick(0, 4)];
    const bool tiled = pick(0, 1) == 1;
    const auto tile = tiled ? std::optional<TileSize>(int64_t{4}) : std::nullopt;
    const QArray a = Quantized(Random(ls, engine(), dtype), dims.lhs_contract, lf, tile);
    const QArray b =
        Quantized(Random(rs, engine(), dtype), dims.rhs_contract, rf, pick(0, 1) == 1 ? tile : std::nullopt);
    const DoubleDot truth = DotInDouble(Dequantize(a), Dequantize(b), dims);
    const double tolerance = dtype == DType::kF32 ? 2e-6 : 3e-2;
    const Tensor fast = FastDot(test.run, a, b, dims), slow = SlowDot(test.run, a, b, dims);
    EXPECT_LT(WorstError(fast, truth), tolerance);
    EXPECT_LT(WorstError(slow, truth), tolerance);
    EXPECT_LT(WorstError(LoopDot(test.run, a, b, dims), truth), tolerance);
    EXPECT_TRUE(BitEqual(fast, FastDot(test.Reference(), a, b, dims))) << ToString(a) << " · " << ToString(b);
    EXPECT_TRUE(BitEqual(slow, SlowDot(test.Reference(), a, b, dims)));
    EXPECT_EQ(fast.shape(), DotShape("Dot", ls, rs, dims));
  }
}

TEST(Dot, ZeroPointsOnOneSide) {
  TestRun test;
  const DotDims dims{{1}, {0}, {}, {}};
  const Tensor x = Random({5, 256}, 3), w = Random({256, 6}, 4);
  for (auto tile : {std::optional<TileSize>(), std::optional<TileSize>(int64_t{128})}) {
    const QArray a = Quantized(x, {1}, Format::kInt8, tile, "minmax"), b = Quantized(w, {0}, Format::kInt8, tile);
    const QArray c = Quantized(w, {0}, Format::kInt4, tile, "minmax"), d = Quantized(x, {1}, Format::kInt8, tile);
    for (const auto& [l, r] : {std::pair(a, b), std::pair(d, c)}) {
      const Tensor fast = FastDot(test.run, l, r, dims);
      EXPECT_TRUE(BitEqual(fast, FastDot(test.Reference(), l, r, dims)));
      EXPECT_LT(WorstError(fast, DotInDouble(Dequantize(l), Dequantize(r), dims)), 2e-6);
    }
    EXPECT_THAT(UsageMessage([&] { FastDot(test.run, a, c, dims); }), HasSubstr("only one operand can be asymmetric"));
    EXPECT_LT(WorstError(SlowDot(test.run, a, c, dims), DotInDouble(Dequantize(a), Dequantize(c), dims)), 2e-6);
  }
}

TEST(Dot, IntegersRunOnIntegerKernels) {
  TestRun test;
  const DotDims dims{{2}, {0}, {}, {}};
  const QArray a = Quantized(Random({2, 3, 64}, 1), {2}, Format::kInt8),
               b = Quantized(Random({64, 5}, 2), {0}, Format::kInt8);
  DotGeneral(test.run, a, b, dims);
  EXPECT_EQ(test.macs.integer, 2 * 3 * 64 * 5);
  EXPECT_EQ(test.macs.floating, 0);
  DotGeneral(test.run, Random({2, 3, 64}, 1), b, dims);
  EXPECT_EQ(test.macs.floating, 2 * 3 * 64 * 5);
}

TEST(Dot, LongSumsAreExactOrRefused) {
  TestRun test;
  const int64_t k = 131072;
  const auto ones = [](const Shape& shape) {
    return Codes{Tensor::FromValues<int8_t>(shape, DType::kI8,
                                            std::vector<int8_t>(static_cast<size_t>(shape.size()), int8_t{-128})),
                 Format::kInt8};
  };
  EXPECT_THAT(UsageMessage([&] {
                FastDot(test.run, ones({1, k}), ones({k, 1}), {{1}, {0}, {}, {}});
              }),
              HasSubstr("131072"));
  const Tensor exact = FastDot(test.run, ones({1, k - 1}), ones({k - 1, 1}), {{1}, {0}, {}, {}});
  EXPECT_EQ(exact.At<int32_t>({0, 0}), (k - 1) * 16384);
  const Codes wide{Tensor::FromValues<int16_t>({1, 4}, DType::kI16, std::vector<int16_t>(4, 32767)), Format::kInt16};
  const Codes tall{wide.values.Reshape({4, 1}), Format::kInt16};
  EXPECT_THAT(UsageMessage([&] { FastDot(test.run, wide, tall, {{1}, {0}, {}, {}}); }), HasSubstr("leaves 32 bits"));
}

TEST(Dot, Errors) {
  TestRun test;
  const QArray a = Quantized(Random({4, 8}, 1), {1}, Format::kInt8),
               b = Quantized(Random({8, 6}, 2), {0}, Format::kInt8);
  EXPECT_EQ(UsageMessage([&] {
              DotGeneral(test.run, a, b, {{0}, {0}, {}, {}});
            }),
            "DotGeneral: lhs [4, 8] contracts 4, rhs [8, 6] wants 8");
  EXPECT_THROW(DotGeneral(test.run, a, b, {{1}, {2}, {}, {}}), Error);
  EXPECT_THROW(DotGeneral(test.run, a, b, {{1}, {0}, {1}, {0}}), Error);
  EXPECT_THROW(DotGeneral(test.run, a, b, {{1}, {}, {}, {}}), Error);
  const QArray table = Quantized(Random({8, 6}, 2), {0}, Format::kNF4);
  EXPECT_THAT(UsageMessage([&] { FastDot(test.run, a, table, {{1}, {0}, {}, {}}); }), HasSubstr("are indices"));
  EXPECT_NO_THROW(DotGeneral(test.run, a, table, {{1}, {0}, {}, {}}));
  // A scale per position of a contracted axis cannot be applied to sums.
  const QArray rows = Quantize(Random({8, 6}, 2), {Format::kInt8, {{0}, {}}, {}});
  EXPECT_THAT(UsageMessage([&] {
                FastDot(test.run, a, rows, {{1}, {0}, {}, {}});
              }),
              HasSubstr("varies along contracted axis"));
  const QArray two = Quantized(Random({4, 8}, 1), {1}, Format::kInt8, int64_t{2});
  const QArray four = Quantized(Random({8, 6}, 1), {0}, Format::kInt8, int64_t{4});
  EXPECT_THAT(UsageMessage([&] { FastDot(test.run, two, four, {{1}, {0}, {}, {}}); }), HasSubstr("tiles of 2"));
  EXPECT_THROW(DotGeneral(test.run, Tensor::Zeros({4, 8}, DType::kI32), b, {{1}, {0}, {}, {}}), Error);
  const QArray asymmetric = Quantized(Random({4, 8}, 1), {1}, Format::kInt8, std::nullopt, "minmax");
  EXPECT_THROW(LoopDot(test.run, asymmetric, b, {{1}, {0}, {}, {}}), Error);
}

TEST(Dot, EmptyAndMeta) {
  TestRun test;
  const DotDims dims{{1}, {0}, {}, {}};
  const QArray none = Quantized(Tensor::Zeros({0, 8}, DType::kF32), {1}, Format::kInt8);
  const QArray b = Quantized(Random({8, 6}, 2), {0}, Format::kInt8);
  EXPECT_EQ(DotGeneral(test.run, none, b, dims).shape(), Shape({0, 6}));
  const QArray meta{Tensor::Meta({3, 8}, DType::kI8), Tensor::Meta({3, 1}, DType::kBF16), std::nullopt, Format::kInt8};
  const Tensor out = DotGeneral(test.run, meta, b, dims);
  EXPECT_TRUE(out.is_meta());
  EXPECT_EQ(out.shape(), Shape({3, 6}));
  EXPECT_EQ(out.dtype(), DType::kF32);
}

// A row of a product alone has the bits it has in a batch, for any number of threads.
TEST(Dot, RowsAndThreadsDoNotMatter) {
  const DotDims dims{{1}, {0}, {}, {}};
  const Tensor x = Random({13, 300}, 5), w = Random({300, 20}, 6);
  for (Format format : {Format::kInt8, Format::kF8E4M3FN}) {
    const QArray b = Quantized(w, {0}, format);
    TestRun one(1);
    const Tensor all = DotGeneral(one.run, Quantized(x, {1}, format), b, dims);
    for (int threads : {1, 2, 3}) {
      TestRun test(threads);
      EXPECT_TRUE(BitEqual(DotGeneral(test.run, Quantized(x, {1}, format), b, dims), all));
      for (int64_t row : {0, 7, 12}) {
        const QArray single = Quantized(x.Slice(0, row, row + 1), {1}, format);
        EXPECT_TRUE(BitEqual(DotGeneral(test.run, single, b, dims), all.Slice(0, row, row + 1)));
      }
    }
  }
}

TEST(DotAxes, GranularityFollowsTheContraction) {
  const Granularity g = GranularityForDot({2, 3, 4, 5}, {2, 3}, TileSize(int64_t{5}));
  EXPECT_THAT(g.channelwise_axes, ElementsAre(0, 1));
  EXPECT_EQ(g.tiled_axes.size(), 1u);
  EXPECT_EQ(g.tiled_axes.begin()->first, 3);
  EXPECT_EQ(GranularityForDot({2, 3, 4}, {2, 0}, TileSize(0.5)).tiled_axes.begin()->first, 0);  // last listed
}

}  // namespace
}  // namespace octavo::quant
