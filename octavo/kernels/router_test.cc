#include "octavo/kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/numeric_gradient.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<int32_t> expert;
  std::vector<float> weight, score;
  bool operator==(const Routed&) const = default;
};

Routed RunRoute(ThreadPool& pool, Isa isa, const RouterSpec& spec, const std::vector<float>& logits) {
  const int64_t tokens = static_cast<int64_t>(logits.size()) / spec.experts;
  Routed out{std::vector<int32_t>(tokens * spec.top_k), std::vector<float>(tokens * spec.top_k),
             std::vector<float>(tokens * spec.experts)};
  Route(pool, isa,
        {spec, RowsOf(logits.data(), tokens, spec.experts), out.expert.data(), out.weight.data(), out.score.data()});
  return out;
}

const std::vector<float> kBias = SampleFloats(24, 77, 0.2f);

std::vector<RouterSpec> Specs() {
  return {{.score = RouterScore::kSoftmax, .experts = 24, .top_k = 4},
          {.score = RouterScore::kSoftmax, .experts = 24, .top_k = 4, .normalize = true},
          {.score = RouterScore::kSoftmaxOfTopK, .experts = 24, .top_k = 3, .scale = 1.5f},
          {.score = RouterScore::kSoftmax,
           .experts = 24,
           .top_k = 3,
           .groups = 6,
           .top_groups = 2,
           .group_score = GroupScore::kMax,
           .scale = 2},
          {.score = RouterScore::kSigmoid,
           .experts = 24,
           .top_k = 5,
           .bias = kBias.data(),
           .groups = 4,
           .top_groups = 2,
           .normalize = true,
           .scale = 2.5f}};
}

// The definition, in double and with a full sort.
Routed Oracle(const RouterSpec& s, const std::vector<float>& logits) {
  const int64_t tokens = static_cast<int64_t>(logits.size()) / s.experts;
  Routed out;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> score(s.experts), choice(s.experts);
    double sum = 0;
    for (int64_t e = 0; e < s.experts; ++e) sum += std::exp(static_cast<double>(logits[t * s.experts + e]));
    for (int64_t e = 0; e < s.experts; ++e) {
      const double l = logits[t * s.experts + e];
      score[e] = s.score == RouterScore::kSoftmax   ? std::exp(l) / sum
                 : s.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-l))
                                                    : l;
      choice[e] = score[e] + (s.bias != nullptr ? s.bias[e] : 0);
    }
    const auto best = [](const std::vector<double>& value) {
      std::vector<int32_t> order(value.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return value[a] > value[b]; });
      return order;
    };
    std::vector<double> group(s.groups);
    const int64_t size = s.experts / s.groups;
    for (int64_t g = 0; g < s.groups; ++g) {
      std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(members.rbegin(), members.rend());
      group[g] = s.group_score == GroupScore::kMax ? members[0] : members[0] + members[1];
    }
    const std::vector<int32_t> groups = best(group);
    for (int64_t i = s.top_groups; i < s.groups; ++i) {
      for (int64_t e = 0; e < size; ++e) choice[groups[i] * size + e] = -1e300;
    }
    const std::vector<int32_t> order = best(choice);
    double chosen = 0;
    for (int64_t j = 0; j < s.top_k; ++j)
      chosen += s.score == RouterScore::kSoftmaxOfTopK ? std::exp(score[order[j]]) : score[order[j]];
    for (int64_t j = 0; j < s.top_k; ++j) {
      double w = score[order[j]];
      if (s.score == RouterScore::kSoftmaxOfTopK)
        w = std::exp(w) / chosen;
      else if (s.normalize)
        w /= chosen;
      out.expert.push_back(order[j]);
      out.weight.push_back(static_cast<float>(w * s.scale));
    }
  }
  return out;
}

TEST(Router, MatchesTheDefinition) {
  ThreadPool pool(2);
  const std::vector<float> logits = SampleFloats(24 * 200, 5, 3);
  for (const RouterSpec& spec : Specs()) {
    const Routed found = RunRoute(pool, ChooseIsa().isa, spec, logits), want = Oracle(spec, logits);
    EXPECT_EQ(found.expert, want.expert);
    for (size_t i = 0; i < want.weight.size(); ++i) ASSERT_NEAR(found.weight[i], want.weight[i], 1e-6);
  }
}

TEST(Router, InstructionSetAndThreadsNeverChangeABit) {
  const std::vector<float> logits = SampleFloats(24 * 301, 6, 3);
  for (const RouterSpec& spec : Specs()) {
    ThreadPool one(1);
    const Routed reference = RunRoute(one, Isa::kReference, spec, logits);
    for (int threads : {1, 2, 3, 7}) {
      ThreadPool pool(threads);
      EXPECT_TRUE(RunRoute(pool, ChooseIsa().isa, spec, logits) == reference);
    }
  }
}

