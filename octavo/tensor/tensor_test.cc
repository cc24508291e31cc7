#include "octavo/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "octavo/base/error_test_support.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Iota(const Shape& shape) {
  Tensor result = Tensor::Empty(shape, DType::kI32);
  auto values = result.MutableValues<int32_t>();
  std::iota(values.begin(), values.end(), 0);
  return result;
}

// Element by element through At, so that views are checked against their own index arithmetic.
std::vector<int32_t> Read2d(const Tensor& t) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < t.dim(0); ++i) {
    for (int64_t j = 0; j < t.dim(1); ++j) values.push_back(t.At<int32_t>({i, j}));
  }
  return values;
}

TEST(Tensor, OwnsAlignedMemory) {
  for (int64_t n : {0, 1, 63, 1000}) {
    Tensor t = Tensor::Zeros({n}, DType::kU8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.Data<uint8_t>()) % 64, 0u);
    EXPECT_EQ(t.bytes(), n);
    for (uint8_t value : t.Values<uint8_t>()) EXPECT_EQ(value, 0);
  }
  Tensor scalar = Tensor::FromValues<float>({}, DType::kF32, {2.5f});
  EXPECT_EQ(scalar.At<float>({}), 2.5f);
  EXPECT_EQ(scalar.ToString(), "f32[]");
}

TEST(Tensor, CopiesShareAndClonesDoNot) {
  Tensor a = Iota({2, 3}), b = a, c = a.Clone();
  a.MutableData<int32_t>()[0] = 9;
  EXPECT_EQ(b.At<int32_t>({0, 0}), 9);
  EXPECT_EQ(c.At<int32_t>({0, 0}), 0);
  EXPECT_TRUE(a.SharesStorageWith(b));
  EXPECT_FALSE(a.SharesStorageWith(c));
}

TEST(Tensor, TypedAccessIsChecked) {
  Tensor t = Tensor::Zeros({2}, DType::kBF16);
  EXPECT_NO_THROW(t.Data<uint16_t>());
  EXPECT_EQ(UsageMessage([&] { t.Data<float>(); }), "Tensor::Data: bf16[2] read as another type");
  EXPECT_THROW(t.MutableData<int16_t>(), Error);
  EXPECT_NO_THROW(Tensor::Zeros({2}, DType::kBool).Data<uint8_t>());
  EXPECT_THROW(Tensor::Zeros({2}, DType::kF16).Data<int8_t>(), Error);
  EXPECT_THROW(Tensor().Data<float>(), Error);
  EXPECT_THROW(Tensor().Reshape({1}), Error);
  EXPECT_EQ(UsageMessage([] {
              Tensor::FromValues<float>({2}, DType::kF32, {1, 2, 3});
            }),
            "Tensor::FromValues: f32[2] takes 2 values, 3 given");
  EXPECT_EQ(UsageMessage([&] { t.At<uint16_t>({2}); }), "Tensor::At: index [2] of bf16[2]");
  EXPECT_THROW(t.At<uint16_t>({0, 0}), Error);
}

TEST(Tensor, SizesThatOverflowAreRefused) {
  EXPECT_THAT(UsageMessage([] { Tensor::Meta({int64_t{1} << 62}, DType::kF32); }), HasSubstr("bytes overflows"));
#ifndef __SANITIZE_ADDRESS__  // which stops at such a request instead of refusing it
  try {
    Tensor::Empty({int64_t{1} << 46}, DType::kF64);
    FAIL() << "2^49 bytes cannot be had";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kJob);
  }
#endif
}

TEST(Tensor, MetaHasShapeAndNoData) {
  Tensor t = Tensor::Meta({int64_t{1} << 40, 8}, DType::kF32);
  EXPECT_TRUE(t.is_meta());
  EXPECT_EQ(t.Transpose().shape(), Shape({8, int64_t{1} << 40}));
  EXPECT_TRUE(t.Transpose().Reshape({-1}).is_meta());
  EXPECT_TRUE(t.Transpose().Contiguous().is_meta());
  EXPECT_EQ(UsageMessage([&] { t.Data<float>(); }),
            "Tensor::Data: f32[1099511627776, 8] is a meta tensor and has no data");
  EXPECT_THROW(t.MutableRawData(), Error);
  EXPECT_FALSE(t.writable());
}

