#include "octavo/quant/sparsity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<uint8_t> Mask(const Tensor& array, const SparsityPattern& pattern) {
  return SparsityMask(array, pattern).ToVector<uint8_t>();
}

TEST(Sparsity, KeepsTheLargest) {
  EXPECT_THAT(Mask(F32({8}, {1, 2, 3, 4, -8, 7, -6, 5}), {2, 4}), ElementsAre(0, 0, 1, 1, 1, 1, 0, 0));
  EXPECT_THAT(Mask(F32({4}, {1, 1, 1, 1}), {2, 4}), ElementsAre(1, 1, 0, 0));  // ties: the lower index
  EXPECT_THAT(Mask(F32({4}, {1, 2, 3, 4}), {0, 2}), Each(0));
  EXPECT_THAT(Mask(F32({4}, {1, 2, 3, 4}), {2, 2}), Each(1));
}

TEST(Sparsity, OrderBlockAndOffset) {
  const Tensor x = F32({4, 2}, {1, 8, 2, 7, 3, 6, 4, 5});
  EXPECT_THAT(Mask(x, {2, 4, SparsityOrder::kSecondToLast}), ElementsAre(0, 1, 0, 1, 1, 0, 1, 0));
  EXPECT_THAT(Mask(x, {1, 2, SparsityOrder::kLastAxis}), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  // Blocks of two live or fall together.
  EXPECT_THAT(Mask(F32({8}, {1, 1, 5, 0, 2, 2, 0, 0}), {1, 2, SparsityOrder::kLastAxis, 2}),
              ElementsAre(0, 0, 1, 1, 1, 1, 0, 0));
  // Groups of elements two apart.
  EXPECT_THAT(Mask(F32({4}, {1, 9, 2, 3}), {1, 2, SparsityOrder::kLastAxis, 0, 2}), ElementsAre(0, 1, 1, 0));
  // A last axis that is no multiple of m: groups go over the rows.
  EXPECT_THAT(Mask(F32({2, 2}, {1, 4, 3, 2}), {2, 4}), ElementsAre(0, 1, 1, 0));
}

TEST(Sparsity, Errors) {
  const Tensor x = F32({4, 6}, std::vector<float>(24, 1.0f));
  EXPECT_THROW(Mask(x, {3, 2}), Error);
  EXPECT_THROW(Mask(x, {0, 0}), Error);
  EXPECT_THROW(Mask(x, {2, 5}), Error);
  EXPECT_THROW(Mask(x, {1, 2, SparsityOrder::kLastAxis, 4}), Error);  // blocks do not divide 6
  EXPECT_THROW(Mask(x, {1, 8, SparsityOrder::kLastAxis, 2}), Error);  // 12 blocks, groups of 8
  EXPECT_THROW(Mask(x, {1, 2, SparsityOrder::kLastAxis, 0, -1}), Error);
  EXPECT_THROW(Mask(x, {1, 8, SparsityOrder::kLastAxis, 0, 2}), Error);
  EXPECT_THROW(Mask(F32({4}, {1, 2, 3, 4}), {1, 2, SparsityOrder::kSecondToLast}), Error);
  EXPECT_THROW(Pruned(x, Tensor::Zeros({6, 4}, DType::kU8)), Error);
}

TEST(Sparsity, Unstructured) {
  EXPECT_THAT(UnstructuredMask(F32({5}, {1, -2, 3, -4, 5}), 50).ToVector<uint8_t>(), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THROW(UnstructuredMask(F32({1}, {1}), 101), Error);
}

TEST(Sparsity, Schedule) {
  const SparsityPattern pattern{1, 2};
  SparsityState state = InitialSparsity({2});
  const std::vector<Tensor> weights = {F32({2}, {1, 2}), F32({2}, {2, 1}), F32({2}, {1, 2}), F32({2}, {2, 1}),
                                       F32({2}, {1, 2})};
  std::vector<uint8_t> first;
  for (const Tensor& weight : weights) {
    state = NextSparsity(state, weight, pattern, {1, 2, false});
    first.push_back(state.mask.At<uint8_t>({0}));
  }
  EXPECT_THAT(first, ElementsAre(1, 1, 1, 1, 1));  // renewed at steps 1 and 3, where the first is larger
  EXPECT_EQ(state.mask.At<uint8_t>({1}), 0);
  EXPECT_EQ(state.step, 5);
  const SparsityState frozen = NextSparsity(InitialSparsity({2}), weights[0], pattern, {0, 1, true});
  EXPECT_EQ(frozen.step, 0);
  EXPECT_THAT(frozen.mask.ToVector<uint8_t>(), Each(1));
  EXPECT_THROW(NextSparsity(state, weights[0], pattern, {0, 0, false}), Error);
}

}  // namespace
}  // namespace octavo::quant