TEST(Router, TiesGoToTheLowerIndexAndNaNComesLast) {
  ThreadPool pool(1);
  const RouterSpec spec{.score = RouterScore::kSoftmaxOfTopK, .experts = 6, .top_k = 3};
  const float nan = std::nanf("");
  EXPECT_EQ(RunRoute(pool, ChooseIsa().isa, spec, {1, 2, 1, 2, 1, 0}).expert, (std::vector<int32_t>{1, 3, 0}));
  EXPECT_EQ(RunRoute(pool, ChooseIsa().isa, spec, {0, 0, 0, 0, 0, 0}).expert, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(RunRoute(pool, ChooseIsa().isa, spec, {nan, 5, nan, 7, 6, 0}).expert, (std::vector<int32_t>{3, 4, 1}));
  EXPECT_EQ(RunRoute(pool, ChooseIsa().isa, spec, {nan, nan, nan, nan, nan, nan}).expert,
            (std::vector<int32_t>{0, 1, 2}));
  const Routed masked = RunRoute(pool, ChooseIsa().isa, spec, {-kInf, -kInf, -kInf, -kInf, -kInf, -kInf});
  EXPECT_EQ(masked.weight, std::vector<float>(3, 0.0f));
  // An expert outside the kept groups is never chosen, whatever is left inside.
  const RouterSpec grouped{
      .score = RouterScore::kSoftmaxOfTopK, .experts = 6, .top_k = 3, .groups = 2, .top_groups = 1};
  EXPECT_EQ(RunRoute(pool, ChooseIsa().isa, grouped, {-kInf, -kInf, -kInf, 1, 2, -kInf}).expert,
            (std::vector<int32_t>{4, 3, 5}));
}

TEST(Router, BackwardMatchesFiniteDifferences) {
  ThreadPool pool(1);
  for (const RouterSpec& spec : Specs()) {
    const std::vector<float> logits = SampleFloats(24 * 3, 7, 3);
    const Routed forward = RunRoute(pool, ChooseIsa().isa, spec, logits);
    const std::vector<float> grad_weight = SampleFloats(3 * spec.top_k, 8);
    std::vector<float> grad_logits(24 * 3, 9.0f);
    RouteBackward(pool, {spec, 3, forward.expert.data(), forward.score.data(), grad_weight.data(), grad_logits.data()});
    // In double, with the chosen experts held fixed.
    const auto loss = [&](const std::vector<double>& at) {
      double total = 0;
      for (int64_t t = 0; t < 3; ++t) {
        double sum = 0, chosen = 0;
        for (int64_t e = 0; e < 24; ++e) sum += std::exp(at[t * 24 + e]);
        const auto score = [&](int64_t j) {
          const double l = at[t * 24 + forward.expert[t * spec.top_k + j]];
          if (spec.score == RouterScore::kSoftmax) return std::exp(l) / sum;
          return spec.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-l)) : std::exp(l);
        };
        for (int64_t j = 0; j < spec.top_k; ++j) chosen += score(j);
        const bool divide = spec.normalize || spec.score == RouterScore::kSoftmaxOfTopK;
        for (int64_t j = 0; j < spec.top_k; ++j) {
          total += grad_weight[t * spec.top_k + j] * spec.scale * score(j) / (divide ? chosen : 1);
        }
      }
      return total;
    };
    const auto gradient = NumericGradient(std::vector<double>(logits.begin(), logits.end()), loss);
    for (int64_t i = 0; i < 72; ++i) ASSERT_NEAR(grad_logits[i], gradient[i], 1e-6) << i;
  }
}

TEST(Router, OrderIsStableByExpertThenPlace) {
  const std::vector<int32_t> expert = {2, 0, 3, 2, 0, 2, 3, 3};
  std::vector<int32_t> sorted(8), row_of(8);
  std::vector<int64_t> group_rows(5);
  OrderByExpert({8, 5, expert.data(), sorted.data(), row_of.data(), group_rows.data()});
  EXPECT_EQ(sorted, (std::vector<int32_t>{1, 4, 0, 3, 5, 2, 6, 7}));
  EXPECT_EQ(group_rows, (std::vector<int64_t>{2, 0, 3, 3, 0}));
  for (int32_t i = 0; i < 8; ++i) EXPECT_EQ(row_of[sorted[i]], i);
  OrderByExpert({0, 5, nullptr, nullptr, nullptr, group_rows.data()});
  EXPECT_EQ(group_rows, std::vector<int64_t>(5, 0));
  EXPECT_THROW(OrderByExpert({8, 3, expert.data(), sorted.data(), row_of.data(), group_rows.data()}), Error);
}

TEST(Router, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  const std::vector<float> logits(12);
  EXPECT_THROW(RunRoute(pool, ChooseIsa().isa, {.experts = 6, .top_k = 7}, logits), Error);
  EXPECT_THROW(RunRoute(pool, ChooseIsa().isa, {.experts = 6, .top_k = 0}, logits), Error);
  EXPECT_THROW(RunRoute(pool, ChooseIsa().isa, {.experts = 6, .top_k = 2, .groups = 4}, logits), Error);
  EXPECT_THROW(RunRoute(pool, ChooseIsa().isa, {.experts = 6, .top_k = 4, .groups = 2, .top_groups = 1}, logits),
               Error);
  int32_t expert[4];
  float weight[4], score[12];
  EXPECT_THROW(
      Route(pool, ChooseIsa().isa, {{.experts = 5, .top_k = 2}, RowsOf(logits.data(), 2, 6), expert, weight, score}),
      Error);
  EXPECT_TRUE(RunRoute(pool, ChooseIsa().isa, {.experts = 6, .top_k = 2}, {}).expert.empty());
}

}  // namespace
}  // namespace octavo::kernels