TEST(Tensor, ExternalMemoryLivesAsLongAsAViewOfIt) {
  auto owner = std::make_shared<std::vector<int32_t>>(std::vector<int32_t>{0, 1, 2, 3, 4, 5});
  std::weak_ptr<std::vector<int32_t>> watch = owner;
  Tensor t = Tensor::External(owner->data(), 24, {2, 3}, DType::kI32, owner).Slice(0, 1, 2);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_THAT(t.ToVector<int32_t>(), ElementsAre(3, 4, 5));
  EXPECT_EQ(UsageMessage([&] { t.MutableData<int32_t>(); }),
            "Tensor::MutableData: i32[1, 3] is read-only memory; clone it first");
  Tensor copy = t.Clone();
  copy.MutableData<int32_t>()[0] = 7;
  EXPECT_EQ(t.At<int32_t>({0, 0}), 3);
  t = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, ExternalMemoryIsChecked) {
  alignas(8) static int32_t data[4] = {1, 2, 3, 4};
  EXPECT_EQ(UsageMessage([] { Tensor::External(data, 15, {4}, DType::kI32, nullptr); }),
            "Tensor::External: i32[4] takes 16 bytes, 15 are there");
  EXPECT_THROW(Tensor::External(reinterpret_cast<char*>(data) + 1, 15, {2}, DType::kI32, nullptr), Error);
  EXPECT_THROW(Tensor::External(nullptr, 16, {4}, DType::kI32, nullptr), Error);
  Tensor open = Tensor::ExternalWritable(data, 16, {4}, DType::kI32, nullptr);
  open.MutableData<int32_t>()[3] = 9;
  EXPECT_EQ(data[3], 9);
}

TEST(Tensor, ReshapeIsAViewWhenStridesAllow) {
  Tensor t = Iota({2, 3, 4});
  EXPECT_TRUE(t.Reshape({6, 4}).SharesStorageWith(t));
  EXPECT_TRUE(t.Reshape({2, 1, 12, 1}).SharesStorageWith(t));
  Tensor swapped = t.Permute({1, 0, 2});                            // [3, 2, 4]
  EXPECT_TRUE(swapped.Reshape({3, 2, 2, 2}).SharesStorageWith(t));  // splits the last axis only
  EXPECT_FALSE(swapped.Reshape({6, 4}).SharesStorageWith(t));       // merges across the swap
  EXPECT_THAT(swapped.Reshape({6, 4}).ToVector<int32_t>(),
              ElementsAre(0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 16, 17, 18, 19, 8, 9, 10, 11, 20, 21, 22, 23));
  EXPECT_EQ(swapped.Reshape({3, 2, 2, 2}).At<int32_t>({1, 1, 1, 0}), 12 + 4 + 2);
  EXPECT_EQ(Iota({4}).BroadcastTo({3, 4}).Reshape({3, 2, 2}).At<int32_t>({2, 1, 1}), 3);
  EXPECT_EQ(Tensor::Zeros({0, 4}, DType::kF32).Reshape({2, 0}).shape(), Shape({2, 0}));
  EXPECT_EQ(UsageMessage([&] { t.Reshape({5, 5}); }), "Reshape: [2, 3, 4] has 24 elements, [5, 5] wants 25");
}

