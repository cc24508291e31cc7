// A Service without a model: answers that can be worked out by hand, streamed from its own thread, with the queue,
// errors and ends of the real one. For tests of the server and of other callers.
//
// The answer repeats the prompt's ordinary tokens for ever: token i of sample s is words[(i + s + r) % words.size()],
// where r = seed for temperature > 0 and 0 otherwise. Prompt "abc" (bytes) gives "abcabc…", its second sample
// "bcabca…". The chosen token has log-probability -0.5, the j-th other one (token + j) % V has -0.5 - j; prompt tokens
// -0.25. A constraint replaces a token that is not allowed by the lowest one that is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "octavo/engine/service.h"

namespace octavo::engine {

struct MockOptions {
  int64_t context_length = 4096;
  int64_t vocabulary_size = 0;  // 0: the tokenizer's
  int slots = 8;                // samples that run together
  int max_queue = 256;          // requests that wait
  double step_seconds = 0;      // pause before each step
  double retry_seconds = 2;     // what Busy says
  std::string model = "mock";
  std::vector<std::string> adapters;
  // Another answer: the ids of the whole text of a sample, which then ends by itself. Called on the engine's thread.
  std::function<std::vector<int32_t>(const Request&, int sample)> answer;
  // A prompt with this id fails after its first token, as a model with broken numbers would.
  int32_t poison_token = -1;
};

class MockService : public Service {
 public:
  // The tokenizer must outlive the service.
  explicit MockService(const text::Tokenizer& tokenizer, MockOptions options = {});
  ~MockService() override;

  std::vector<RequestId> SubmitAll(std::vector<Submission> submissions) override;
  void Cancel(RequestId id) override;
  std::vector<ModelInfo> Models() const override;
  ServiceStats Stats() const override;
  const text::Tokenizer& tokenizer() const override { return tokenizer_; }
  void Drain(double seconds) override;

  // Between these no step is taken: tests fill the queue or cancel at a known point.
  void Pause();
  void Resume();

 private:
  struct Running;
  std::unique_ptr<Running> Make(Request request, Listener listener) const;
  void Run();
  void Step(Running& running);  // one token of each sample
  void End(Running& running, int sample, Finish finish, Event event);
  bool Pick(int32_t wanted, text::TokenConstraint* constraint, int32_t& token) const;

  const text::Tokenizer& tokenizer_;
  const MockOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Running>> waiting_, running_;
  ServiceStats stats_;
  RequestId next_id_ = 1;
  bool paused_ = false, stopping_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace octavo::engine
