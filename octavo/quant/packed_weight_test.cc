#include "octavo/quant/packed_weight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/quant/dot_axes.h"
#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::HasSubstr;

QArray Quantized(const Tensor& array, const std::vector<int>& contract, Format format,
                 std::optional<TileSize> tile = std::nullopt, const char* method = "absmax") {
  return Quantize(array, {format, GranularityForDot(array.shape(), contract, tile), ParseCalibration(method)});
}

struct Case {
  Shape lhs, rhs;
  std::vector<int> lhs_contract, rhs_contract;
};

// The bits of the fast dot for every format, tile, shape and number of rows, and the same codes back.
TEST(PackedWeight, SameBitsAsTheFastDot) {
  TestRun test(2);
  const std::vector<Case> cases = {{{5, 256}, {256, 20}, {1}, {0}},
                                   {{1, 256}, {256, 33}, {1}, {0}},
                                   {{2, 3, 256}, {256, 4, 6}, {2}, {0}},
                                   {{3, 256}, {18, 256}, {1}, {1}},
                                   {{2, 3, 4, 8}, {4, 8, 7}, {2, 3}, {0, 1}}};
  uint32_t seed = 1;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& one : cases) {
      for (Format format : {Format::kInt8, Format::kInt4, Format::kInt3, Format::kInt6}) {
        for (int64_t tile : {0, 32, 128}) {
          if (tile > 0 && one.rhs_contract.size() > 1) continue;
          const auto tiles = tile == 0 ? std::nullopt : std::optional<TileSize>(tile);
          const QArray weight = Quantized(Random(one.rhs, ++seed, dtype), one.rhs_contract, format, tiles);
          const QArray rows = Quantized(Random(one.lhs, ++seed, dtype), one.lhs_contract, Format::kInt8);
          const DotDims dims{one.lhs_contract, one.rhs_contract, {}, {}};
          ASSERT_TRUE(PackedWeight::Packs(weight, one.rhs_contract));
          const PackedWeight packed(test.run, weight, one.rhs_contract);
          const Tensor out = PackedDot(test.run, rows, one.lhs_contract, packed);
          EXPECT_TRUE(BitEqual(out, FastDot(test.run, rows, weight, dims))) << ToString(weight);
          EXPECT_TRUE(BitEqual(out, FastDot(test.Reference(), rows, weight, dims))) << ToString(weight);
          EXPECT_TRUE(BitEqual(packed.Unpacked(), weight.qvalue));
          EXPECT_EQ(packed.four_bits(), Info(format).bits <= 4);
        }
      }
    }
  }
}

TEST(PackedWeight, ZeroPointsOnEitherSide) {
  TestRun test;
  const Tensor x = Random({3, 256}, 1), w = Random({256, 20}, 2);
  for (Format format : {Format::kInt8, Format::kInt4}) {
    for (auto tile : {std::optional<TileSize>(), std::optional<TileSize>(int64_t{128})}) {
      const QArray weight = Quantized(w, {0}, format, tile), shifted = Quantized(w, {0}, format, tile, "minmax");
      const QArray rows = Quantized(x, {1}, Format::kInt8), moved = Quantized(x, {1}, Format::kInt8, tile, "minmax");
      const DotDims dims{{1}, {0}, {}, {}};
      EXPECT_TRUE(BitEqual(PackedDot(test.run, moved, {1}, PackedWeight(test.run, weight, {0})),
                           FastDot(test.Reference(), moved, weight, dims)));
      EXPECT_TRUE(BitEqual(PackedDot(test.run, rows, {1}, PackedWeight(test.run, shifted, {0})),
                           FastDot(test.Reference(), rows, shifted, dims)));
      EXPECT_THROW(PackedDot(test.run, moved, {1}, PackedWeight(test.run, shifted, {0})), Error);
    }
  }
}

TEST(PackedWeight, TakesHalfAByteForFourBits) {
  TestRun test;
  const Tensor w = Random({512, 256}, 2);
  const PackedWeight eight(test.run, Quantized(w, {0}, Format::kInt8), {0});
  const PackedWeight four(test.run, Quantized(w, {0}, Format::kInt4), {0});
  // Beside the codes a column has its scale and its sum; int8 panels also its cross sum.
  EXPECT_EQ(eight.bytes(), 256 * (512 + 12));
  EXPECT_EQ(four.bytes(), 256 * (512 / 2 + 8));
}

TEST(PackedWeight, Errors) {
  TestRun test;
  const Tensor w = Random({64, 8}, 2);
  EXPECT_FALSE(PackedWeight::Packs(Quantized(w, {0}, Format::kF8E4M3FN), {0}));
  EXPECT_THAT(UsageMessage([&] { PackedWeight(test.run, Quantized(w, {0}, Format::kNF4), {0}); }),
              HasSubstr("cannot be packed"));
  EXPECT_THROW(PackedWeight(test.run, Quantized(w, {1}, Format::kInt8), {0}), Error);  // a scale per k
  EXPECT_THROW(PackedWeight(test.run, Quantized(w, {0}, Format::kInt8), {2}), Error);
  const PackedWeight packed(test.run, Quantized(w, {0}, Format::kInt8), {0});
  EXPECT_THAT(UsageMessage([&] { PackedDot(test.run, Random({3, 64}, 1), {1}, packed); }), HasSubstr("does not fit"));
  EXPECT_THAT(UsageMessage([&] {
                PackedDot(test.run, Quantized(Random({3, 32}, 1), {1}, Format::kInt8), {1}, packed);
              }),
              HasSubstr("lhs [3, 32] contracts 32, rhs [64, 8] wants 64"));
  const QArray tiled = Quantized(Random({3, 64}, 1), {1}, Format::kInt8, int64_t{16});
  EXPECT_THROW(PackedDot(test.run, tiled, {1}, packed), Error);
}

}  // namespace
}  // namespace octavo::quant
