#include "octavo/engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "octavo/base/rng.h"
#include "octavo/engine/collector.h"
#include "octavo/engine/fake_runner.h"
#include "octavo/engine/scheduler_test_support.h"
#include "octavo/engine/validate.h"
#include "octavo/text/json_schema.h"
#include "octavo/text/vocabulary_bytes.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Requests of every kind, from a seed.
Request RandomRequest(uint64_t index) {
  const RngKey key = RngKey::FromSeed(99).FoldIn(static_cast<uint32_t>(index));
  auto pick = [&, n = uint64_t{0}](uint32_t count) mutable { return key.Bits32(n++) % count; };
  Request request;
  for (uint32_t i = 0, length = 1 + pick(40); i < length; ++i)
    request.prompt.push_back(static_cast<int32_t>('a' + pick(3)));
  request.max_new_tokens = 1 + pick(30);
  request.sampling.seed = pick(1000);
  request.sampling.temperature = std::array{0.0, 0.7, 1.0}[pick(3)];
  request.sampling.top_k = std::array{0, 5}[pick(2)];
  request.sampling.top_p = std::array{1.0, 0.8}[pick(2)];
  request.sampling.frequency_penalty = std::array{0.0, 0.5}[pick(2)];
  request.samples = 1 + static_cast<int>(pick(3));
  request.top_logprobs = static_cast<int>(pick(4)) - 1;
  request.prompt_logprobs = pick(4) == 0;
  request.ignore_eos = pick(3) == 0;
  request.min_new_tokens = std::min<int64_t>(pick(5), request.max_new_tokens);
  if (pick(2) == 0) request.stop = {"b", "zq"};
  request.cache_scope = std::array{"x", "y"}[pick(2)];
  return request;
}

TEST(Scheduler, GreedyIsTheArgMaxOfTheRunner) {
  FakeRunner runner;
  Request request = Ask("hello", 6);
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  std::vector<int32_t> expected, tokens = request.prompt;
  for (int i = 0; i < 6; ++i) {
    const auto logits = runner.LogitsAfter(tokens);
    expected.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    tokens.push_back(expected.back());
  }
  EXPECT_EQ(Alone(request).samples[0].tokens, expected);
}

struct Schedule {
  int64_t slots, step_tokens, pages;
  bool cache;
};

// Sixteen requests join when they like, in different batches, chunks and memories; two are cancelled. Each of the
// others hears what it would hear alone.
TEST(Scheduler, RandomSchedulesEqualEachRequestAlone) {
  std::vector<Request> requests;
  std::vector<Answers> alone;
  for (uint64_t i = 0; i < 16; ++i) {
    requests.push_back(RandomRequest(i));
    alone.push_back(Alone(requests.back()));
  }
  int64_t preemptions = 0;
  for (const Schedule& schedule : {Schedule{16, 64, 1000, true},
                                   {16, 16, 36, true},
                                   {3, 7, 36, false},
                                   {5, 5, 1000, false},
                                   {8, 100, 37, true},
                                   {16, 24, 36, false}}) {
    FakeRunnerOptions fake;
    fake.pages = schedule.pages;
    fake.prefix_cache = schedule.cache;
    FakeRunner runner(fake);
    {
      Scheduler scheduler(runner, Bytes(), Options(schedule.slots, schedule.step_tokens));
      std::vector<Collector> collectors(requests.size());
      // Where memory is short all begin together: how often that preempts is then no matter of timing.
      const bool together = schedule.pages < 100;
      if (together) scheduler.Pause();
      for (size_t i = 0; i < requests.size(); ++i) {
        const RequestId id = scheduler.Submit(requests[i], collectors[i].listener());
        if (i % 3 == 0 && !together) collectors[i / 2].WaitForTokens(i % 4);
        if (i == 5 || i == 11) scheduler.Cancel(id);
      }
      scheduler.Resume();
      for (size_t i = 0; i < requests.size(); ++i) {
        const Answers answers = collectors[i].Wait();
        if (i == 5 || i == 11) continue;
        ExpectEqual(answers, alone[i], "request " + std::to_string(i) + ", pages " + std::to_string(schedule.pages));
      }
      scheduler.Drain(10);
      preemptions += scheduler.Stats().preemptions;
      EXPECT_EQ(scheduler.Stats().finished + scheduler.Stats().cancelled, 16);
      EXPECT_EQ(scheduler.Stats().kv_pages_used, 0);
    }
    EXPECT_EQ(runner.free_pages(), schedule.pages);
    EXPECT_EQ(runner.open_sequences(), 0u);
    EXPECT_LE(runner.largest_step, schedule.step_tokens);
    EXPECT_LE(runner.most_sequences, schedule.slots);
  }
  EXPECT_GT(preemptions, 5);
}

