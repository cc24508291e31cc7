// The Service on a real model: takes requests from any thread into a fair, bounded queue, and runs them together on one
// engine thread, which joins and leaves between steps (batcher.h). The tokens of a request do not depend on what runs
// beside it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "octavo/engine/batcher.h"
#include "octavo/engine/fair_queue.h"
#include "octavo/engine/service.h"
#include "octavo/engine/wait_estimate.h"

namespace octavo::engine {

// Where requests find adapters by name; implemented by the LoRA adapters. Called from any thread.
struct AdapterUse {
  int number = 0;                    // of Runner::Open
  std::shared_ptr<const void> keep;  // its weights stay as long as somebody holds this
};
class AdapterNames {
 public:
  virtual ~AdapterNames() = default;
  virtual AdapterUse Find(const std::string& name) const = 0;  // number 0: no such adapter
  virtual std::vector<std::string> Names() const = 0;
};

struct SchedulerOptions {
  ModelInfo model;                      // as Models() gives it
  std::vector<int32_t> end_ids;         // of the model: what ends a text
  int64_t max_position_embeddings = 0;  // for messages; 0: not known
  int64_t max_queue = 256;
  BatcherOptions batch;
  std::function<Clock::time_point()> now = Clock::now;  // for the predicted wait; tests have a clock of their own
};

class Scheduler : public Service {
 public:
  // All three must outlive the scheduler, and nobody else uses the runner meanwhile. `adapters` may be null.
  Scheduler(Runner& runner, const text::Tokenizer& tokenizer, SchedulerOptions options,
            const AdapterNames* adapters = nullptr);
  // Cancels what is left.
  ~Scheduler() override;

  std::vector<RequestId> SubmitAll(std::vector<Submission> submissions) override;
  void Cancel(RequestId id) override;
  std::vector<ModelInfo> Models() const override;
  ServiceStats Stats() const override;
  const text::Tokenizer& tokenizer() const override { return tokenizer_; }
  void Drain(double seconds) override;

  // Between these no step is taken: tests put requests side by side at a known point.
  void Pause();
  void Resume();

 private:
  std::unique_ptr<Job> MakeJob(Request request, Listener listener) const;
  void Loop();
  void TakeCancelled(std::unique_lock<std::mutex>& lock);
  void TakeWaiting();
  void Publish(double seconds);

  Runner& runner_;
  const text::Tokenizer& tokenizer_;
  const SchedulerOptions options_;
  const AdapterNames* adapters_;
  const int64_t context_length_, vocabulary_size_, pages_, page_tokens_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  FairQueue waiting_;
  std::unordered_set<RequestId> cancelled_;
  ServiceStats stats_;
  RequestId next_id_ = 1;
  std::atomic<int64_t> open_ = 0;  // requests taken and not done
  WaitEstimate wait_;
  int64_t requests_ended_ = 0, cancelled_running_ = 0;
  bool paused_ = false, stopping_ = false, cancel_all_ = false, ended_ = false, busy_ = false;

  Batcher batcher_;  // the engine thread's
  std::thread thread_;
};

}  // namespace octavo::engine
