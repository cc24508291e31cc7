// What the scheduler's tests share: a tokenizer of bytes, small options, requests of a few words, and the answer that a
// request gets alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "octavo/engine/collector.h"
#include "octavo/engine/fake_runner.h"
#include "octavo/engine/scheduler.h"
#include "octavo/text/tokenizer.h"

namespace octavo::engine {

inline const text::Tokenizer& Bytes() {
  static const auto tokenizer = text::MakeByteTokenizer();
  return *tokenizer;
}

inline SchedulerOptions Options(int64_t slots = 8, int64_t step_tokens = 32) {
  SchedulerOptions options;
  options.model.id = "fake";
  options.end_ids = {257};
  options.batch.slots = slots;
  options.batch.step_tokens = step_tokens;
  options.batch.scored_tokens = 5;
  return options;
}

inline Request Ask(std::string_view prompt, int64_t tokens, uint64_t seed = 0) {
  Request request;
  request.prompt = Bytes().Encode(prompt);
  request.max_new_tokens = tokens;
  request.sampling.seed = seed;
  return request;
}

inline void ExpectEqual(const Answers& a, const Answers& b, const std::string& what) {
  ASSERT_EQ(a.samples.size(), b.samples.size()) << what;
  const auto bits = [](float value) {
    uint32_t result;
    std::memcpy(&result, &value, 4);
    return result;
  };
  for (size_t s = 0; s < a.samples.size(); ++s) {
    const Answer &x = a.samples[s], &y = b.samples[s];
    EXPECT_EQ(x.tokens, y.tokens) << what;
    EXPECT_EQ(x.text, y.text) << what;
    EXPECT_EQ(x.finish, y.finish) << what;
    EXPECT_EQ(x.stopped_by, y.stopped_by) << what;
    ASSERT_EQ(x.logprobs.size(), y.logprobs.size()) << what;
    for (size_t i = 0; i < x.logprobs.size(); ++i) {
      EXPECT_EQ(bits(x.logprobs[i].logprob), bits(y.logprobs[i].logprob)) << what;
      EXPECT_EQ(x.logprobs[i].top, y.logprobs[i].top) << what;
    }
    ASSERT_EQ(x.prompt.size(), y.prompt.size()) << what;
    for (size_t i = 0; i < x.prompt.size(); ++i)
      EXPECT_EQ(bits(x.prompt[i].logprob), bits(y.prompt[i].logprob)) << what;
  }
  EXPECT_EQ(a.usage.completion_tokens, b.usage.completion_tokens) << what;
}

inline Answers Alone(const Request& request) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options());
  Collector collector;
  scheduler.Submit(request, collector.listener());
  return collector.Wait();
}

}  // namespace octavo::engine
