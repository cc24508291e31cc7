// The scheduler where pages are short, and where what it calls breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "octavo/engine/scheduler_test_support.h"

namespace octavo::engine {
namespace {

using ::testing::HasSubstr;

Request Endless(std::string_view prompt, int64_t tokens, uint64_t seed = 1) {
  Request request = Ask(prompt, tokens, seed);
  request.ignore_eos = true;
  return request;
}

Request Score(std::string_view prompt) {
  Request request = Ask(prompt, 0);
  request.prompt_logprobs = true;
  return request;
}

// An older stream takes the pages of a prompt that is being scored. When the prompt is run again it finds none of its
// own pages known: they hold no logits, and the numbers of the first run are gone.
TEST(SchedulerPages, AScoredPromptThatWasPreemptedIsScoredWhole) {
  FakeRunnerOptions fake;
  fake.pages = 23;
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options());
  scheduler.Pause();
  const Request stream = Endless("abcd", 40);
  std::string text;
  for (int i = 0; i < 80; ++i) text += static_cast<char>('a' + i * i % 26);
  const Request scored = Score(text);
  Collector one, two;
  scheduler.Submit(stream, one.listener());
  scheduler.Submit(scored, two.listener());
  scheduler.Resume();
  ExpectEqual(one.Wait(), Alone(stream), "stream");
  const Answer answer = two.Wait().samples[0];
  scheduler.Drain(10);
  EXPECT_EQ(scheduler.Stats().preemptions, 1);
  ASSERT_EQ(answer.prompt.size(), 80u);
  for (size_t i = 1; i < 80; ++i) {
    const auto logits = runner.LogitsAfter(std::span(scored.prompt).first(i));
    EXPECT_EQ(answer.prompt[i].token, scored.prompt[i]);
    EXPECT_EQ(answer.prompt[i].logprob, LogProbability(kernels::Isa::kReference, logits, scored.prompt[i], 0).logprob);
  }
}

// Eight samples have eight pages. Four of them share one after their prompt and wait for copies of it; nothing is given
// back and nothing is run twice.
TEST(SchedulerPages, SamplesOfTheYoungestJobWaitForTheirCopies) {
  FakeRunnerOptions fake;
  fake.context = 64;
  fake.page_tokens = 64;
  fake.pages = 8;
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options());
  scheduler.Pause();
  Request first = Endless("0123456789", 20, 1), second = Endless("9876543210", 20, 2);
  first.samples = second.samples = 4;
  Collector one, two;
  scheduler.Submit(first, one.listener());
  scheduler.Submit(second, two.listener());
  scheduler.Resume();
  ExpectEqual(one.Wait(), Alone(first), "first");
  ExpectEqual(two.Wait(), Alone(second), "second");
  scheduler.Drain(10);
  EXPECT_EQ(scheduler.Stats().preemptions, 0);
  EXPECT_EQ(runner.tokens_run, 2 * 10 + 8 * 19);  // the last token of each is never run
  EXPECT_EQ(runner.steps, 1 + 19 + 2);            // the last sample begins two steps later
}

// None of its samples finds a page: it keeps what it has until the older job ends.
TEST(SchedulerPages, TheYoungestJobWaitsForTheLastPage) {
  FakeRunnerOptions fake;
  fake.pages = 7;
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options());
  scheduler.Pause();
  const Request first = Endless("abcd", 12, 1), second = Endless("efgh", 12, 2);
  Collector one, two;
  scheduler.Submit(first, one.listener());
  scheduler.Submit(second, two.listener());
  scheduler.Resume();
  ExpectEqual(one.Wait(), Alone(first), "first");
  ExpectEqual(two.Wait(), Alone(second), "second");
  scheduler.Drain(10);
  EXPECT_EQ(scheduler.Stats().preemptions, 0);
  EXPECT_EQ(runner.tokens_run, 2 * (4 + 11));
}

// Three jobs that gave their pages back come again only when those before them have what they need.
TEST(SchedulerPages, PreemptedJobsDoNotCrowdIn) {
  FakeRunnerOptions fake;
  fake.pages = 24;
  fake.prefix_cache = false;
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options());
  scheduler.Pause();
  std::vector<Request> requests;
  std::vector<Collector> collectors(6);
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(Endless("four", 40 + static_cast<int64_t>(i), i));
    requests.back().samples = 2;
    scheduler.Submit(requests.back(), collectors[i].listener());
  }
  scheduler.Resume();
  for (size_t i = 0; i < 6; ++i) ExpectEqual(collectors[i].Wait(), Alone(requests[i]), std::to_string(i));
  scheduler.Drain(10);
  EXPECT_GE(scheduler.Stats().preemptions, 1);
  EXPECT_LE(scheduler.Stats().preemptions, 10);
  EXPECT_EQ(runner.free_pages(), 24);
  EXPECT_EQ(runner.open_sequences(), 0u);
}

// The rows whose logits are all wanted are counted over the step, not for each job.
TEST(SchedulerPages, ScoredRowsAreBoundedForTheStep) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options(8, 64));  // five such rows
  scheduler.Pause();
  std::vector<Collector> collectors(3);
  std::vector<Request> requests;
  for (size_t i = 0; i < 3; ++i) {
    requests.push_back(Score("a prompt that is scored " + std::to_string(i)));
    scheduler.Submit(requests.back(), collectors[i].listener());
  }
  Collector plain;
  scheduler.Submit(Ask("not scored", 1), plain.listener());
  scheduler.Resume();
  for (size_t i = 0; i < 3; ++i) ExpectEqual(collectors[i].Wait(), Alone(requests[i]), std::to_string(i));
  plain.Wait();
  scheduler.Drain(10);
  EXPECT_EQ(runner.most_rows, 5 + 1);  // and one for the prompt that draws
  EXPECT_EQ(runner.steps, 15);         // 75 scored tokens
}

