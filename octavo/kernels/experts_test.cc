#include "octavo/kernels/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

struct Case {
  int64_t tokens, top_k;
  SampleRows y, out, grad_out, grad_y;
  std::vector<int32_t> row_of;
  std::vector<float> weight, grad_weight;

  Case(DType dtype, int64_t t, int64_t k, int64_t cols)
      : tokens(t),
        top_k(k),
        y(SampleRows::Random(dtype, t * k, cols, 1)),
        out(dtype, t, cols),
        grad_out(SampleRows::Random(dtype, t, cols, 2)),
        grad_y(dtype, t * k, cols),
        row_of(t * k),
        weight(SampleFloats(t * k, 3)),
        grad_weight(t * k) {
    std::iota(row_of.begin(), row_of.end(), 0);
    std::sort(row_of.begin(), row_of.end(), [](int32_t a, int32_t b) { return SampleBits(9, a) < SampleBits(9, b); });
  }
  void Run(ThreadPool& pool, Isa isa, bool weighted = true) {
    CombineExperts(pool, isa, {y.view(), row_of.data(), weighted ? weight.data() : nullptr, top_k, out.mut()});
    CombineExpertsBackward(
        pool, isa, {y.view(), grad_out.view(), row_of.data(), weight.data(), top_k, grad_y.mut(), grad_weight.data()});
  }
};

TEST(Experts, FastEqualsReferenceForEverySizeAndAnyThreads) {
  ThreadPool one(1), three(3);
  std::vector<int64_t> sizes = {127, 128, 129, 1000, 4097};
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t cols : sizes) {
      for (bool weighted : {true, false}) {
        Case reference(dtype, 9, 3, cols), fast(dtype, 9, 3, cols), many(dtype, 9, 3, cols);
        reference.Run(one, Isa::kReference, weighted);
        fast.Run(one, ChooseIsa().isa, weighted);
        many.Run(three, ChooseIsa().isa, weighted);
        ASSERT_EQ(reference.out, fast.out) << cols;
        ASSERT_EQ(reference.grad_y, fast.grad_y) << cols;
        ASSERT_EQ(HashOf(reference.grad_weight), HashOf(fast.grad_weight)) << cols;
        ASSERT_EQ(reference.out, many.out) << cols;
        ASSERT_EQ(reference.grad_y, many.grad_y) << cols;
      }
    }
  }
}

TEST(Experts, CombinesInRouterOrder) {
  ThreadPool pool(1);
  Case one(DType::kF32, 20, 4, 13);
  one.Run(pool, ChooseIsa().isa);
  int other_order = 0;
  for (int64_t t = 0; t < 20; ++t) {
    for (int64_t c = 0; c < 13; ++c) {
      float forward = 0, backward = 0;
      double exact = 0;
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t p = t * 4 + j, q = t * 4 + 3 - j;
        forward = std::fma(one.weight[p], one.y.Get(one.row_of[p], c), forward);
        backward = std::fma(one.weight[q], one.y.Get(one.row_of[q], c), backward);
        exact += static_cast<double>(one.weight[p]) * one.y.Get(one.row_of[p], c);
      }
      ASSERT_EQ(one.out.Get(t, c), forward);
      ASSERT_NEAR(one.out.Get(t, c), exact, 3e-7);
      other_order += forward != backward;
    }
  }
  EXPECT_GT(other_order, 20);  // the order is visible
}

TEST(Experts, BackwardIsTheTranspose) {
  ThreadPool pool(1);
  Case one(DType::kF32, 11, 2, 37);
  one.Run(pool, ChooseIsa().isa);
  for (int64_t p = 0; p < 22; ++p) {
    double dot = 0;
    for (int64_t c = 0; c < 37; ++c) {
      dot += static_cast<double>(one.grad_out.Get(p / 2, c)) * one.y.Get(one.row_of[p], c);
      ASSERT_EQ(one.grad_y.Get(one.row_of[p], c), one.weight[p] * one.grad_out.Get(p / 2, c));
    }
    ASSERT_NEAR(one.grad_weight[p], dot, 1e-6);
  }
}

TEST(Experts, EmptyAndRefused) {
  ThreadPool pool(1);
  Case none(DType::kF32, 0, 2, 8);
  none.Run(pool, ChooseIsa().isa);
  Case one(DType::kF32, 3, 2, 8);
  const auto combine = [&](const CombineArgs& args) { CombineExperts(pool, ChooseIsa().isa, args); };
  EXPECT_THROW(combine({one.y.view(), one.row_of.data(), nullptr, 3, one.out.mut()}), Error);
  EXPECT_THROW(combine({one.y.view(), nullptr, nullptr, 2, one.out.mut()}), Error);
  one.row_of[4] = 6;
  EXPECT_THROW(combine({one.y.view(), one.row_of.data(), nullptr, 2, one.out.mut()}), Error);
}

}  // namespace
}  // namespace octavo::kernels
