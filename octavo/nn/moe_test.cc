#include "octavo/nn/moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/ops/aux_losses.h"
#include "octavo/ops/kv_pages.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"

namespace octavo::nn {
namespace {

// A block with parameters that are not all alike, and what a pass over it needs.
struct Bench {
  ThreadPool pool;
  kernels::Workspace workspace;
  ParameterSet set;
  MoeBlock block;

  Bench(const MoeOptions& options, int threads)
      : pool(threads), block(Builder(set, "", DType::kF32, DType::kF32), "MoeBlock_0", options) {
    double step = 1.3;
    for (ops::Parameter* parameter : set.all()) parameter->value = ops::WaveTensor(parameter->shape(), step += 0.37);
  }
  ops::Context MakeContext() { return ops::Context(pool, kernels::ChooseIsa().isa, workspace); }

  // The output and all gradients, of the output's weighted sum plus the balance loss.
  std::vector<std::vector<float>> Run(const Tensor& x) {
    ops::Context context = MakeContext();
    ops::Tape tape;
    ops::AuxLosses aux;
    context.tape = &tape;
    context.aux = &aux;
    const ops::Var leaf = tape.Leaf(x);
    const ops::Var out = block(context, leaf);
    tape.Run(context, out, ops::WaveTensor(out.shape(), 0.9));
    std::vector<std::vector<float>> all = {out.value.ToVector<float>(), tape.Grad(leaf).ToVector<float>(),
                                           aux.load_balance.at(0).value.ToVector<float>()};
    for (const ops::Parameter* parameter : set.all()) {
      const Tensor grad = tape.Grad(*parameter);
      all.push_back(grad.defined() ? grad.ToVector<float>() : std::vector<float>());
    }
    return all;
  }
};

MoeOptions Options(bool sparse) {
  MoeOptions options;
  options.emb_dim = 6;
  options.mlp_dim = 5;
  options.experts = 4;
  options.router.top_k = 2;
  options.sparse = sparse;
  options.balance_loss = true;
  return options;
}

double Apart(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::fabs(double{a[i]} - b[i]));
  return largest;
}

TEST(MoeBlock, HasMaxTextNamesAndShapes) {
  MoeOptions options = Options(true);
  options.router_bias = true;
  Bench bench(options, 1);
  std::vector<std::string> found;
  for (const ops::Parameter* parameter : bench.set.all()) {
    found.push_back(parameter->name + " " + parameter->shape().ToString());
  }
  EXPECT_EQ(found, (std::vector<std::string>{"MoeBlock_0/gate/kernel [6, 4]", "MoeBlock_0/gate/bias [4]",
                                             "MoeBlock_0/wi_0 [4, 6, 5]", "MoeBlock_0/wi_1 [4, 6, 5]",
                                             "MoeBlock_0/wo [4, 5, 6]"}));
}

TEST(MoeBlock, SparseAndDenseAgree) {
  const Tensor x = ops::WaveTensor({2, 7, 6}, 0.61);
  Bench sparse(Options(true), 2), dense(Options(false), 2);
  const auto a = sparse.Run(x), b = dense.Run(x);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(Apart(a[i], b[i]), 2e-6) << i;
}

TEST(MoeBlock, BitsDoNotDependOnThreads) {
  const Tensor x = ops::WaveTensor({3, 50, 6}, 0.61);
  for (const bool sparse : {true, false}) {
    Bench one(Options(sparse), 1);
    const auto expected = one.Run(x);
    for (const int threads : {2, 3, 7}) {
      Bench many(Options(sparse), threads);
      EXPECT_EQ(many.Run(x), expected) << threads;
    }
  }
}

TEST(MoeBlock, CountsEveryTokenOfEveryExpert) {
  Bench bench(Options(true), 2);
  ops::Context context = bench.MakeContext();
  ops::AuxLosses aux;
  context.aux = &aux;
  bench.block(context, ops::WaveTensor({2, 7, 6}, 0.61));
  ASSERT_EQ(aux.loads.size(), 1u);
  int64_t total = 0;
  for (const int64_t tokens : aux.loads[0].tokens) total += tokens;
  EXPECT_EQ(total, 2 * 7 * 2);
}

// Central differences of the weighted output by one number of each parameter.
TEST(MoeBlock, GradientsMatchDifferences) {
  const Tensor x = ops::WaveTensor({1, 5, 6}, 0.61);
  MoeOptions options = Options(true);
  options.router = {.score = ops::RouterScore::kSigmoid, .top_k = 2, .normalize = true, .scale = 2.5};
  Bench bench(options, 2);
  const auto found = bench.Run(x);
  const auto weighted = [&] {
    ops::Context context = bench.MakeContext();
    const ops::Var out = bench.block(context, x);
    const std::vector<float> y = out.value.ToVector<float>(), w = ops::WaveTensor(out.shape(), 0.9).ToVector<float>();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += double{y[i]} * w[i];
    return sum;
  };
  for (size_t p = 0; p < bench.set.all().size(); ++p) {
    ops::Parameter* parameter = bench.set.all()[p];
    const Tensor before = parameter->tensor();
    const int64_t at = before.size() / 3;
    double sides[2];
    for (const int side : {0, 1}) {
      Tensor moved = before.Clone();
      moved.MutableValues<float>()[at] += side == 0 ? -1e-3f : 1e-3f;
      parameter->value = moved;
      sides[side] = weighted();
    }
    parameter->value = before;
    EXPECT_NEAR(found[3 + p][at], (sides[1] - sides[0]) / 2e-3, 5e-3) << parameter->name;
  }
}

TEST(MoeBlock, LimitedCapacityIsRefusedOverACache) {
  MoeOptions options = Options(false);
  options.capacity_factor = 1;
  Bench bench(options, 1);
  ops::Context context = bench.MakeContext();
  ops::Rows rows = ops::RowsOfShape(1, 5);
  const ops::KvPages pages;
  rows.kv = &pages;
  context.rows = &rows;
  EXPECT_THROW(bench.block(context, ops::WaveTensor({1, 5, 6}, 0.61)), Error);
}

}  // namespace
}  // namespace octavo::nn
