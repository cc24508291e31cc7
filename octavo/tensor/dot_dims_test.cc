#include "octavo/tensor/dot_dims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;

TEST(DotDims, ShapesAndSizes) {
  const DotDims dims{{3, 1}, {0, 2}, {0}, {1}};
  EXPECT_EQ(DotShape("Dot", {2, 5, 7, 3}, {3, 2, 5, 4}, dims), Shape({2, 7, 4}));
  const DotSize size = SizeOfDot({2, 5, 7, 3}, {3, 2, 5, 4}, dims);
  EXPECT_EQ(size.batch, 2);
  EXPECT_EQ(size.m, 7);
  EXPECT_EQ(size.n, 4);
  EXPECT_EQ(size.k, 15);
  EXPECT_THAT(FreeAxes(4, {3, 1}, {0}), ElementsAre(2));
  EXPECT_EQ(DotShape("Dot", {2, 3, 8}, {8, 5}, MatMulDims({2, 3, 8})), Shape({2, 3, 5}));
  EXPECT_EQ(DotShape("Dot", {3}, {3}, {{0}, {0}, {}, {}}), Shape({}));
  EXPECT_EQ(DotShape("Dot", {2}, {3}, {}), Shape({2, 3}));
}

TEST(DotDims, ErrorsNameBothShapes) {
  const auto message = [](const DotDims& dims) -> std::string {
    try {
      CheckDot("DotGeneral at decoder/layers_3/mlp/wi_0", {8, 512}, {1024, 4096}, dims);
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  };
  EXPECT_EQ(message({{1}, {0}, {}, {}}),
            "DotGeneral at decoder/layers_3/mlp/wi_0: lhs [8, 512] contracts 512, rhs [1024, 4096] wants 1024");
  EXPECT_NE(message({{1}, {}, {}, {}}), "no error");
  EXPECT_NE(message({{1}, {2}, {}, {}}), "no error");
  EXPECT_NE(message({{-1}, {0}, {}, {}}), "no error");
  EXPECT_NE(message({{1, 1}, {0, 1}, {}, {}}), "no error");
  EXPECT_NE(message({{}, {}, {0}, {0}}), "no error");
}

}  // namespace
}  // namespace octavo
