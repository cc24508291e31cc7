// What the scheduler does with a request's sampling, against a replay by hand: the runner's logits, one Sampler for
// each sample, and text put together byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "octavo/engine/scheduler_test_support.h"

namespace octavo::engine {
namespace {

constexpr int32_t kEnd = 257;
constexpr auto kIsa = kernels::Isa::kReference;

// Letters a to e and the end of a text; every kind of penalty, and each filter.
Request Everything(uint64_t seed) {
  Request request = Ask("abacabad", 20, seed);
  request.samples = 2;
  request.min_new_tokens = 10;
  request.top_logprobs = 2;
  request.stop = {"bad", "ced", "ca"};
  Sampling& sampling = request.sampling;
  sampling.temperature = 0.9;
  sampling.top_k = 5;
  sampling.top_p = 0.97;
  sampling.min_p = 0.01;
  sampling.frequency_penalty = 0.4;
  sampling.presence_penalty = 0.3;
  sampling.repetition_penalty = 1.3;
  for (int32_t id = 0; id < kEnd; ++id) {
    if (id < 'a' || id > 'e') sampling.logit_bias.emplace_back(id, -100);
  }
  sampling.logit_bias.emplace_back('c', 1.5);
  return request;
}

struct Replay {
  Answer answer;
  bool held_back = false;  // an end came too early and was not taken
};

Replay ByHand(const FakeRunner& runner, const Request& request, int sample) {
  Replay replay;
  Answer& answer = replay.answer;
  Sampler sampler(request.sampling, sample, request.prompt);
  SamplerScratch scratch;
  std::vector<int32_t> tokens = request.prompt;
  std::vector<TokenLogprob> drawn;
  std::string text;
  const std::vector<int32_t> ends = {kEnd};
  answer.finish = Finish::kLength;
  while (std::ssize(drawn) < request.max_new_tokens) {
    const std::vector<float> logits = runner.LogitsAfter(tokens);
    Sampler::Row row{logits, std::ssize(tokens), {}, {}, request.top_logprobs};
    if (std::ssize(drawn) < request.min_new_tokens) {
      replay.held_back |= sampler.Next(kIsa, row, scratch).token == kEnd;
      row.banned = ends;
    }
    const int32_t token = sampler.Next(kIsa, row, scratch).token;
    sampler.Add(token);
    tokens.push_back(token);
    drawn.push_back(LogProbability(kIsa, logits, token, request.top_logprobs));
    if (token == kEnd) {
      drawn.pop_back();
      answer.finish = Finish::kStop;
      break;
    }
    text += static_cast<char>(token);
    if (std::ssize(drawn) < request.min_new_tokens) continue;
    const auto stop = std::ranges::find_if(request.stop, [&](const auto& one) { return text.ends_with(one); });
    if (stop == request.stop.end()) continue;
    answer.finish = Finish::kStop;
    answer.stopped_by = *stop;
    text.resize(text.size() - stop->size());
    drawn.resize(text.size());
    break;
  }
  answer.text = text;
  for (const TokenLogprob& one : drawn) answer.tokens.push_back(one.token);
  answer.logprobs = drawn;
  return replay;
}

TEST(SchedulerSampling, IsTheSamplerReplayedByHand) {
  int stopped = 0, ended = 0, full = 0, held_back = 0, differ = 0;
  const FakeRunner logits;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Request request = Everything(seed);
    const Answers answers = Alone(request);
    ASSERT_EQ(answers.samples.size(), 2u);
    for (int i = 0; i < 2; ++i) {
      const Answer& got = answers.samples[static_cast<size_t>(i)];
      const Replay replay = ByHand(logits, request, i);
      const Answer& expected = replay.answer;
      EXPECT_EQ(got.text, expected.text) << seed << " " << i;
      EXPECT_EQ(got.tokens, expected.tokens) << seed << " " << i;
      EXPECT_EQ(got.stopped_by, expected.stopped_by) << seed << " " << i;
      EXPECT_EQ(got.finish, expected.finish) << seed << " " << i;
      ASSERT_EQ(got.logprobs.size(), expected.logprobs.size()) << seed << " " << i;
      for (size_t t = 0; t < got.logprobs.size(); ++t) {
        EXPECT_EQ(got.logprobs[t].token, expected.logprobs[t].token);
        EXPECT_EQ(got.logprobs[t].logprob, expected.logprobs[t].logprob);
        EXPECT_EQ(got.logprobs[t].top, expected.logprobs[t].top);
      }
      stopped += expected.stopped_by.empty() ? 0 : 1;
      ended += expected.finish == Finish::kStop && expected.stopped_by.empty() ? 1 : 0;
      full += expected.finish == Finish::kLength ? 1 : 0;
      held_back += replay.held_back ? 1 : 0;
    }
    differ += answers.samples[0].text == answers.samples[1].text ? 0 : 1;
  }
  // Each way to end was seen, and samples are their own.
  EXPECT_GE(stopped, 5);
  EXPECT_GE(ended, 1);
  EXPECT_GE(full, 1);
  EXPECT_GE(held_back, 5);
  EXPECT_EQ(differ, 24);
}

}  // namespace
}  // namespace octavo::engine
