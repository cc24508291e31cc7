// A listener that keeps what it hears and can be waited for: the way from a Service's events to a plain result. Used by
// tests, `octavo verify` and callers that want the whole answer at once.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "octavo/engine/service.h"

namespace octavo::engine {

// All events of one sample put together.
struct Answer {
  std::vector<int32_t> tokens;
  std::string text, stopped_by, error, error_code;
  std::vector<TokenLogprob> logprobs, prompt;
  Finish finish = Finish::kError;
  int events = 0;
};

struct Answers {
  std::vector<Answer> samples;
  Usage usage;
};

class Collector {
 public:
  // Listeners share the state: the collector may go away before they do.
  Listener listener() const {
    return {[state = state_](Event&& event) {
              const std::lock_guard lock(state->mutex);
              auto& samples = state->answers.samples;
              if (samples.size() <= static_cast<size_t>(event.sample))
                samples.resize(static_cast<size_t>(event.sample) + 1);
              Answer& answer = samples[static_cast<size_t>(event.sample)];
              ++answer.events;
              answer.text += event.text;
              answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
              std::ranges::move(event.logprobs, std::back_inserter(answer.logprobs));
              std::ranges::move(event.prompt, std::back_inserter(answer.prompt));
              if (event.finish) answer.finish = *event.finish;
              answer.stopped_by += event.stopped_by;
              answer.error += event.error;
              answer.error_code += event.error_code;
              state->changed.notify_all();
            },
            [state = state_](const Outcome& outcome) {
              const std::lock_guard lock(state->mutex);
              state->answers.usage = outcome.usage;
              state->done = true;
              state->changed.notify_all();
            }};
  }

  // Waits for the end of the request.
  Answers Wait() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->done; });
    return state_->answers;
  }
  // Waits until the first sample has that many tokens, or the end.
  void WaitForTokens(size_t tokens) const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] {
      return state_->done || (!state_->answers.samples.empty() && state_->answers.samples[0].tokens.size() >= tokens);
    });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Answers answers;
    bool done = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace octavo::engine
