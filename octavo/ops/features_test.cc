#include "octavo/ops/features.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/ops/gradient_check.h"

namespace octavo::ops {
namespace {

Tensor Numbers(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return Tensor::FromValues<float>(shape, DType::kF32, values);
}

struct Bench {
  ThreadPool pool{3};
  kernels::Workspace workspace;
  Context context{pool, kernels::ChooseIsa().isa, workspace};
};

TEST(Features, CutAndJoin) {
  Bench bench;
  const Tensor x = Numbers({2, 2, 3}, 0);
  EXPECT_EQ(SliceFeatures(bench.context, x, 1, 3).value.ToVector<float>(),
            (std::vector<float>{1, 2, 4, 5, 7, 8, 10, 11}));
  const Var joined = JoinFeatures(bench.context, x, Numbers({2, 1, 1}, 100));
  EXPECT_EQ(joined.shape(), Shape({2, 2, 4}));
  EXPECT_EQ(joined.value.ToVector<float>(),
            (std::vector<float>{0, 1, 2, 100, 3, 4, 5, 100, 6, 7, 8, 101, 9, 10, 11, 101}));
  EXPECT_THROW(JoinFeatures(bench.context, x, Numbers({2, 3, 1}, 0)), Error);
  EXPECT_THROW(SliceFeatures(bench.context, x, 2, 4), Error);
}

TEST(Features, Gradients) {
  Bench bench;
  const Function own = [](Context& context, const std::vector<Var>& leaves) {
    return JoinFeatures(context, SliceFeatures(context, leaves[0], 1, 3), leaves[1]);
  };
  EXPECT_LT(GradientError(bench.context, own, {Numbers({2, 3, 4}, 0), Numbers({2, 3, 2}, 3)}), 1e-3);
  EXPECT_LT(GradientError(bench.context, own, {Numbers({2, 3, 4}, 0), Numbers({2, 1, 2}, 3)}), 1e-3);
}

}  // namespace
}  // namespace octavo::ops