// A queued, a running, a forked and a preempted request are cancelled; every page comes back, everybody is told once.
TEST(SchedulerPages, CancellingInEachStateGivesEverythingBack) {
  for (const int64_t after : {0, 1, 2, 5, 8, 11, 14}) {
    FakeRunnerOptions fake;
    fake.pages = 14;
    fake.prefix_cache = false;
    FakeRunner runner(fake);
    Scheduler scheduler(runner, Bytes(), Options(4));
    scheduler.Pause();
    std::atomic<int> done = 0;
    std::atomic<int64_t> heard = 0;
    std::vector<RequestId> ids;
    Request request = Endless("abcdefgh", 24);
    request.samples = 2;
    for (int i = 0; i < 3; ++i) {
      ids.push_back(scheduler.Submit(request, {[&](Event&&) {
                                                 if (heard.fetch_add(1) != after) return;
                                                 for (const RequestId id : ids) scheduler.Cancel(id);
                                               },
                                               [&](const Outcome&) { ++done; }}));
    }
    scheduler.Resume();
    scheduler.Drain(10);
    EXPECT_EQ(done, 3) << after;
    EXPECT_EQ(scheduler.Stats().cancelled, 3) << after;
    EXPECT_EQ(scheduler.Stats().kv_pages_used, 0) << after;
    EXPECT_EQ(runner.open_sequences(), 0u) << after;
    EXPECT_EQ(runner.free_pages(), 14) << after;
  }
}

TEST(SchedulerPages, AListenerThatThrowsEndsItsOwnRequest) {
  FakeRunner runner;
  Scheduler scheduler(runner, Bytes(), Options());
  scheduler.Pause();
  std::atomic<int> calls = 0, done = 0, late = 0;
  Request request = Endless("throws", 100);
  request.samples = 2;
  const RequestId queued_first = scheduler.Submit(request, {[&](Event&&) {
                                                              ++calls;
                                                              throw std::runtime_error("no memory");
                                                            },
                                                            [&](const Outcome&) {
                                                              ++done;
                                                              throw std::runtime_error("again");
                                                            }});
  EXPECT_EQ(queued_first, 1u);
  // One that ends before it ran.
  const RequestId unstarted = scheduler.Submit(request, {[](Event&&) { throw 1; }, [&](const Outcome&) { ++late; }});
  scheduler.Cancel(unstarted);
  Collector good;
  scheduler.Submit(Ask("fine", 20), good.listener());
  scheduler.Resume();
  ExpectEqual(good.Wait(), Alone(Ask("fine", 20)), "good");
  scheduler.Drain(10);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(late, 1);
  EXPECT_EQ(scheduler.Stats().failed, 1);
  EXPECT_EQ(scheduler.Stats().cancelled, 1);
  EXPECT_EQ(runner.open_sequences(), 0u);
  // Its place is free again.
  EXPECT_LT(runner.tokens_run, 60);
}

TEST(SchedulerPages, APromptThatCannotBeOpenedFailsAlone) {
  FakeRunnerOptions fake;
  fake.shut_token = '#';
  FakeRunner runner(fake);
  Scheduler scheduler(runner, Bytes(), Options());
  scheduler.Pause();
  Collector shut, good;
  scheduler.Submit(Ask("shut#", 20), shut.listener());
  scheduler.Submit(Ask("fine", 20), good.listener());
  scheduler.Resume();
  const Answer answer = shut.Wait().samples[0];
  EXPECT_EQ(answer.finish, Finish::kError);
  EXPECT_EQ(answer.error_code, "engine_fault");
  EXPECT_THAT(answer.error, HasSubstr("shut"));
  ExpectEqual(good.Wait(), Alone(Ask("fine", 20)), "good");
}

// Loses count once.
class BrokenRunner : public FakeRunner {
 public:
  int64_t PagesFor(SequenceId id, int64_t tokens) const override {
    if (broken.exchange(false)) ThrowUsage("lost count");
    return FakeRunner::PagesFor(id, tokens);
  }
  mutable std::atomic<bool> broken = true;
};

TEST(SchedulerPages, AFaultOutsideTheModelEndsWhatRunsAndNothingElse) {
  BrokenRunner runner;
  Scheduler scheduler(runner, Bytes(), Options());
  Collector lost, good;
  scheduler.Submit(Ask("first", 20), lost.listener());
  const Answer answer = lost.Wait().samples[0];
  EXPECT_EQ(answer.finish, Finish::kError);
  EXPECT_EQ(answer.error_code, "engine_fault");
  EXPECT_THAT(answer.error, HasSubstr("lost count"));
  scheduler.Submit(Ask("fine", 20), good.listener());
  ExpectEqual(good.Wait(), Alone(Ask("fine", 20)), "good");
  scheduler.Drain(10);
  EXPECT_EQ(scheduler.Stats().failed, 1);
  EXPECT_EQ(runner.open_sequences(), 0u);
}

}  // namespace
}  // namespace octavo::engine
