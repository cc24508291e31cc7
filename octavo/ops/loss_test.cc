#include "octavo/ops/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"

namespace octavo::ops {
namespace {

struct Result {
  float value = 0;
  LossSums sums;
  Tensor grad_hidden, grad_head;
};

Result Compute(TestBench& bench, const Tensor& hidden, const Parameter& head, const HeadOptions& options,
               const Tensor& targets, const Tensor& segments, const LossSpec& spec, float seed = 1) {
  Tape tape;
  bench.context.tape = &tape;
  bench.context.StartModel();
  const Var x = tape.Leaf(hidden);
  Result result;
  const Var loss = LmHeadLoss(bench.context, x, head, options, targets, segments, spec, &result.sums);
  Tensor one = Tensor::Empty({}, DType::kF32);
  one.MutableData<float>()[0] = seed;
  tape.Run(bench.context, loss, one);
  bench.context.tape = nullptr;
  result.value = loss.value.Data<float>()[0];
  result.grad_hidden = tape.Grad(x);
  result.grad_head = tape.Grad(head);
  return result;
}

// In double, with the head rounded to bf16 when it is tied.
double Expected(const Tensor& hidden, const Tensor& head, const HeadOptions& options,
                const std::vector<int32_t>& targets, const std::vector<int32_t>& segments, const LossSpec& spec) {
  TestBench bench;
  const Tensor used =
      options.tied ? CastTensor(bench.context, CastTensor(bench.context, head, DType::kBF16), DType::kF32) : head;
  const int64_t rows = hidden.dim(0), width = hidden.dim(1), vocab = head.dim(options.tied ? 0 : 1);
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    if (segments[static_cast<size_t>(r)] == 0) continue;
    std::vector<double> logits(static_cast<size_t>(vocab));
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      double z = 0;
      for (int64_t c = 0; c < width; ++c) {
        z += static_cast<double>(hidden.At<float>({r, c})) *
             static_cast<double>(options.tied ? used.At<float>({v, c}) : used.At<float>({c, v}));
      }
      z *= options.logit_scale;
      if (options.soft_cap > 0) z = options.soft_cap * std::tanh(z / options.soft_cap);
      logits[static_cast<size_t>(v)] = z;
      sum += std::exp(z);
    }
    total += std::log(sum) - logits[static_cast<size_t>(targets[static_cast<size_t>(r)])] +
             spec.z_loss * std::log(sum) * std::log(sum);
  }
  return total * spec.factor;
}

TEST(LmHeadLoss, ValueAndGradientsOfEveryForm) {
  TestBench bench;
  const std::vector<int32_t> targets = {3, 0, 10, 7, 7}, segments = {1, 1, 2, 0, 1};
  const Tensor hidden = RandomTensor({5, 6}, 1, -2, 2);
  for (bool tied : {false, true}) {
    for (double cap : {0.0, 2.0}) {
      Parameter head{"head", RandomTensor(tied ? Shape{11, 6} : Shape{6, 11}, 2)};
      const HeadOptions options{.tied = tied, .logit_scale = tied ? 1 / std::sqrt(6.0) : 1.0, .soft_cap = cap};
      const LossSpec spec{0.05, 0.25, 1};
      const Tensor t = IntTensor({5}, targets), s = IntTensor({5}, segments);
      const Result found = Compute(bench, hidden, head, options, t, s, spec);
      EXPECT_NEAR(found.value, Expected(hidden, head.tensor(), options, targets, segments, spec), 2e-6);
      EXPECT_EQ(found.sums.weights, 4);
      EXPECT_NEAR(found.sums.xent * 0.25, found.value, 1e-6);
      EXPECT_GT(found.sums.z_loss, 0);
      const double step = 1e-3;
      for (int64_t i = 0; i < hidden.size(); ++i) {
        double sides[2];
        for (int side : {0, 1}) {
          Tensor moved = hidden.Clone();
          moved.MutableValues<float>()[i] += static_cast<float>(side == 0 ? -step : step);
          sides[side] = Expected(moved, head.tensor(), options, targets, segments, spec);
        }
        EXPECT_NEAR(found.grad_hidden.Values<float>()[i], (sides[1] - sides[0]) / (2 * step), 2e-4);
      }
      if (tied) continue;  // rounding the head to bf16 leaves nothing to difference
      for (int64_t i = 0; i < head.tensor().size(); ++i) {
        double sides[2];
        for (int side : {0, 1}) {
          Tensor moved = head.tensor().Clone();
          moved.MutableValues<float>()[i] += static_cast<float>(side == 0 ? -step : step);
          sides[side] = Expected(hidden, moved, options, targets, segments, spec);
        }
        EXPECT_NEAR(found.grad_head.Values<float>()[i], (sides[1] - sides[0]) / (2 * step), 2e-4);
      }
    }
  }
}

// Tiles, and a provider that answers the head, must not change a bit; an outer gradient multiplies.
TEST(LmHeadLoss, BitsDoNotDependOnTilesOrOnWhoAsksForLogits) {
  struct Shy : Interceptor {
    bool Answers(const Site&) const override { return answers; }
    bool answers = true;
  };
  const int64_t rows = 700, width = 40, vocab = 1100;
  const Tensor hidden = RandomTensor({rows, width}, 5);
  std::vector<int32_t> targets, segments;
  for (int64_t r = 0; r < rows; ++r) {
    targets.push_back(static_cast<int32_t>(r * 37 % vocab));
    segments.push_back(r % 50 == 0 ? 0 : 1);
  }
  const Tensor t = IntTensor({rows}, targets), s = IntTensor({rows}, segments);
  for (bool tied : {false, true}) {
    const Parameter head{"head", RandomTensor(tied ? Shape{vocab, width} : Shape{width, vocab}, 6)};
    const HeadOptions options{.tied = tied};
    TestBench one(1), three(3);
    const Result base = Compute(one, hidden, head, options, t, s, {1e-4, 0.001, 1});
    for (int tiles : {2, 3, 8}) {
      const Result tiled = Compute(three, hidden, head, options, t, s, {1e-4, 0.001, tiles});
      EXPECT_EQ(tiled.value, base.value);
      EXPECT_TRUE(BitEqual(tiled.grad_hidden, base.grad_hidden));
      EXPECT_TRUE(BitEqual(tiled.grad_head, base.grad_head));
    }
    Shy shy;
    three.context.interceptor = &shy;
    const Result composed = Compute(three, hidden, head, options, t, s, {1e-4, 0.001, 1});
    EXPECT_EQ(composed.value, base.value);
    EXPECT_TRUE(BitEqual(composed.grad_hidden, base.grad_hidden));
    EXPECT_TRUE(BitEqual(composed.grad_head, base.grad_head));
    shy.answers = false;
    const Result doubled = Compute(three, hidden, head, options, t, s, {1e-4, 0.001, 1}, 2.0f);
    EXPECT_EQ(doubled.grad_head.ToVector<float>()[5], 2 * base.grad_head.ToVector<float>()[5]);
  }
}

TEST(LmHeadLoss, RefusesATargetOutsideTheVocabulary) {
  TestBench bench;
  const Parameter head{"head", RandomTensor({4, 8}, 1)};
  const auto run = [&](int32_t target, int32_t segment) {
    LmHeadLoss(bench.context, RandomTensor({1, 4}, 2), head, {}, IntTensor({1}, {target}), IntTensor({1}, {segment}),
               {}, nullptr);
  };
  EXPECT_THROW(run(8, 1), Error);
  run(8, 0);
}

}  // namespace
}  // namespace octavo::ops
