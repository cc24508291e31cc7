#include "octavo/engine/mock_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/engine/collector.h"
#include "octavo/engine/output_text.h"
#include "octavo/engine/validate.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Ids(std::string_view text) { return {text.begin(), text.end()}; }

class MockServiceTest : public ::testing::Test {
 protected:
  Request Ask(std::string_view prompt, int64_t tokens) {
    Request request;
    request.prompt = tokenizer_->Encode(prompt);
    request.max_new_tokens = tokens;
    request.sampling.temperature = 0;
    return request;
  }
  std::unique_ptr<text::Tokenizer> tokenizer_ = text::MakeByteTokenizer();
};

TEST_F(MockServiceTest, RepeatsThePrompt) {
  MockService service(*tokenizer_);
  Request request = Ask("abc", 7);
  request.samples = 2;
  request.top_logprobs = 2;
  request.prompt_logprobs = true;
  Collector collector;
  service.Submit(request, collector.listener());
  const Answers answers = collector.Wait();
  ASSERT_EQ(answers.samples.size(), 2u);
  EXPECT_EQ(answers.samples[0].text, "abcabca");
  EXPECT_EQ(answers.samples[1].text, "bcabcab");
  EXPECT_EQ(answers.samples[0].finish, Finish::kLength);
  EXPECT_EQ(answers.samples[0].logprobs[1].logprob, -0.5f);
  EXPECT_EQ(answers.samples[0].logprobs[1].top[1], std::make_pair(int32_t{'c'}, -1.5f));
  ASSERT_EQ(answers.samples[0].prompt.size(), 3u);
  EXPECT_TRUE(std::isnan(answers.samples[0].prompt[0].logprob));
  EXPECT_EQ(answers.samples[0].prompt[2].logprob, -0.25f);
  EXPECT_EQ(answers.usage.prompt_tokens, 3);
  EXPECT_EQ(answers.usage.completion_tokens, 14);
  request.sampling.temperature = 1;
  request.sampling.seed = 2;
  Collector shifted;
  service.Submit(request, shifted.listener());
  EXPECT_EQ(shifted.Wait().samples[0].text, "cabcabc");
}

TEST_F(MockServiceTest, StopsAndErrors) {
  MockOptions options;
  options.poison_token = '!';
  MockService service(*tokenizer_, options);
  Request request = Ask("abc", 50);
  request.stop = {"cab"};
  Collector stopped;
  service.Submit(request, stopped.listener());
  const Answers answers = stopped.Wait();
  EXPECT_EQ(answers.samples[0].text, "ab");
  EXPECT_EQ(answers.samples[0].stopped_by, "cab");
  EXPECT_EQ(answers.samples[0].finish, Finish::kStop);
  EXPECT_EQ(answers.samples[0].tokens, Ids("ab"));
  Collector poisoned;
  service.Submit(Ask("x!", 5), poisoned.listener());
  EXPECT_EQ(poisoned.Wait().samples[0].error_code, "nan_logits");
  EXPECT_EQ(service.Stats().failed, 1);
  EXPECT_EQ(service.Stats().finished, 1);
}

TEST_F(MockServiceTest, QueueCancelAndDrain) {
  MockOptions options;
  options.max_queue = 2;
  MockService service(*tokenizer_, options);
  service.Pause();
  Collector first, second;
  const RequestId id = service.Submit(Ask("a", 1000), first.listener());
  service.Submit(Ask("b", 3), second.listener());
  try {
    service.Submit(Ask("c", 3), {});
    FAIL();
  } catch (const Busy& busy) {
    EXPECT_FALSE(busy.stopping);
    EXPECT_EQ(busy.retry_seconds, 2);
  }
  service.Cancel(id);
  service.Resume();
  EXPECT_EQ(first.Wait().samples[0].finish, Finish::kCancelled);
  EXPECT_EQ(second.Wait().samples[0].text, "bbb");
  service.Drain(10);
  EXPECT_THROW(service.Submit(Ask("c", 3), {}), Busy);
}

TEST(OutputText, HoldsBackWhatMayStop) {
  const auto tokenizer = text::MakeByteTokenizer();
  OutputText text(*tokenizer, {}, {"</s>", "END"});
  std::vector<std::string> pieces;
  const auto push = [&](char byte) {
    Event event;
    const bool stopped = text.Push({static_cast<uint8_t>(byte), 0, {}}, false, true, event);
    pieces.push_back(event.text);
    return stopped;
  };
  for (const char byte : std::string("a<b</ENx\xC3\xA9</s")) EXPECT_FALSE(push(byte));
  // "é" comes whole, with the token that completes it.
  EXPECT_THAT(pieces, ElementsAre("a", "", "<b", "", "", "</", "", "ENx", "", "\xC3\xA9", "", "", ""));
  EXPECT_TRUE(push('>'));
  EXPECT_EQ(pieces.back(), "");
}

