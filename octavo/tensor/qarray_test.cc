#include "octavo/tensor/qarray.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "octavo/base/error_test_support.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Codes 0, 1, 2, … and scales 0, 1, 2, …, so that every element tells where it came from.
QArray Make(const Shape& shape, const Shape& scales, bool zero_point = false) {
  QArray result{Tensor::Empty(shape, DType::kI8), Tensor::Empty(scales, DType::kF32), std::nullopt, Format::kInt8};
  auto codes = result.qvalue.MutableValues<int8_t>();
  std::iota(codes.begin(), codes.end(), int8_t{0});
  auto values = result.scale.MutableValues<float>();
  std::iota(values.begin(), values.end(), 0.0f);
  if (zero_point) {
    result.zero_point = Tensor::Empty(scales, DType::kI8);
    auto points = result.zero_point->MutableValues<int8_t>();
    std::iota(points.begin(), points.end(), int8_t{0});
  }
  return result;
}

TEST(QArray, ValidateNamesWhatIsWrong) {
  EXPECT_NO_THROW(Validate("Dot", Make({4, 6}, {2, 3}, true)));
  EXPECT_NO_THROW(Validate("Dot", Make({0, 6}, {0, 1})));
  EXPECT_EQ(UsageMessage([] { Validate("Dot", Make({4, 6}, {4})); }), "Dot: scale [4] has 1 axes, qvalue [4, 6] has 2");
  EXPECT_EQ(UsageMessage([] {
              Validate("Dot", Make({4, 6}, {4, 4}));
            }),
            "Dot: scale [4, 4] does not divide qvalue [4, 6] on axis 1");
  EXPECT_THROW(Validate("Dot", Make({4, 6}, {4, 0})), Error);
  QArray bad = Make({4, 6}, {4, 1});
  bad.scale = Tensor::Zeros({4, 1}, DType::kI32);
  EXPECT_EQ(UsageMessage([&] { Validate("Dot", bad); }), "Dot: scale is i32[4, 1], expected bf16, f16, f32 or f64");
  bad = Make({4, 6}, {4, 1});
  bad.qvalue = Tensor::Zeros({4, 6}, DType::kI32);
  EXPECT_THAT(UsageMessage([&] { Validate("Dot", bad); }), HasSubstr("i32[4, 6]"));
  bad = Make({4, 6}, {4, 1});
  bad.format = Format::kF8E4M3FN;
  EXPECT_THROW(Validate("Dot", bad), Error);
  bad = Make({4, 6}, {4, 1});
  bad.zero_point = Tensor::Zeros({4, 1}, DType::kI32);
  EXPECT_THAT(UsageMessage([&] { Validate("Dot", bad); }), HasSubstr("zero point is i32[4, 1]"));
  bad.zero_point = Tensor::Zeros({3, 1}, DType::kI8);
  EXPECT_THAT(UsageMessage([&] { Validate("Dot", bad); }), HasSubstr("zero point [3, 1] does not divide"));
  EXPECT_THROW(Validate("Dot", QArray{}), Error);
}

TEST(QArray, Tiles) {
  EXPECT_THAT(TileShape(Make({4, 6, 5}, {2, 6, 1})), ElementsAre(2, 1, 5));
  // A tile over the whole axis and a tile of one element do not count as tiled.
  EXPECT_THAT(TiledAxes(Make({4, 6, 5}, {2, 6, 1})), ElementsAre(TiledAxis{0, 2}));
  EXPECT_TRUE(TiledAxes(Make({4, 6}, {1, 6})).empty());
}

TEST(QArray, TransposesMoveEveryPart) {
  QArray moved = Permute(Make({2, 4, 6}, {2, 2, 1}, true), {2, 0, 1});
  EXPECT_EQ(moved.shape(), Shape({6, 2, 4}));
  EXPECT_EQ(moved.scale.shape(), Shape({1, 2, 2}));
  EXPECT_EQ(moved.zero_point->shape(), Shape({1, 2, 2}));
  EXPECT_EQ(moved.qvalue.At<int8_t>({5, 1, 3}), 47);
  EXPECT_EQ(Transpose(moved).shape(), Shape({4, 2, 6}));
  EXPECT_EQ(SwapAxes(moved, 0, 2).scale.shape(), Shape({2, 2, 1}));
  EXPECT_THROW(Permute(moved, {0, 1}), Error);
}