TEST(Scheduler, PreemptionRecomputesSamples) {
  // Two requests of three samples that together need more than there is: shared pages stay shared after recomputing.
  Request first = Ask("abcdefghijklmnop", 40, 1), second = Ask("ponmlkjihgfedcba", 40, 2);
  first.samples = second.samples = 3;
  first.ignore_eos = second.ignore_eos = true;
  FakeRunnerOptions fake;
  fake.pages = 4 + 3 * 10 + 6;
  fake.prefix_cache = false;
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options());
  Collector one, two;
  scheduler.Pause();
  scheduler.Submit(first, one.listener());
  scheduler.Submit(second, two.listener());
  scheduler.Resume();
  ExpectEqual(one.Wait(), Alone(first), "first");
  ExpectEqual(two.Wait(), Alone(second), "second");
  scheduler.Drain(10);
  EXPECT_GE(scheduler.Stats().preemptions, 1);
  EXPECT_EQ(runner.free_pages(), fake.pages);
}

// Three samples share one page and the cache has three: one of them keeps it, after the others have made copies.
TEST(Scheduler, SamplesPartWithTheLastPages) {
  FakeRunnerOptions fake;
  fake.page_tokens = 32;
  fake.pages = 3;
  FakeRunner runner(fake);
  Request request = Ask("abc", 20, 1);
  request.samples = 3;
  request.ignore_eos = true;
  Scheduler scheduler(runner, Bytes(), Options());
  Collector collector;
  scheduler.Submit(request, collector.listener());
  ExpectEqual(collector.Wait(), Alone(request), "three pages");
}

TEST(Scheduler, SixteenDecodeInOneStep) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options(16, 256));
  scheduler.Pause();
  std::vector<Collector> collectors(16);
  for (size_t i = 0; i < 16; ++i) {
    Request request = Ask("prompt " + std::to_string(i), 20, i);
    request.ignore_eos = true;
    scheduler.Submit(request, collectors[i].listener());
  }
  scheduler.Resume();
  for (const Collector& collector : collectors) EXPECT_EQ(collector.Wait().samples[0].tokens.size(), 20u);
  scheduler.Drain(10);
  EXPECT_EQ(runner.most_sequences, 16);
  EXPECT_LE(runner.steps, 22);
  EXPECT_EQ(scheduler.Stats().generated_tokens, 320);
}

// Two rows for each row of a stream, at least 32, at most half of a step; alone a prompt gets the whole step.
TEST(Scheduler, PromptsTakeFewRowsBesideStreams) {
  const auto check = [](int64_t step_tokens, int streams, int64_t beside_rows, int64_t alone_rows) {
    FakeRunner runner;
    Scheduler scheduler(runner, Bytes(), Options(streams + 1, step_tokens));
    Collector stream, beside, alone;
    Request talk = Ask("abc", 20);
    talk.ignore_eos = true;
    talk.samples = streams;
    Listener listener = stream.listener();
    listener.on_event = [&, collect = listener.on_event, begun = false](Event&& event) mutable {
      if (!begun) scheduler.Submit(Ask(std::string(200, 'x'), 1), beside.listener());
      begun = true;
      collect(std::move(event));
    };
    scheduler.Submit(talk, listener);
    stream.Wait();
    beside.Wait();
    EXPECT_EQ(runner.largest_step, streams + beside_rows) << step_tokens;
    scheduler.Submit(Ask(std::string(200, 'y'), 1), alone.listener());
    alone.Wait();
    EXPECT_EQ(runner.largest_step, alone_rows) << step_tokens;
  };
  check(32, 1, 16, 32);
  check(256, 1, 32, 200);
  check(256, 8, 32, 200);
}

