#include "octavo/kernels/matmul_f32.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {
namespace {

std::vector<float> Random(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = (static_cast<float>(engine() >> 8) * 0x1p-24f - 0.5f) * 4;
  return values;
}

TEST(MatMulF32, IntegersAreExactInEveryLayout) {
  ThreadPool pool(2);
  Workspace workspace;
  const int64_t m = 5, n = 7, k = 300;
  std::vector<float> a(m * k), b(k * n), c(m * n);
  for (int64_t i = 0; i < m * k; ++i) a[i] = static_cast<float>(i % 11 - 5);
  for (int64_t i = 0; i < k * n; ++i) b[i] = static_cast<float>(i % 7 - 3);
  std::vector<float> at(k * m), bt(n * k);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) at[j * m + i] = a[i * k + j];
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) bt[j * k + i] = b[i * n + j];
  for (int form = 0; form < 4; ++form) {
    MatMulF32Args args;
    args.a = form & 1 ? SourceF32(at.data(), k, m).Transposed() : SourceF32(a.data(), m, k);
    args.b = form & 2 ? SourceF32(bt.data(), n, k).Transposed() : SourceF32(b.data(), k, n);
    args.c = ResultF32(c.data(), m, n);
    MatMulF32(pool, ChooseIsa().isa, workspace, args);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        int64_t want = 0;
        for (int64_t x = 0; x < k; ++x) want += static_cast<int64_t>(a[i * k + x]) * static_cast<int64_t>(b[x * n + j]);
        ASSERT_EQ(c[i * n + j], static_cast<float>(want)) << form << " " << i << " " << j;
      }
    }
  }
}

// The order of the sum, spelled out once more and independently of the kernels.
TEST(MatMulF32, LeavesOf256AddedAscending) {
  ThreadPool pool(1);
  Workspace workspace;
  const int64_t k = 1000;
  const std::vector<float> a = Random(k, 3), b = Random(k, 4);
  float leaf[4] = {};
  for (int64_t i = 0; i < k; ++i) leaf[i / 256] = std::fmaf(a[i], b[i], leaf[i / 256]);
  float c = 0;
  MatMulF32Args args{SourceF32(a.data(), 1, k), SourceF32(b.data(), k, 1), ResultF32(&c, 1, 1), {}};
  MatMulF32(pool, ChooseIsa().isa, workspace, args);
  EXPECT_EQ(c, ((leaf[0] + leaf[1]) + leaf[2]) + leaf[3]);
}

TEST(MatMulF32, EpilogueRoundsStepByStep) {
  ThreadPool pool(1);
  Workspace workspace;
  const float a = 1.7f, b = 2.3f, row = 0.3f, col = 0.7f, bias = 0.11f;
  float c = 5;
  MatMulF32Args args{SourceF32(&a, 1, 1), SourceF32(&b, 1, 1), ResultF32(&c, 1, 1), {}};
  args.epilogue = {{&row, 1}, {&col, 1}, {&bias, 1}, true};
  MatMulF32(pool, ChooseIsa().isa, workspace, args);
  volatile float want = 1.7f * 2.3f;
  want = want * row;
  want = want * col;
  want = want + bias;
  want = 5 + want;
  EXPECT_EQ(c, want);
}

TEST(MatMulF32, NoDepthGivesTheEpilogueOfZero) {
  ThreadPool pool(2);
  Workspace workspace;
  std::vector<float> c(6, 9.0f);
  const std::vector<float> bias = {1, 2, 3};
  MatMulF32Args args;
  args.a = SourceF32(nullptr, 2, 0);
  args.b = SourceF32(nullptr, 0, 3);
  args.c = ResultF32(c.data(), 2, 3);
  args.epilogue.bias = {bias.data(), 1};
  MatMulF32(pool, ChooseIsa().isa, workspace, args);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

TEST(MatMulF32, WrongShapesAreNamed) {
  ThreadPool pool(1);
  Workspace workspace;
  std::vector<float> x(64);
  MatMulF32Args args{SourceF32(x.data(), 2, 3), SourceF32(x.data(), 4, 2), ResultF32(x.data(), 2, 2), {}};
  try {
    MatMulF32(pool, Isa::kReference, workspace, args);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "MatMulF32: a [2, 3] contracts 3, b [4, 2] wants 4");
  }
}

TEST(GroupedMatMulF32, EmptyGroupsAndRowsPastTheLast) {
  ThreadPool pool(2);
  Workspace workspace;
  const int64_t rows = 6, k = 2, n = 2;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<float> b0 = {1, 0, 0, 1}, b1 = {9, 9, 9, 9}, b2 = {0, 1, 1, 0};
  const std::vector<FloatSource> b = {SourceF32(b0.data(), k, n), SourceF32(b1.data(), k, n),
                                      SourceF32(b2.data(), k, n)};
  const std::vector<int64_t> group_rows = {2, 0, 3};
  std::vector<float> c(rows * n, std::numeric_limits<float>::quiet_NaN());
  GroupedF32Args args;
  args.a = SourceF32(a.data(), rows, k);
  args.group_rows = group_rows;
  args.b = b;
  args.c = ResultF32(c.data(), rows, n);
  GroupedMatMulF32(pool, ChooseIsa().isa, workspace, args);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 4, 6, 5, 8, 7, 10, 9, 0, 0}));

  std::vector<float> g(3 * k * n, 7.0f);
  const std::vector<FloatResult> grads = {ResultF32(&g[0], k, n), ResultF32(&g[4], k, n), ResultF32(&g[8], k, n)};
  GroupedGradF32Args grad;
  grad.a = SourceF32(a.data(), rows, k);
  grad.grad = SourceF32(a.data(), rows, k);
  grad.group_rows = group_rows;
  grad.c = grads;
  GroupedGradF32(pool, ChooseIsa().isa, workspace, grad);
  EXPECT_EQ(g, (std::vector<float>{10, 14, 14, 20, 0, 0, 0, 0, 155, 176, 176, 200}));
}

}  // namespace
}  // namespace octavo::kernels
