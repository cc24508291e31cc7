#include "octavo/ops/moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/ops/gradient_check.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"

namespace octavo::ops {
namespace {

TEST(Moe, RoutesSortsAndCombines) {
  TestBench bench;
  const Tensor logits = Tensor::FromValues<float>({3, 3}, DType::kF32, std::vector<float>{1, 3, 2, 5, 5, 0, 0, 0, 4});
  const Routing routing = RouteTokens(bench.context, logits, Tensor(), {.top_k = 2});
  EXPECT_EQ(routing.expert.ToVector<int32_t>(), (std::vector<int32_t>{1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(routing.group_sizes.ToVector<int32_t>(), (std::vector<int32_t>{2, 2, 2}));
  EXPECT_EQ(routing.sorted.ToVector<int32_t>(), (std::vector<int32_t>{2, 5, 0, 3, 1, 4}));
  EXPECT_FLOAT_EQ(routing.weight.value.At<float>({0, 0}), 1.0f / (1.0f + std::exp(-1.0f)));
  EXPECT_FLOAT_EQ(routing.weight.value.At<float>({1, 1}), 0.5f);
  const Tensor x = Tensor::FromValues<float>({3, 1}, DType::kF32, std::vector<float>{10, 20, 30});
  const Var rows = DispatchRows(bench.context, x, routing);
  EXPECT_EQ(rows.value.ToVector<float>(), (std::vector<float>{20, 30, 10, 20, 10, 30}));
  const Var back = CollectRows(bench.context, rows, routing);
  EXPECT_EQ(back.value.ToVector<float>(), (std::vector<float>{10, 10, 20, 20, 30, 30}));
  const Var sum = CombineExperts(bench.context, back, routing.weight);
  for (int64_t t = 0; t < 3; ++t) EXPECT_NEAR(sum.value.At<float>({t, 0}), 10.0f * static_cast<float>(t + 1), 1e-5);
}

TEST(Moe, BiasChoosesButDoesNotWeigh) {
  TestBench bench;
  const Tensor logits = Tensor::FromValues<float>({1, 3}, DType::kF32, std::vector<float>{2, 1, 0});
  const Tensor bias = Tensor::FromValues<float>({3}, DType::kF32, std::vector<float>{0, 0, 1});
  const Routing routing = RouteTokens(bench.context, logits, bias,
                                      {.score = RouterScore::kSigmoid, .top_k = 2, .normalize = true, .scale = 2.5});
  EXPECT_EQ(routing.expert.ToVector<int32_t>(), (std::vector<int32_t>{2, 0}));
  const float s0 = 1 / (1 + std::exp(-2.0f)), s2 = 0.5f;
  EXPECT_FLOAT_EQ(routing.weight.value.At<float>({0, 0}), 2.5f * s2 / (s0 + s2));
}

// Two rows of three tokens, two experts, one seat each: the first of a row that asks gets it.
TEST(Moe, SeatsFillInOrder) {
  TestBench bench;
  const Tensor logits = Tensor::FromValues<float>({6, 2}, DType::kF32,
                                                  std::vector<float>{1, 0, 2, 0, 0, 3, /* row 1: */ 0, 1, 0, 2, 0, 3});
  Tape tape;
  bench.context.tape = &tape;
  const Var leaf = tape.Leaf(logits);
  const Routing routing = RouteTokens(bench.context, leaf, Tensor(), {.score = RouterScore::kSigmoid, .top_k = 1});
  const Seats seats = SeatTokens(bench.context, routing, 2, 2, 1);
  ASSERT_EQ(seats.taken.shape(), (Shape{2, 3, 2, 1}));
  EXPECT_EQ(seats.taken.ToVector<float>(), (std::vector<float>{1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0}));
  const std::vector<float> weight = seats.weight.value.ToVector<float>();
  EXPECT_EQ(weight[0], routing.weight.value.At<float>({0, 0}));
  EXPECT_EQ(weight[5], routing.weight.value.At<float>({2, 0}));
  EXPECT_EQ(weight[7], routing.weight.value.At<float>({3, 0}));
  // Who was dropped gets no gradient.
  tape.Run(bench.context, seats.weight, WaveTensor(seats.taken.shape(), 0.7));
  const std::vector<float> grad = tape.Grad(leaf).ToVector<float>();
  for (const size_t token : {1, 4, 5}) {
    EXPECT_EQ(grad[2 * token], 0) << token;
    EXPECT_EQ(grad[2 * token + 1], 0) << token;
  }
  EXPECT_NE(grad[0], 0);
}

TEST(Moe, GradientsThroughTheWholePath) {
  TestBench bench;
  for (const RouterScore score : {RouterScore::kSoftmaxOfTopK, RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const Function path = [&](Context& context, const std::vector<Var>& leaves) {
      const Routing routing =
          RouteTokens(context, leaves[0], Tensor(), {.score = score, .top_k = 2, .normalize = true, .scale = 1.5});
      const Var y = CollectRows(context, DispatchRows(context, leaves[1], routing), routing);
      return CombineExperts(context, y, routing.weight);
    };
    EXPECT_LT(GradientError(bench.context, path, {WaveTensor({5, 4}, 2.3), WaveTensor({5, 3}, 0.7)}, 1e-2f), 2e-3);
    const Function spread = [&](Context& context, const std::vector<Var>& leaves) {
      return SpreadWeights(context, RouteTokens(context, leaves[0], Tensor(), {.score = score, .top_k = 2}), 4);
    };
    EXPECT_LT(GradientError(bench.context, spread, {WaveTensor({5, 4}, 2.3)}, 1e-2f), 2e-3);
  }
}

TEST(Moe, BalanceLossIsItsFormula) {
  TestBench bench;
  // One sequence of two tokens that both choose expert 0: density 1, 0; even logits give probability 1/2.
  const Tensor logits = Tensor::Zeros({1, 2, 2}, DType::kF32);
  const Tensor expert = Tensor::Zeros({2, 1}, DType::kI32);
  const Var loss = BalanceLoss(bench.context, logits, expert, RouterScore::kSoftmax, 4 * 0.01);
  EXPECT_FLOAT_EQ(loss.value.At<float>({}), 0.01f * 4 * (1 * 0.5f + 0) / 2);
}

TEST(Moe, BalanceLossGradient) {
  TestBench bench;
  const Tensor expert =
      Tensor::FromValues<int32_t>({6, 2}, DType::kI32, std::vector<int32_t>{0, 1, 2, 0, 0, 3, 1, 0, 2, 3, 0, 2});
  for (const RouterScore score : {RouterScore::kSoftmaxOfTopK, RouterScore::kSigmoid}) {
    const Function loss = [&](Context& context, const std::vector<Var>& leaves) {
      return BalanceLoss(context, leaves[0], expert, score, 16);
    };
    EXPECT_LT(GradientError(bench.context, loss, {WaveTensor({2, 3, 4}, 2.3)}, 1e-2f), 2e-3);
  }
}

}  // namespace
}  // namespace octavo::ops