TEST(Scheduler, CancelledRequestsEndWithoutAnotherStep) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options(1));
  Request endless = Ask("long", 200);
  endless.ignore_eos = true;
  Collector running, waiting;
  std::atomic<int64_t> steps = 0;
  Listener pausing = running.listener();
  pausing.on_event = [&, forward = pausing.on_event](Event&& event) {
    scheduler.Pause();  // nothing is computed from here on
    if (!event.finish) steps = runner.steps;
    forward(std::move(event));
  };
  const RequestId first = scheduler.Submit(endless, pausing);
  const RequestId second = scheduler.Submit(endless, waiting.listener());
  running.WaitForTokens(1);
  scheduler.Cancel(second);
  scheduler.Cancel(first);
  scheduler.Cancel(first);
  scheduler.Cancel(12345);
  scheduler.Resume();
  EXPECT_EQ(waiting.Wait().samples[0].finish, Finish::kCancelled);
  EXPECT_TRUE(waiting.Wait().samples[0].tokens.empty());
  const Answers answers = running.Wait();
  EXPECT_EQ(answers.samples[0].finish, Finish::kCancelled);
  EXPECT_EQ(std::ssize(answers.samples[0].tokens), answers.usage.completion_tokens);
  scheduler.Resume();
  scheduler.Drain(10);
  EXPECT_EQ(runner.steps, steps);
  EXPECT_EQ(scheduler.Stats().cancelled, 2);
  EXPECT_EQ(scheduler.Stats().finished, 0);
  EXPECT_EQ(runner.free_pages(), runner.pages());
}

TEST(Scheduler, ClientsTakeTurns) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options(1));
  scheduler.Pause();
  std::mutex mutex;
  std::vector<std::string> order;
  const auto submit = [&](const std::string& name, const std::string& client) {
    Request request = Ask(name, 2);
    request.cache_scope = client;
    scheduler.Submit(request, {{}, [&, name](const Outcome&) {
                                 const std::lock_guard lock(mutex);
                                 order.push_back(name);
                               }});
  };
  for (const char* name : {"a1", "a2", "a3", "a4"}) submit(name, "a");
  submit("b1", "b");
  submit("c1", "c");
  submit("b2", "b");
  scheduler.Resume();
  scheduler.Drain(10);
  EXPECT_THAT(order, ElementsAre("a1", "b1", "c1", "a2", "b2", "a3", "a4"));
}

// Two that end in one step come back from inside their last call: neither may be told that the queue of one is full.
TEST(Scheduler, WhoComesBackAtOnceFindsHisPlaceFree) {
  FakeRunner runner;
  SchedulerOptions options = Options(2);
  options.max_queue = 1;
  Scheduler scheduler(runner, Bytes(), options);
  Collector again[2];
  std::atomic<int> refused = 0;
  scheduler.Pause();
  for (Collector& next : again) {
    Listener listener;
    listener.on_done = [&](const Outcome&) {
      try {
        scheduler.Submit(Ask("b", 3), next.listener());
      } catch (const Busy&) {
        ++refused;
        next.listener().on_done({});
      }
    };
    scheduler.Submit(Ask("a", 3), listener);
  }
  scheduler.Resume();
  for (Collector& next : again) next.Wait();
  EXPECT_EQ(refused, 0);
}

TEST(Scheduler, QueueIsBoundedAndStopsAreSaid) {
  FakeRunner runner;
  SchedulerOptions options = Options();
  options.max_queue = 2;
  Scheduler scheduler(runner, Bytes(), options);
  scheduler.Pause();
  // As many as there are free slots, and two that wait.
  const int64_t most = options.batch.slots + 2;
  for (int64_t i = 0; i < most; ++i) scheduler.Submit(Ask("a", 2), {});
  try {
    scheduler.Submit(Ask("c", 2), {});
    FAIL();
  } catch (const Busy& busy) {
    EXPECT_FALSE(busy.stopping);
    EXPECT_THAT(busy.what(),
                HasSubstr(fmt::format("{0} requests are running or waiting, at most {0} are taken", most)));
    EXPECT_GE(busy.retry_seconds, 1);
    EXPECT_LE(busy.retry_seconds, 60);
  }
  EXPECT_EQ(scheduler.Stats().waiting, most);
  scheduler.Drain(10);
  try {
    scheduler.Submit(Ask("c", 2), {});
    FAIL();
  } catch (const Busy& busy) {
    EXPECT_TRUE(busy.stopping);
  }
}

