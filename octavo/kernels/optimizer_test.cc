#include "octavo/kernels/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/reductions.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

struct State {
  std::vector<float> weight, moment1, moment2;
  explicit State(int64_t n) : weight(SampleFloats(n, 1)), moment1(n), moment2(n) {}
  bool operator==(const State&) const = default;
};

void Steps(ThreadPool& pool, Isa isa, AdamArgs args, int count, State& state) {
  args.count = static_cast<int64_t>(state.weight.size());
  for (int step = 0; step < count; ++step) {
    const std::vector<float> grad = SampleFloats(args.count, 100 + step, 0.1f);
    args.grad = grad.data();
    args.weight = state.weight.data();
    args.moment1 = state.moment1.data();
    args.moment2 = state.moment2.data();
    args.step = step;
    AdamUpdate(pool, isa, args);
  }
}

TEST(Optimizer, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  std::vector<int64_t> sizes = {0, 127, 128, 129, 1000, 4097};
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (int64_t n : sizes) {
    for (AdamKind kind : {AdamKind::kAdamW, AdamKind::kAdamPax}) {
      State reference(n), fast(n);
      const AdamArgs args{.kind = kind, .epsilon_root = 1e-12, .rate = 1e-2, .grad_scale = 0.37};
      Steps(pool, Isa::kReference, args, 3, reference);
      Steps(pool, ChooseIsa().isa, args, 3, fast);
      ASSERT_EQ(HashOf(reference.weight), HashOf(fast.weight)) << n;
      ASSERT_EQ(HashOf(reference.moment1), HashOf(fast.moment1));
      ASSERT_EQ(HashOf(reference.moment2), HashOf(fast.moment2));
    }
    for (double momentum : {0.0, 0.9}) {
      for (bool nesterov : {false, true}) {
        std::vector<float> weight[2] = {SampleFloats(n, 1), SampleFloats(n, 1)},
                           trace[2] = {SampleFloats(n, 2), SampleFloats(n, 2)};
        const std::vector<float> grad = SampleFloats(n, 3);
        for (int i = 0; i < 2; ++i) {
          SgdUpdate(pool, i == 0 ? Isa::kReference : ChooseIsa().isa,
                    {0.3, momentum, 0.5, nesterov, n, grad.data(), weight[i].data(), trace[i].data()});
        }
        ASSERT_EQ(HashOf(weight[0]), HashOf(weight[1])) << n;
        ASSERT_EQ(HashOf(trace[0]), HashOf(trace[1]));
      }
    }
  }
}

// Optax's adamw and PaxML's Adam, written out in double.
TEST(Optimizer, AdamFollowsTheFormulas) {
  ThreadPool pool(2);
  constexpr int64_t kCount = 50;
  constexpr double kB1 = 0.9, kB2 = 0.95, kEps = 1e-8, kDecay = 0.1, kRate = 1e-2;
  for (AdamKind kind : {AdamKind::kAdamW, AdamKind::kAdamPax}) {
    State state(kCount);
    std::vector<double> w(state.weight.begin(), state.weight.end()), m(kCount), v(kCount);
    Steps(pool, ChooseIsa().isa, {.kind = kind, .rate = kRate}, 20, state);
    for (int t = 1; t <= 20; ++t) {
      const std::vector<float> grad = SampleFloats(kCount, 100 + t - 1, 0.1f);
      const auto pax = [&](double b) { return b * (1 - std::pow(b, t - 1)) / (1 - std::pow(b, t)); };
      const bool adamw = kind == AdamKind::kAdamW;
      const double d1 = adamw ? kB1 : pax(kB1), d2 = adamw ? kB2 : pax(kB2);
      for (int64_t i = 0; i < kCount; ++i) {
        m[i] = d1 * m[i] + (1 - d1) * grad[i];
        v[i] = d2 * v[i] + (1 - d2) * grad[i] * grad[i];
        const double mh = adamw ? m[i] / (1 - std::pow(kB1, t)) : m[i];
        const double vh = adamw ? v[i] / (1 - std::pow(kB2, t)) : v[i];
        w[i] -= kRate * (mh / (std::sqrt(vh) + kEps) + kDecay * w[i]);
      }
    }
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(state.weight[i], w[i], 2e-6);
      ASSERT_NEAR(state.moment1[i], m[i], 1e-7);
      ASSERT_NEAR(state.moment2[i], v[i], 1e-8);
    }
  }
}

