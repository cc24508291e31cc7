#include "octavo/tensor/shape.h"

#include <gtest/gtest.h>

#include <limits>

#include "octavo/base/error_test_support.h"

namespace octavo {
namespace {

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape().size(), 1);
  EXPECT_EQ(Shape({2, 3, 4}).size(), 24);
  EXPECT_EQ(Shape({2, 0, 4}).size(), 0);
  EXPECT_EQ(Shape({2, 3}).dim(-1), 3);
  EXPECT_EQ(Shape({2, 3}).ToString(), "[2, 3]");
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({2, 3, 1}));
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_EQ(UsageMessage([] { Shape({2, -1}); }), "Shape [2, -1]: negative axis -1");
  EXPECT_EQ(UsageMessage([] {
              Shape({int64_t{1} << 32, int64_t{1} << 32});
            }),
            "Shape [4294967296, 4294967296]: the number of elements overflows 64 bits");
  // A zero must not hide an overflow: strides are made of the other axes.
  EXPECT_THROW(Shape({0, std::numeric_limits<int64_t>::max(), 2}), Error);
  EXPECT_THROW(Shape(std::vector<int64_t>(17, 1)), Error);
  EXPECT_EQ(UsageMessage([] { Shape({2, 3}).dim(2); }), "Shape::dim: axis 2 of [2, 3], which has 2 axes");
  EXPECT_THROW(Shape({2, 3}).dim(-3), Error);
}

TEST(Shape, Permutations) {
  Shape shape{2, 3, 4};
  EXPECT_NO_THROW(CheckPermutation("P", std::vector<int>{2, 0, 1}, shape));
  for (std::vector<int> bad : {std::vector<int>{0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 2}}) {
    EXPECT_THROW(CheckPermutation("P", bad, shape), Error);
  }
}

TEST(Shape, NumpyBroadcast) {
  EXPECT_EQ(BroadcastShape("Add", {2, 1, 4}, {3, 1}), Shape({2, 3, 4}));
  EXPECT_EQ(BroadcastShape("Add", {}, {3, 1}), Shape({3, 1}));
  EXPECT_EQ(BroadcastShape("Add", {0}, {1}), Shape({0}));
  EXPECT_EQ(UsageMessage([] { BroadcastShape("Add", {2, 4}, {2}); }), "Add: cannot broadcast [2, 4] with [2]");
}

TEST(Shape, GenericBroadcastRepeatsTiles) {
  EXPECT_EQ(GenericBroadcastShape("Mul", {4, 6}, {2, 3}), Shape({4, 6}));
  EXPECT_EQ(GenericBroadcastShape("Mul", {4, 1}, {2, 6}), Shape({4, 6}));
  EXPECT_EQ(GenericBroadcastShape("Mul", {0, 6}, {1, 6}), Shape({0, 6}));
  EXPECT_EQ(UsageMessage([] {
              GenericBroadcastShape("Mul", {4, 6}, {4, 4});
            }),
            "Mul: cannot broadcast [4, 6] with [4, 4]: on axis 1 6 is not a multiple of 4");
  EXPECT_THROW(GenericBroadcastShape("Mul", {4, 6}, {6}), Error);
  EXPECT_THROW(GenericBroadcastShape("Mul", {0}, {3}), Error);
}

TEST(Shape, ReshapeFindsTheOpenAxis) {
  EXPECT_EQ(ReshapedShape("Reshape", {2, 6}, std::vector<int64_t>{-1, 4}), Shape({3, 4}));
  EXPECT_EQ(ReshapedShape("Reshape", {0, 6}, std::vector<int64_t>{-1, 2}), Shape({0, 2}));
  EXPECT_EQ(UsageMessage([] {
              ReshapedShape("Reshape", {2, 3}, std::vector<int64_t>{4, 2});
            }),
            "Reshape: [2, 3] has 6 elements, [4, 2] wants 8");
  EXPECT_THROW(ReshapedShape("Reshape", {2, 3}, std::vector<int64_t>{-1, 4}), Error);
  EXPECT_THROW(ReshapedShape("Reshape", {2, 3}, std::vector<int64_t>{-1, -1}), Error);
  EXPECT_THROW(ReshapedShape("Reshape", {0}, std::vector<int64_t>{-1, 0}), Error);
}

}  // namespace
}  // namespace octavo