// Steps take two seconds of a clock that only this test moves.
class SlowRunner : public FakeRunner {
 public:
  Tensor Step(std::span<const Work> work) override {
    seconds += 2;
    return FakeRunner::Step(work);
  }
  std::atomic<int64_t> seconds = 0;
};

TEST(Scheduler, PredictedWaitKnowsNothingOfQuietHours) {
  SlowRunner runner;
  SchedulerOptions options = Options(1);
  options.max_queue = 1;
  options.now = [&] { return Clock::time_point(std::chrono::seconds(runner.seconds)); };
  Scheduler scheduler(runner, Bytes(), options);
  for (int64_t i = 1; i <= 2; ++i) {
    runner.seconds += 3600;
    scheduler.Submit(Ask("a", 1), {});
    while (scheduler.Stats().finished < i) std::this_thread::yield();
  }
  EXPECT_EQ(runner.steps, 2);
  scheduler.Pause();
  scheduler.Submit(Ask("a", 1), {});
  scheduler.Submit(Ask("a", 1), {});
  try {
    scheduler.Submit(Ask("a", 1), {});
    FAIL();
  } catch (const Busy& busy) {
    EXPECT_DOUBLE_EQ(busy.retry_seconds, 3 * 2);  // two wait before it
  }
}

TEST(Scheduler, WithoutAQueueSlotsAreAllThereIs) {
  FakeRunner runner;
  SchedulerOptions options = Options(2);
  options.max_queue = 0;
  Scheduler scheduler(runner, Bytes(), options);
  scheduler.Pause();
  scheduler.Submit(Ask("a", 2), {});
  scheduler.Submit(Ask("a", 2), {});
  EXPECT_THROW(scheduler.Submit(Ask("a", 2), {}), Busy);
}

TEST(Scheduler, SeveralAreTakenTogetherOrNotAtAll) {
  FakeRunner runner;
  SchedulerOptions options = Options(2);
  options.max_queue = 2;
  Scheduler scheduler(runner, Bytes(), options);
  scheduler.Pause();
  const auto several = [](size_t count) {
    std::vector<Submission> all(count);
    for (Submission& one : all) one.request = Ask("a", 2);
    return all;
  };
  try {
    scheduler.SubmitAll(several(5));
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.param, "prompt");
    EXPECT_EQ(error.message(), "5 prompts in one request, at most 4 can run and wait");
  }
  std::vector<Submission> one_bad = several(3);
  one_bad[2].request.prompt.clear();
  EXPECT_THROW(scheduler.SubmitAll(std::move(one_bad)), RequestError);
  EXPECT_EQ(scheduler.Stats().waiting, 0);
  EXPECT_EQ(scheduler.SubmitAll(several(3)).size(), 3u);
  EXPECT_THROW(scheduler.SubmitAll(several(2)), Busy);
  EXPECT_EQ(scheduler.Stats().waiting, 3);
  scheduler.Submit(Ask("a", 2), {});
  EXPECT_EQ(scheduler.Stats().waiting, 4);
}

TEST(Scheduler, DrainCancelsWhatIsLeft) {
  FakeRunner runner;
  Collector running, waiting;
  Request endless = Ask("long", 200);
  endless.ignore_eos = true;
  {
    Scheduler scheduler(runner, Bytes(), Options(1));
    scheduler.Pause();
    scheduler.Submit(endless, running.listener());
    scheduler.Submit(endless, waiting.listener());
  }  // the destructor drains
  EXPECT_EQ(running.Wait().samples[0].finish, Finish::kCancelled);
  EXPECT_EQ(waiting.Wait().samples[0].finish, Finish::kCancelled);
  EXPECT_EQ(runner.free_pages(), runner.pages());
}