TEST(QArray, ReshapeKeepsTilesWhole) {
  QArray split = Reshape(Make({2, 2, 6}, {2, 1, 3}, true), {4, 1, 3, 2});
  EXPECT_EQ(split.scale.shape(), Shape({2, 1, 3, 1}));
  EXPECT_EQ(split.zero_point->shape(), Shape({2, 1, 3, 1}));
  EXPECT_EQ(Reshape(Make({4, 6}, {4, 1}), {2, 2, 3, 2}).scale.shape(), Shape({2, 2, 1, 1}));
  EXPECT_EQ(Reshape(Make({4, 6}, {1, 6}), {4, 2, 3}).scale.shape(), Shape({1, 2, 3}));
  EXPECT_EQ(Reshape(Make({2, 3, 4}, {2, 1, 4}), {-1, 4}).scale.shape(), Shape({2, 4}));
  EXPECT_EQ(Reshape(Make({1, 6, 1}, {1, 3, 1}), {6}).scale.shape(), Shape({3}));
  EXPECT_EQ(Reshape(Make({8}, {2}), {4, 2}).scale.shape(), Shape({2, 1}));
}

TEST(QArray, ReshapeAcrossTilesIsAnError) {
  EXPECT_EQ(UsageMessage([] {
              Reshape(Make({2, 3, 4}, {1, 3, 4}), {6, 4});
            }),
            "Reshape: [2, 3, 4] to [6, 4] cuts through the tiles of scale [1, 3, 4]");
  EXPECT_THROW(Reshape(Make({8}, {4}), {2, 4}), Error);
  EXPECT_THROW(Reshape(Make({4, 6}, {2, 1}), {3, 8}), Error);
  EXPECT_EQ(UsageMessage([] {
              Reshape(Make({4, 6}, {2, 1}), {5, 5});
            }),
            "Reshape: [4, 6] has 24 elements, [5, 5] wants 25");
}

TEST(QArray, IndexPicksTheScaleOfItsTile) {
  QArray q = Make({4, 6, 5}, {4, 3, 1}, true);
  QArray row = Index(q, {IndexItem::At(-1), IndexItem::At(3)});
  EXPECT_EQ(row.shape(), Shape({5}));
  EXPECT_EQ(row.scale.At<float>({0}), 3 * 3 + 1);
  EXPECT_EQ(row.zero_point->At<int8_t>({0}), 3 * 3 + 1);
  QArray part = Index(q, {IndexItem::Range(1, 3), IndexItem::All(), IndexItem::NewAxis(), IndexItem::Range(0, 2)});
  EXPECT_EQ(part.shape(), Shape({2, 6, 1, 2}));
  EXPECT_EQ(part.scale.shape(), Shape({2, 3, 1, 1}));
  EXPECT_EQ(part.scale.At<float>({0, 0, 0, 0}), 3);
  EXPECT_EQ(Index(q, {IndexItem::Ellipsis(), IndexItem::At(4)}).scale.shape(), Shape({4, 3}));
  EXPECT_EQ(UsageMessage([&] {
              Index(q, {IndexItem::All(), IndexItem::Range(0, 4)});
            }),
            "Index: [0, 4) by 1 on axis 1 of [4, 6, 5], which has 3 tiles; take one index or the whole axis");
}

TEST(QArray, RepeatMakesTheScaleFull) {
  QArray wide = RepeatTo(Make({2, 3}, {2, 1}), {4, 3});
  EXPECT_EQ(wide.scale.shape(), Shape({4, 3}));
  EXPECT_THAT(wide.scale.ToVector<float>(), ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(RepeatTo(Make({2, 3}, {2, 1}), {2, 3}).scale.shape(), Shape({2, 1}));
}

TEST(QArray, MetaArraysKeepShapes) {
  QArray meta{Tensor::Meta({4, 64}, DType::kU8), Tensor::Meta({4, 2}, DType::kBF16), std::nullopt, Format::kMxfp4};
  EXPECT_NO_THROW(Validate("Dot", meta));
  EXPECT_THAT(TiledAxes(meta), ElementsAre(TiledAxis{1, 32}));
  EXPECT_EQ(Transpose(meta).scale.shape(), Shape({2, 4}));
}

}  // namespace
}  // namespace octavo
