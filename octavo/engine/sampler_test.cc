#include "octavo/engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kIsa = kernels::Isa::kReference;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t NextToken(const Sampler& sampler, std::span<const float> logits, int64_t position,
                  std::span<const int32_t> banned = {}, std::span<const uint32_t> mask = {}) {
  SamplerScratch scratch;
  return sampler.Next(kIsa, {logits, position, banned, mask, -1}, scratch).token;
}

// Shares of each token over many positions.
std::vector<double> Shares(const Sampling& sampling, const std::vector<float>& logits, int draws = 20000) {
  const Sampler sampler(sampling, 0, {});
  SamplerScratch scratch;
  std::vector<double> counts(logits.size());
  for (int i = 0; i < draws; ++i)
    counts[static_cast<size_t>(sampler.Next(kIsa, {logits, i, {}, {}, -1}, scratch).token)] += 1;
  for (double& count : counts) count /= draws;
  return counts;
}

std::vector<double> Softmax(std::vector<double> values) {
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value);
  for (double& value : values) value /= sum;
  return values;
}

void ExpectShares(const std::vector<double>& shares, const std::vector<double>& expected, int draws = 20000) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double sigma = std::sqrt(expected[i] * (1 - expected[i]) / draws);
    EXPECT_NEAR(shares[i], expected[i], 4 * sigma) << "token " << i;
  }
}

// The same decisions with a full sort in double, and nothing clever.
int32_t Slow(const Sampling& s, std::span<const float> logits, int64_t position) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int32_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return at(a) > at(b); });
  const double max = at(order[0]);
  const bool filters = (s.top_k > 0 && s.top_k < std::ssize(logits)) || s.top_p < 1 || s.min_p > 0;
  if (s.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(s.top_k)));
  const double filter_temperature = s.temperature_last ? 1 : s.temperature;
  double total = 0, sum = 0;
  for (const int32_t id : order) total += std::exp((at(id) - max) / filter_temperature);
  if (s.top_p < 1) {
    size_t cut = 0;
    for (; cut < order.size(); ++cut) {
      sum += std::exp((at(order[cut]) - max) / filter_temperature);
      if (sum / total >= s.top_p) break;
    }
    const double lowest = at(order[std::min(cut, order.size() - 1)]);
    std::erase_if(order, [&](int32_t id) { return at(id) < lowest; });
  }
  std::erase_if(order, [&](int32_t id) { return std::exp((at(id) - max) / filter_temperature) < s.min_p; });
  if (!filters) std::ranges::sort(order);  // the whole row is walked by id
  const double u =
      static_cast<double>(RngKey::FromSeed(s.seed).FoldIn(0).Bits64(static_cast<uint64_t>(position)) >> 11) * 0x1p-53;
  total = 0;
  for (const int32_t id : order) total += std::exp((at(id) - max) / s.temperature);
  sum = 0;
  for (const int32_t id : order) {
    sum += std::exp((at(id) - max) / s.temperature);
    if (sum > u * total) return id;
  }
  return order.back();
}

TEST(Sampler, GreedyTakesTheFirstLargest) {
  Sampling greedy;
  greedy.temperature = 0;
  const Sampler sampler(greedy, 0, {});
  EXPECT_EQ(NextToken(sampler, std::vector<float>{1, 3, 2, 3}, 5), 1);
  EXPECT_EQ(NextToken(sampler, std::vector<float>{-kInf, -2, -kInf, -1}, 5), 3);
}

TEST(Sampler, WeightedFollowsSoftmaxOfLogitsOverTemperature) {
  const std::vector<float> logits{0, 1, 2, -1, 0.5};
  Sampling sampling;
  sampling.seed = 7;
  ExpectShares(Shares(sampling, logits), Softmax({0, 1, 2, -1, 0.5}));
  sampling.temperature = 2;
  ExpectShares(Shares(sampling, logits), Softmax({0, 0.5, 1, -0.5, 0.25}));
  sampling.temperature = 1e-12;  // held at the floor: still numbers
  EXPECT_EQ(Shares(sampling, logits, 100)[2], 1);
}

TEST(Sampler, TopKKeepsTheLowerIdAmongEquals) {
  Sampling sampling;
  sampling.top_k = 2;
  ExpectShares(Shares(sampling, {1, 2, 1, 1, 0}), [] {
    auto p = Softmax({1, 2});
    return std::vector<double>{p[0], p[1], 0, 0, 0};
  }());
}

TEST(Sampler, NucleusKeepsEqualsOfTheCutoff) {
  // Probabilities 0.4, 0.2, 0.2, 0.2: reaching 0.5 takes one of the three equal ones, so all three stay.
  const std::vector<float> logits{std::log(4.0f), std::log(2.0f), std::log(2.0f), std::log(2.0f)};
  Sampling sampling;
  sampling.top_p = 0.5;
  ExpectShares(Shares(sampling, logits), {0.4, 0.2, 0.2, 0.2});
  sampling.top_p = 0.3;
  EXPECT_EQ(Shares(sampling, logits, 200)[0], 1);
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  Sampling sampling;
  sampling.min_p = 0.25;  // 0.125 of probability
  ExpectShares(Shares(sampling, logits), {0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0});
}