TEST(Tensor, PermuteAndTranspose) {
  Tensor t = Iota({2, 3});
  EXPECT_THAT(Read2d(t.Transpose()), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(t.Transpose().ToVector<int32_t>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(t.SwapAxes(0, -1).shape(), Shape({3, 2}));
  EXPECT_EQ(Iota({2, 3, 4}).Permute({2, 0, 1}).At<int32_t>({3, 1, 2}), 12 + 8 + 3);
  EXPECT_EQ(UsageMessage([&] {
              t.Permute({0, 0});
            }),
            "Permute: (0, 0) does not name each of the 2 axes of [2, 3] once");
}

TEST(Tensor, SliceAndSelect) {
  Tensor t = Iota({3, 5});
  EXPECT_THAT(Read2d(t.Slice(1, 1, 5, 3)), ElementsAre(1, 4, 6, 9, 11, 14));
  EXPECT_THAT(t.Select(0, -1).ToVector<int32_t>(), ElementsAre(10, 11, 12, 13, 14));
  EXPECT_EQ(t.Slice(0, 3, 3).size(), 0);
  EXPECT_TRUE(t.Slice(0, 1, 3).is_contiguous());
  EXPECT_FALSE(t.Slice(1, 0, 4).is_contiguous());
  EXPECT_THROW(t.Slice(1, 0, 4).Values<int32_t>(), Error);
  EXPECT_EQ(UsageMessage([&] { t.Slice(0, 1, 4); }), "Slice: [1, 4) by 1 on axis 0 of [3, 5]");
  EXPECT_THROW(t.Slice(0, 2, 1), Error);
  EXPECT_THROW(t.Slice(0, 0, 1, 0), Error);
  EXPECT_THROW(t.Select(1, 5), Error);
}

TEST(Tensor, SliceIsWrittenThrough) {
  Tensor t = Tensor::Zeros({2, 3}, DType::kF32);
  Tensor column = t.Slice(1, 1, 2);
  column.MutableData<float>()[0] = 1;
  column.MutableData<float>()[column.stride(0)] = 2;
  EXPECT_THAT(t.ToVector<float>(), ElementsAre(0, 1, 0, 0, 2, 0));
}

TEST(Tensor, IndexExpressions) {
  Tensor t = Iota({2, 3, 4});
  Tensor picked = t.Index({IndexItem::At(-1), IndexItem::Ellipsis(), IndexItem::NewAxis(), IndexItem::Range(-2, 99)});
  EXPECT_EQ(picked.shape(), Shape({3, 1, 2}));
  EXPECT_THAT(picked.ToVector<int32_t>(), ElementsAre(14, 15, 18, 19, 22, 23));
  EXPECT_EQ(t.Index({IndexItem::Range(1, 1)}).shape(), Shape({0, 3, 4}));
  EXPECT_EQ(t.Index({IndexItem::Range(2, 1)}).shape(), Shape({0, 3, 4}));
  EXPECT_THROW(t.Index({IndexItem::Ellipsis(), IndexItem::Ellipsis()}), Error);
  EXPECT_THROW(t.Index({IndexItem::At(2)}), Error);
  EXPECT_THROW(t.Index({IndexItem::At(0), IndexItem::At(0), IndexItem::At(0), IndexItem::At(0)}), Error);
  EXPECT_THROW(t.Index({IndexItem::Range(0, 2, -1)}), Error);
}

TEST(Tensor, BroadcastViewsAreNotWritten) {
  Tensor t = Iota({3, 1});
  Tensor wide = t.BroadcastTo({2, 3, 2});
  EXPECT_TRUE(wide.SharesStorageWith(t));
  EXPECT_THAT(wide.ToVector<int32_t>(), ElementsAre(0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2));
  EXPECT_EQ(UsageMessage([&] { wide.MutableData<int32_t>(); }),
            "Tensor::MutableData: i32[2, 3, 2] is a broadcast view; clone it first");
  EXPECT_THROW(t.BroadcastTo({3}), Error);
  EXPECT_THROW(Iota({2}).BroadcastTo({1}), Error);
}

TEST(Tensor, RepeatIsContiguousPerElement) {
  EXPECT_THAT(Iota({2, 2}).RepeatTo({4, 6}).ToVector<int32_t>(),
              ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 2, 2, 2, 3, 3, 3));
  EXPECT_THROW(Iota({2, 2}).RepeatTo({4, 3}), Error);
  EXPECT_THROW(Iota({4, 2}).RepeatTo({2, 2}), Error);
}

TEST(Tensor, RearrangeDropsAndInsertsAxes) {
  Tensor t = Iota({2, 1, 3});
  std::vector<std::optional<int>> axes = {2, std::nullopt, 0};
  EXPECT_EQ(t.Rearrange(axes).shape(), Shape({3, 1, 2}));
  EXPECT_EQ(t.Rearrange(axes).At<int32_t>({2, 0, 1}), 5);
  EXPECT_EQ(UsageMessage([&] {
              t.Rearrange(std::vector<std::optional<int>>{1, 2});
            }),
            "Rearrange: axis 0 of [2, 1, 3] is left out, which is possible only for length 1");
  EXPECT_THROW(t.Rearrange(std::vector<std::optional<int>>{0, 0, 2}), Error);
  EXPECT_THROW(t.Rearrange(std::vector<std::optional<int>>{0, 3, 2}), Error);
}

TEST(Tensor, BitEqualLooksThroughStrides) {
  Tensor t = Iota({2, 3});
  EXPECT_TRUE(BitEqual(t, t.Transpose().Clone().Transpose()));
  EXPECT_FALSE(BitEqual(t, t.Reshape({3, 2})));
  Tensor zero = Tensor::FromValues<float>({1}, DType::kF32, {0.0f});
  Tensor minus = Tensor::FromValues<float>({1}, DType::kF32, {-0.0f});
  EXPECT_FALSE(BitEqual(zero, minus));
}

}  // namespace
}  // namespace octavo