TEST(Scheduler, BrokenRequestsFailAlone) {
  FakeRunnerOptions fake;
  fake.nan_token = '!';
  fake.bomb_token = '?';
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options());
  scheduler.Pause();
  Collector broken, bomb, good;
  scheduler.Submit(Ask("not a number!", 20), broken.listener());
  scheduler.Submit(Ask("what?", 20), bomb.listener());
  scheduler.Submit(Ask("fine", 20), good.listener());
  scheduler.Resume();
  EXPECT_EQ(broken.Wait().samples[0].finish, Finish::kError);
  EXPECT_EQ(broken.Wait().samples[0].error_code, "nan_logits");
  EXPECT_EQ(bomb.Wait().samples[0].error_code, "engine_fault");
  EXPECT_THAT(bomb.Wait().samples[0].error, HasSubstr("boom"));
  ExpectEqual(good.Wait(), Alone(Ask("fine", 20)), "good");
  scheduler.Drain(10);
  EXPECT_EQ(scheduler.Stats().failed, 2);
  EXPECT_EQ(runner.free_pages(), runner.pages());
  EXPECT_EQ(runner.open_sequences(), 0u);
}

TEST(Scheduler, PromptLogProbabilities) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options(4, 7));
  Request request = Ask("the prompt of this request", 0);
  request.prompt_logprobs = true;
  request.top_logprobs = 2;
  Collector warm, collector;
  scheduler.Submit(Ask("the prompt of this request, longer", 3), warm.listener());
  warm.Wait();
  scheduler.Submit(request, collector.listener());
  const Answer answer = collector.Wait().samples[0];
  EXPECT_EQ(answer.finish, Finish::kLength);
  EXPECT_TRUE(answer.tokens.empty());
  ASSERT_EQ(answer.prompt.size(), request.prompt.size());
  EXPECT_TRUE(std::isnan(answer.prompt[0].logprob));
  for (size_t i = 1; i < answer.prompt.size(); ++i) {
    const auto logits = runner.LogitsAfter(std::span(request.prompt).first(i));
    const auto expected = LogProbability(kernels::Isa::kReference, logits, request.prompt[i], 2);
    EXPECT_EQ(answer.prompt[i].logprob, expected.logprob) << i;
    EXPECT_EQ(answer.prompt[i].top, expected.top) << i;
    EXPECT_EQ(answer.prompt[i].token, request.prompt[i]);
  }
}

TEST(Scheduler, PrefixHitsAreCountedAndChangeNothing) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options());
  const Request request = Ask("a prompt of several pages", 5);
  Collector first, second, stranger;
  scheduler.Submit(request, first.listener());
  const Answers cold = first.Wait();
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  scheduler.Submit(request, second.listener());
  const Answers warm = second.Wait();
  EXPECT_EQ(warm.usage.cached_tokens, 24);  // of 25: six pages
  ExpectEqual(cold, warm, "warm");
  Request other = request;
  other.cache_scope = "somebody else";
  scheduler.Submit(other, stranger.listener());
  EXPECT_EQ(stranger.Wait().usage.cached_tokens, 0);
  scheduler.Drain(10);
  EXPECT_EQ(scheduler.Stats().prefix_queries, 75);
  EXPECT_EQ(scheduler.Stats().prefix_hits, 24);
}

TEST(Scheduler, Ends) {
  Request request = Ask("where does it end", 60, 5);
  const Answer natural = Alone(request).samples[0];
  ASSERT_EQ(natural.finish, Finish::kStop);
  ASSERT_GT(natural.tokens.size(), 4u);
  request.ignore_eos = true;
  const Answer longer = Alone(request).samples[0];
  EXPECT_EQ(longer.tokens.size(), 60u);
  EXPECT_EQ(longer.finish, Finish::kLength);
  EXPECT_TRUE(std::equal(natural.tokens.begin(), natural.tokens.end(), longer.tokens.begin()));
  EXPECT_EQ(longer.tokens[natural.tokens.size()], 257);
  Request by_id = request;
  by_id.stop_ids = {natural.tokens[3]};
  EXPECT_EQ(Alone(by_id).samples[0].tokens.size(),
            static_cast<size_t>(std::ranges::find(natural.tokens, natural.tokens[3]) - natural.tokens.begin()));
  request.ignore_eos = false;
  request.min_new_tokens = static_cast<int64_t>(natural.tokens.size()) + 3;
  const Answer later = Alone(request).samples[0];
  EXPECT_GE(later.tokens.size(), natural.tokens.size() + 3);
  EXPECT_EQ(std::ranges::count(later.tokens, 257), 0);
}