TEST(Sampler, CompositeFiltersBeforeTemperature) {
  // Temperature 4 flattens so much that top-p 0.75 after it would keep all three.
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const Sampling composite = SamplingOfStrategy("composite", 3, 0.75, 4);
  const auto p = Softmax({std::log(0.5) / 4, std::log(0.3) / 4});
  ExpectShares(Shares(composite, logits), {p[0], p[1], 0, 0});
  Sampling other = composite;
  other.temperature_last = false;
  EXPECT_GT(Shares(other, logits)[2], 0.1);
}

TEST(Sampler, SelectionEqualsAFullSort) {
  const RngKey key = RngKey::FromSeed(3);
  int different = 0;
  for (const size_t size : {5u, 300u, 5000u}) {
    for (int test = 0; test < 60; ++test) {
      std::vector<float> logits(size);
      // From flat to steep, with equal values.
      const float steep = std::array{0.01f, 1.0f, 3.0f, 30.0f}[static_cast<size_t>(test % 4)];
      for (size_t i = 0; i < size; ++i) {
        logits[i] = steep * std::round(8 * Normal(key, static_cast<uint64_t>(test) * 10000 + i)) / 8;
      }
      Sampling sampling;
      sampling.seed = static_cast<uint64_t>(test);
      sampling.temperature = std::array{0.3, 1.0, 2.5}[static_cast<size_t>(test % 3)];
      sampling.top_k = std::array{0, 3, 40, 100000}[static_cast<size_t>(test / 4 % 4)];
      sampling.top_p = std::array{1.0, 0.9, 0.35}[static_cast<size_t>(test / 3 % 3)];
      sampling.min_p = std::array{0.0, 0.07}[static_cast<size_t>(test / 5 % 2)];
      sampling.temperature_last = test % 7 == 0;
      const Sampler sampler(sampling, 0, {});
      for (int64_t position = 0; position < 3; ++position) {
        const int32_t expected = Slow(sampling, logits, position);
        const int32_t found = NextToken(sampler, logits, position);
        // Probabilities differ in the last bits; a draw or a cut that falls between the two is rare.
        different += found != expected ? 1 : 0;
      }
    }
  }
  EXPECT_LE(different, 1);
}

TEST(Sampler, DrawDependsOnSeedSampleAndPositionOnly) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = Normal(RngKey::FromSeed(1), i);
  Sampling sampling;
  sampling.seed = 42;
  const auto tokens = [&](const Sampling& s, int sample) {
    const Sampler sampler(s, sample, {});
    std::vector<int32_t> result;
    for (int i = 0; i < 20; ++i) result.push_back(NextToken(sampler, logits, i));
    return result;
  };
  EXPECT_EQ(tokens(sampling, 0), tokens(sampling, 0));
  EXPECT_NE(tokens(sampling, 0), tokens(sampling, 1));
  Sampling other = sampling;
  other.seed = 43;
  EXPECT_NE(tokens(sampling, 0), tokens(other, 0));
  SamplerScratch scratch;
  const Sampler sampler(sampling, 0, {});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sampler.Next(kernels::ChooseIsa().isa, {logits, i, {}, {}, -1}, scratch).token,
              NextToken(sampler, logits, i));
  }
  // Bits are part of the promise: a change of the generator or of the sums shows here.
  EXPECT_THAT(tokens(sampling, 0), ElementsAre(193, 368, 952, 397, 928, 964, 366, 92, 78, 805, 860, 328, 336, 860, 345,
                                               594, 768, 691, 757, 6));
}

TEST(Sampler, PenaltiesAndBias) {
  Sampling sampling;
  sampling.temperature = 0;
  sampling.presence_penalty = 1;
  sampling.frequency_penalty = 0.5;
  Sampler sampler(sampling, 0, std::vector<int32_t>{0});
  const std::vector<float> logits{3, 2.9f, 1};
  EXPECT_EQ(NextToken(sampler, logits, 1), 0);  // the prompt does not count
  sampler.Add(0);
  EXPECT_EQ(NextToken(sampler, logits, 2), 1);  // 1.5, 2.9, 1
  sampler.Add(1);
  sampler.Add(1);  // 1.5, 0.9, 1
  EXPECT_EQ(NextToken(sampler, logits, 4), 0);
  sampler.Add(0);
  sampler.Add(0);  // 0.5, 0.9, 1
  EXPECT_EQ(NextToken(sampler, logits, 6), 2);

  Sampling repetition;
  repetition.temperature = 0;
  repetition.repetition_penalty = 2;
  const Sampler with_prompt(repetition, 0, std::vector<int32_t>{0, 0, 3});
  EXPECT_EQ(NextToken(with_prompt, std::vector<float>{3, 1.6f, 1, 0}, 3), 1);      // 1.5 once, however often seen
  EXPECT_EQ(NextToken(with_prompt, std::vector<float>{-1, -1.5f, -5, -9}, 3), 1);  // negative ones are multiplied

  Sampling biased;
  biased.temperature = 0;
  biased.logit_bias = {{2, 5}, {0, -100}};
  EXPECT_EQ(NextToken(Sampler(biased, 0, {}), std::vector<float>{6, 4, 0}, 0), 2);
}