TEST(Optimizer, SgdFollowsTheFormulas) {
  ThreadPool pool(1);
  float weight = 2, trace = 0.5f;
  const float grad = 4;
  SgdUpdate(pool, ChooseIsa().isa, {.rate = 0.25, .count = 1, .grad = &grad, .weight = &weight});
  EXPECT_EQ(weight, 1.0f);
  SgdUpdate(pool, ChooseIsa().isa,
            {.rate = 0.25, .momentum = 0.5, .count = 1, .grad = &grad, .weight = &weight, .trace = &trace});
  EXPECT_EQ(trace, 4.25f);
  EXPECT_EQ(weight, 1.0f - 0.25f * 4.25f);
  weight = 1;
  SgdUpdate(
      pool, ChooseIsa().isa,
      {.rate = 0.25, .momentum = 0.5, .nesterov = true, .count = 1, .grad = &grad, .weight = &weight, .trace = &trace});
  EXPECT_EQ(trace, 6.125f);
  EXPECT_EQ(weight, 1.0f - 0.25f * (4 + 0.5f * 6.125f));
}

TEST(Optimizer, ThreadsNeverChangeABit) {
  ThreadPool one(1);
  State alone(20000);
  Steps(one, ChooseIsa().isa, {.rate = 1e-3}, 2, alone);
  for (int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    State many(20000);
    Steps(pool, ChooseIsa().isa, {.rate = 1e-3}, 2, many);
    EXPECT_TRUE(many == alone);
  }
}

// The squares of the new weights come on the way, with the bits of a pass of their own.
TEST(Optimizer, SquaresAreThoseOfTheNewWeights) {
  for (const Isa isa : AvailableIsas()) {
    for (const int64_t n : {1, 4096, 4097, 20000}) {
      ThreadPool pool(2);
      const std::vector<float> grad = SampleFloats(n, 3);
      std::vector<double> adam(static_cast<size_t>(ChunksOf(n))), sgd(adam.size()), expected(adam.size());
      State state(n);
      AdamUpdate(pool, isa,
                 {.rate = 1e-2,
                  .count = n,
                  .grad = grad.data(),
                  .weight = state.weight.data(),
                  .moment1 = state.moment1.data(),
                  .moment2 = state.moment2.data(),
                  .squares = adam.data()});
      State plain(n);
      Steps(pool, isa, {.rate = 1e-2}, 0, plain);
      ChunkSums(pool, isa, SumOf::kSquares, state.weight.data(), DType::kF32, n, expected.data());
      EXPECT_EQ(adam, expected) << n;
      EXPECT_NE(HashOf(state.weight), HashOf(plain.weight));
      SgdUpdate(pool, isa,
                {.rate = 0.1, .count = n, .grad = grad.data(), .weight = plain.weight.data(), .squares = sgd.data()});
      ChunkSums(pool, isa, SumOf::kSquares, plain.weight.data(), DType::kF32, n, expected.data());
      EXPECT_EQ(sgd, expected) << n;
    }
  }
}

TEST(Optimizer, AZeroGradientOnlyDecays) {
  ThreadPool pool(1);
  for (Isa isa : AvailableIsas()) {
    std::vector<float> weight = {1, -2, 3}, moment1(3), moment2(3);
    const std::vector<float> grad(3, 0.0f);
    AdamUpdate(pool, isa,
               {.rate = 0.5,
                .count = 3,
                .grad = grad.data(),
                .weight = weight.data(),
                .moment1 = moment1.data(),
                .moment2 = moment2.data()});
    EXPECT_EQ(weight, (std::vector<float>{1 - 0.05f, -2 + 0.1f, 3 - 0.5f * (0.1f * 3)}));
    EXPECT_EQ(moment1, std::vector<float>(3, 0.0f));
    // A NaN in the gradient is not hidden.
    const std::vector<float> broken = {std::nanf(""), 0, 0};
    AdamUpdate(pool, isa,
               {.rate = 0.5,
                .count = 3,
                .grad = broken.data(),
                .weight = weight.data(),
                .moment1 = moment1.data(),
                .moment2 = moment2.data()});
    EXPECT_TRUE(std::isnan(weight[0]));
    EXPECT_FALSE(std::isnan(weight[1]));
  }
}

TEST(Optimizer, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  float cell = 0;
  const AdamArgs good{.count = 1, .grad = &cell, .weight = &cell, .moment1 = &cell, .moment2 = &cell};
  const auto refuses = [&](auto change) {
    AdamArgs args = good;
    change(args);
    EXPECT_THROW(AdamUpdate(pool, ChooseIsa().isa, args), Error);
  };
  refuses([](AdamArgs& a) { a.beta1 = 1; });
  refuses([](AdamArgs& a) { a.beta2 = -0.1; });
  refuses([](AdamArgs& a) { a.step = -1; });
  refuses([](AdamArgs& a) { a.moment2 = nullptr; });
  refuses([](AdamArgs& a) { a.count = -1; });
  EXPECT_THROW(SgdUpdate(pool, ChooseIsa().isa, {.momentum = 0.9, .count = 1, .grad = &cell, .weight = &cell}), Error);
}

}  // namespace
}  // namespace octavo::kernels