TEST(OutputText, FirstToCompleteWins) {
  const auto tokenizer = text::MakeByteTokenizer();
  OutputText text(*tokenizer, {}, {"bcd", "c"});
  Event event;
  EXPECT_FALSE(text.Push({'a', 0, {}}, true, true, event));
  EXPECT_FALSE(text.Push({'b', 0, {}}, true, true, event));
  EXPECT_TRUE(text.Push({'c', 0, {}}, true, true, event));
  EXPECT_EQ(event.text, "ab");
  EXPECT_EQ(event.stopped_by, "c");
  EXPECT_EQ(event.logprobs.size(), 2u);
}

TEST(Validate, SaysBothNumbers) {
  const RequestLimits limits{16, 100, 32};
  Request good;
  good.prompt = {1, 2, 3};
  good.max_new_tokens = 13;
  EXPECT_NO_THROW(Validate(good, limits));
  const auto refused = [&](const char* param, const char* text, auto change) {
    Request request = good;
    change(request);
    try {
      Validate(request, limits);
      ADD_FAILURE() << text;
    } catch (const RequestError& error) {
      EXPECT_EQ(error.param, param);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused("prompt", "prompt is empty", [](Request& r) { r.prompt.clear(); });
  refused("prompt", "prompt has 16 tokens, the model takes 16", [](Request& r) { r.prompt.resize(16); });
  refused("prompt", "(max_position_embeddings 32)", [](Request& r) { r.prompt.resize(17); });
  refused("prompt", "token 100, the model has tokens 0 … 99", [](Request& r) { r.prompt[1] = 100; });
  refused("prompt", "token -1", [](Request& r) { r.prompt[1] = -1; });
  refused("max_new_tokens", "ask for at most 13", [](Request& r) { r.max_new_tokens = 14; });
  refused("max_new_tokens", "ask for at most 13", [](Request& r) { r.max_new_tokens = INT64_MAX; });
  refused("max_new_tokens", "negative", [](Request& r) { r.max_new_tokens = -1; });
  refused("min_new_tokens", "min_new_tokens=14", [](Request& r) { r.min_new_tokens = 14; });
  refused("temperature", "temperature=nan", [&](Request& r) { r.sampling.temperature = nan; });
  refused("temperature", "temperature=-1", [](Request& r) { r.sampling.temperature = -1; });
  refused("top_p", "(0, 1]", [](Request& r) { r.sampling.top_p = 0; });
  refused("top_p", "(0, 1]", [&](Request& r) { r.sampling.top_p = nan; });
  refused("top_k", "top_k=-1", [](Request& r) { r.sampling.top_k = -1; });
  refused("min_p", "min_p=1.5", [](Request& r) { r.sampling.min_p = 1.5; });
  refused("presence_penalty", "3", [](Request& r) { r.sampling.presence_penalty = 3; });
  refused("frequency_penalty", "-3", [](Request& r) { r.sampling.frequency_penalty = -3; });
  refused("repetition_penalty", "(0, 1000]", [](Request& r) { r.sampling.repetition_penalty = 0; });
  refused("logit_bias", "token 100", [](Request& r) { r.sampling.logit_bias = {{100, 1}}; });
  refused("logit_bias", "logit_bias=101", [](Request& r) { r.sampling.logit_bias = {{1, 101}}; });
  refused("samples", "samples=9", [](Request& r) { r.samples = 9; });
  refused("samples", "samples=0", [](Request& r) { r.samples = 0; });
  refused("top_logprobs", "21", [](Request& r) { r.top_logprobs = 21; });
  refused("stop", "empty", [](Request& r) { r.stop = {""}; });
  refused("stop", "300 bytes", [](Request& r) { r.stop = {std::string(300, 'x')}; });
  refused("stop", "17 stop strings", [](Request& r) { r.stop.resize(17, "x"); });
  refused("stop_ids", "token 200", [](Request& r) { r.stop_ids = {200}; });
  good.prompt.resize(16);
  good.max_new_tokens = 0;
  EXPECT_NO_THROW(Validate(good, limits));
}

}  // namespace
}  // namespace octavo::engine