TEST(Sampler, MaskAndBannedIds) {
  Sampling sampling;
  sampling.temperature = 0;
  const Sampler sampler(sampling, 0, {});
  std::vector<float> logits(40, 0.0f);
  logits[39] = 2;
  logits[35] = 1;
  std::vector<uint32_t> mask(2);
  mask[1] = 1u << (35 - 32);
  EXPECT_EQ(NextToken(sampler, logits, 0, {}, mask), 35);
  EXPECT_EQ(NextToken(sampler, logits, 0, std::vector<int32_t>{39}, {}), 35);
  mask[1] = 0;
  try {
    NextToken(sampler, logits, 0, {}, mask);
    FAIL();
  } catch (const SampleError& error) {
    EXPECT_EQ(error.reason, "empty_constraint");
    EXPECT_THAT(error.what(), HasSubstr("no token may follow here"));
  }
  Sampling weighted;
  mask[0] = 0b1010;
  for (int i = 0; i < 50; ++i) {
    const int32_t token = NextToken(Sampler(weighted, 0, {}), logits, i, {}, mask);
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
}

TEST(Sampler, BrokenNumbersAreErrors) {
  for (const bool greedy : {true, false}) {
    Sampling sampling;
    if (greedy) sampling.temperature = 0;
    for (const auto& logits :
         {std::vector<float>{1, kNan, 2}, {1, kInf, 2}, {-kInf, -kInf, -kInf}, {kNan, kNan, kNan}}) {
      const Sampler sampler(sampling, 0, {});
      try {
        NextToken(sampler, logits, 0);
        ADD_FAILURE();
      } catch (const SampleError& error) {
        EXPECT_EQ(error.reason, "nan_logits");
        EXPECT_EQ(error.exit_code(), 4);
      }
      // A mask that hides the broken one does not hide the breakage.
      const std::vector<uint32_t> mask{0b101};
      EXPECT_THROW(NextToken(sampler, logits, 0, {}, mask), SampleError);
    }
  }
}

TEST(Sampler, LogProbabilities) {
  const std::vector<float> logits{std::log(1.0f), std::log(2.0f), std::log(5.0f), std::log(2.0f)};
  const TokenLogprob result = LogProbability(kIsa, logits, 0, 3);
  EXPECT_NEAR(result.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].first, 2);
  EXPECT_NEAR(result.top[0].second, std::log(0.5), 1e-6);
  EXPECT_EQ(result.top[1].first, 1);
  EXPECT_EQ(result.top[2].first, 3);
  EXPECT_TRUE(LogProbability(kIsa, logits, 0, 0).top.empty());
  EXPECT_EQ(LogProbability(kIsa, logits, 0, 20).top.size(), 4u);
  // Of the model, not of what is left after filters.
  Sampling sampling;
  sampling.top_k = 1;
  SamplerScratch scratch;
  EXPECT_NEAR(Sampler(sampling, 0, {}).Next(kIsa, {logits, 0, {}, {}, 1}, scratch).logprob, std::log(0.5), 1e-6);
}

TEST(Sampler, StrategiesOfTheReference) {
  EXPECT_EQ(SamplingOfStrategy("greedy", 0, -1, 1).temperature, 0);
  const Sampling nucleus = SamplingOfStrategy("nucleus", 0, 0.7, 0.5);
  EXPECT_EQ(nucleus.top_p, 0.7);
  EXPECT_TRUE(nucleus.temperature_last);
  EXPECT_EQ(Shares(SamplingOfStrategy("nucleus", 0, 0, 1), {1, 2, 0}, 50)[1], 1);
  EXPECT_EQ(SamplingOfStrategy("topk", 5, -1, 2).top_k, 5);
  EXPECT_EQ(SamplingOfStrategy("weighted", 0, -1, 2).temperature, 2);
  const auto refused = [](std::string_view strategy, int64_t k, double p, double t, const char* text) {
    try {
      SamplingOfStrategy(strategy, k, p, t);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refused("nucleus", 0, -1, 1, "decode_sampling_nucleus_p=-1 must not be negative");
  refused("topk", 0, -1, 1, "decode_sampling_top_k=0 must be positive");
  refused("composite", 0, 0.5, 1, "decode_sampling_top_k=0 must be positive");
  refused("composite", 5, 0, 1, "outside (0, 1]");
  refused("composite", 5, 1.1, 1, "outside (0, 1]");
  refused("composite", 5, static_cast<double>(kNan), 1, "outside (0, 1]");
  refused("beam", 5, 1, 1, "known: greedy, weighted");
  refused("weighted", 0, -1, -1, "decode_sampling_temperature=-1");
}

}  // namespace
}  // namespace octavo::engine