TEST(Scheduler, RefusesWhatCannotRun) {
  FakeRunnerOptions fake;
  fake.pages = 20;
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options(2));
  const auto refused = [&](const Request& request, const char* text) {
    try {
      scheduler.Submit(request, {});
      ADD_FAILURE() << text;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refused(Ask("", 4), "prompt is empty");
  refused(Ask(std::string(256, 'x'), 1), "prompt has 256 tokens, the model takes 256");
  refused(Ask("abcd", 253), "ask for at most 252");
  refused(Ask("abcd", 100), "need 26 pages of the cache, it has 20");
  Request many = Ask("a", 2);
  many.samples = 3;
  refused(many, "samples=3, the engine runs 2 at a time");
  Request adapter = Ask("a", 2);
  adapter.adapter = "poet";
  refused(adapter, "no adapter 'poet' is loaded");
}

// Allows one letter over and over, then nothing.
class OnlyLetter : public text::TokenConstraint {
 public:
  OnlyLetter(int32_t letter, int left) : letter_(letter), left_(left) {}
  void Fill(std::span<uint32_t> mask) const override {
    std::ranges::fill(mask, 0);
    if (left_ > 0) mask[static_cast<size_t>(letter_) / 32] |= 1u << (letter_ % 32);
  }
  bool Accept(int32_t token) override { return token == letter_ && left_-- > 0; }
  bool Complete() const override { return left_ == 0; }
  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<OnlyLetter>(*this); }

 private:
  int32_t letter_;
  int left_;
};

TEST(Scheduler, ConstraintsHoldAndFailClosed) {
  Request request = Ask("say q", 5);
  request.samples = 2;
  request.constraint = std::make_shared<OnlyLetter>('q', 10);
  const Answers answers = Alone(request);
  EXPECT_EQ(answers.samples[0].text, "qqqqq");
  EXPECT_EQ(answers.samples[1].text, "qqqqq");
  request.constraint = std::make_shared<OnlyLetter>('q', 3);
  const Answer closed = Alone(request).samples[0];
  EXPECT_EQ(closed.text, "qqq");
  EXPECT_EQ(closed.finish, Finish::kError);
  EXPECT_EQ(closed.error_code, "empty_constraint");
}

// A form that its last allowed token closes was not cut; one that could go on was.
TEST(Scheduler, AFormThatIsCompleteAtTheLastTokenStops) {
  const auto tokenizer = text::MakeByteTokenizer();
  const auto vocabulary = text::VocabularyBytes::Make(*tokenizer);
  const auto finish = [&](const char* schema, int64_t tokens) {
    Request request = Ask("x", tokens);
    request.sampling.temperature = 0;
    request.constraint = text::CompileJsonSchema(schema, vocabulary, {});
    return Alone(request).samples[0].finish;
  };
  EXPECT_EQ(finish(R"({"const":"ab"})", 3), Finish::kLength);
  EXPECT_EQ(finish(R"({"const":"ab"})", 4), Finish::kStop);
  EXPECT_EQ(finish(R"({"const":"ab"})", 9), Finish::kStop);
  EXPECT_EQ(finish(R"({"type":"integer","minimum":1})", 1), Finish::kLength);
}

TEST(Scheduler, ListenersMaySubmitAndCancel) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options());
  Collector second;
  std::atomic<bool> submitted = false;
  Request endless = Ask("long", 200);
  endless.ignore_eos = true;
  std::atomic<RequestId> id = 0;
  Collector first;
  Listener listener = first.listener();
  listener.on_event = [&, forward = listener.on_event](Event&& event) {
    forward(std::move(event));
    if (!submitted.exchange(true)) scheduler.Submit(Ask("second", 4), second.listener());
    scheduler.Cancel(id);
  };
  scheduler.Pause();
  id = scheduler.Submit(endless, listener);
  scheduler.Resume();
  EXPECT_EQ(first.Wait().samples[0].finish, Finish::kCancelled);
  ExpectEqual(second.Wait(), Alone(Ask("second", 4)), "second");
}

}  // namespace
}  // namespace octavo::engine
