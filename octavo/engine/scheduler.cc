#include "octavo/engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "octavo/base/float_mode.h"
#include "octavo/engine/validate.h"

namespace octavo::engine {

Scheduler::Scheduler(Runner& runner, const text::Tokenizer& tokenizer, SchedulerOptions options,
                     const AdapterNames* adapters)
    : runner_(runner),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      adapters_(adapters),
      context_length_(runner.context_length()),
      vocabulary_size_(runner.vocabulary_size()),
      pages_(runner.pages()),
      page_tokens_(runner.page_tokens()),
      batcher_(runner, tokenizer, options_.batch) {
  if (options_.batch.slots < 1 || options_.batch.step_tokens < options_.batch.slots || options_.max_queue < 0) {
    ThrowUsage("scheduler: {} slots, {} tokens per step, queue of {}: each slot needs a token of the step",
               options_.batch.slots, options_.batch.step_tokens, options_.max_queue);
  }
  stats_.slots = options_.batch.slots;
  stats_.kv_pages = pages_;
  thread_ = std::thread([this] { Loop(); });
}

Scheduler::~Scheduler() {
  Drain(0);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<Job> Scheduler::MakeJob(Request request, Listener listener) const {
  Validate(request, {context_length_, vocabulary_size_, options_.max_position_embeddings});
  if (request.samples > options_.batch.slots) {
    throw RequestError("samples", "invalid_value",
                       fmt::format("samples={}, the engine runs {} at a time", request.samples, options_.batch.slots),
                       "ask for fewer, or start with a larger max_concurrent_decodes");
  }
  auto job = std::make_unique<Job>();
  if (!request.adapter.empty()) {
    AdapterUse use = adapters_ == nullptr ? AdapterUse{} : adapters_->Find(request.adapter);
    if (use.number == 0) {
      throw RequestError("adapter", "model_not_found", fmt::format("no adapter '{}' is loaded", request.adapter));
    }
    job->adapter = use.number;
    job->adapter_use = std::move(use.keep);
  }
  // The pages it will take at most; the last token is never run.
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t shared = prompt / page_tokens_;
  const int64_t tokens = prompt + std::max<int64_t>(request.max_new_tokens, 1) - 1;
  const int64_t pages = shared + request.samples * ((tokens + page_tokens_ - 1) / page_tokens_ - shared);
  if (pages > pages_) {
    throw RequestError("max_new_tokens", "context_length_exceeded",
                       fmt::format("{} times {} + {} tokens need {} pages of the cache, it has {}", request.samples,
                                   prompt, request.max_new_tokens, pages, pages_),
                       "ask for fewer tokens or samples, or give the cache more memory");
  }
  if (!request.ignore_eos) job->ends = options_.end_ids;
  job->ends.insert(job->ends.end(), request.stop_ids.begin(), request.stop_ids.end());
  for (int i = 0; i < request.samples; ++i) {
    job->samples.push_back({Sampler(request.sampling, i, request.prompt),
                            OutputText(tokenizer_, request.prompt, request.stop),
                            request.constraint ? request.constraint->Clone() : nullptr,
                            {},
                            0,
                            false,
                            false});
  }
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->submitted = Clock::now();
  return job;
}

std::vector<RequestId> Scheduler::SubmitAll(std::vector<Submission> submissions) {
  const auto count = static_cast<int64_t>(submissions.size());
  const int64_t places = options_.max_queue + options_.batch.slots;
  if (count > places) {
    throw RequestError("prompt", "invalid_value",
                       fmt::format("{} prompts in one request, at most {} can run and wait", count, places),
                       "ask for fewer at a time, or start with a larger max_queue");
  }
  std::vector<std::unique_ptr<Job>> jobs;
  for (Submission& one : submissions) {
    // A request leaves the count before its client hears that it is done: who comes back at once finds his place free.
    one.listener.on_done = [this, tell = std::move(one.listener.on_done)](const Outcome& outcome) {
      open_.fetch_sub(1, std::memory_order_relaxed);
      if (tell) tell(outcome);
    };
    jobs.push_back(MakeJob(std::move(one.request), std::move(one.listener)));
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) throw Busy("the server is stopping", wait_.Seconds(waiting_.size()), true);
  // Whoever finds a free slot does not wait, though he is in the queue until the next step begins.
  if (open_.load(std::memory_order_relaxed) + count > places) {
    throw Busy(fmt::format("{} requests are running or waiting, at most {} are taken",
                           open_.load(std::memory_order_relaxed), places),
               wait_.Seconds(waiting_.size()), false);
  }
  std::vector<RequestId> ids;
  ids.reserve(jobs.size());
  open_.fetch_add(count, std::memory_order_relaxed);
  for (std::unique_ptr<Job>& job : jobs) {
    ids.push_back(job->id = next_id_++);
    waiting_.Push(std::move(job));
  }
  changed_.notify_all();
  return ids;
}

void Scheduler::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (id >= next_id_) return;
  cancelled_.insert(id);
  changed_.notify_all();
}

std::vector<ModelInfo> Scheduler::Models() const {
  std::vector<ModelInfo> models{options_.model};
  models[0].context_length = context_length_;
  models[0].vocabulary_size = vocabulary_size_;
  if (adapters_ == nullptr) return models;
  for (std::string& name : adapters_->Names()) {
    models.push_back(models[0]);
    models.back().id = std::move(name);
    models.back().parent = models[0].id;
  }
  return models;
}

ServiceStats Scheduler::Stats() const {
  const std::lock_guard lock(mutex_);
  ServiceStats stats = stats_;
  stats.waiting = waiting_.size();
  return stats;
}

void Scheduler::Drain(double seconds) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  paused_ = false;
  cancel_all_ = cancel_all_ || seconds <= 0;  // no step more
  changed_.notify_all();
  const auto idle = [&] { return waiting_.empty() && !busy_; };
  if (changed_.wait_for(lock, std::chrono::duration<double>(std::max(seconds, 0.0)), idle)) return;
  cancel_all_ = true;
  changed_.notify_all();
  changed_.wait(lock, idle);
}

void Scheduler::Pause() {
  const std::lock_guard lock(mutex_);
  paused_ = true;
}

void Scheduler::Resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  changed_.notify_all();
}

// Listeners are called without the lock: they may submit and cancel.
void Scheduler::TakeCancelled(std::unique_lock<std::mutex>& lock) {
  std::vector<RequestId> ids(cancelled_.begin(), cancelled_.end());
  std::ranges::sort(ids);
  cancelled_.clear();
  const bool all = std::exchange(cancel_all_, false);
  std::vector<std::unique_ptr<Job>> unstarted;
  for (const RequestId id : ids) {
    if (auto job = waiting_.Remove(id)) unstarted.push_back(std::move(job));
  }
  if (all) std::ranges::move(waiting_.RemoveAll(), std::back_inserter(unstarted));
  if (ids.empty() && !all) return;
  stats_.cancelled += static_cast<int64_t>(unstarted.size());
  lock.unlock();
  for (const auto& job : unstarted) Batcher::EndUnstarted(*job, Finish::kCancelled);
  for (const RequestId id : ids) batcher_.Cancel(id);
  if (all) batcher_.CancelAll();
  lock.lock();
}

void Scheduler::TakeWaiting() {
  while (!waiting_.empty() && batcher_.HasRoom(waiting_.Front())) batcher_.Admit(waiting_.Pop());
}

void Scheduler::Publish(double seconds) {
  const Batcher::Counts& counts = batcher_.counts();
  const int64_t unstarted = stats_.cancelled - cancelled_running_;
  stats_.running = batcher_.running();
  stats_.kv_pages_used = pages_ - runner_.free_pages();
  stats_.prompt_tokens = counts.prompt_tokens;
  stats_.generated_tokens = counts.generated_tokens;
  stats_.prefix_queries = counts.prefix_queries;
  stats_.prefix_hits = counts.prefix_hits;
  stats_.preemptions = counts.preemptions;
  stats_.finished = counts.finished;
  stats_.failed = counts.failed;
  stats_.cancelled = unstarted + counts.cancelled;
  cancelled_running_ = counts.cancelled;
  constexpr double kNew = 0.1;  // weight of the latest
  if (seconds > 0)
    stats_.seconds_per_step += (stats_.seconds_per_step == 0 ? 1 : kNew) * (seconds - stats_.seconds_per_step);
  const int64_t ended = counts.finished + counts.failed + counts.cancelled;
  wait_.Ended(ended - requests_ended_, options_.now());
  requests_ended_ = ended;
}

void Scheduler::Loop() {
  SetFloatMode();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      const bool work = !waiting_.empty() || !batcher_.empty() || !cancelled_.empty() || cancel_all_;
      return ended_ || (work && !paused_);
    });
    if (ended_) return;
    busy_ = true;
    if (batcher_.empty()) wait_.Idle(options_.now());
    TakeCancelled(lock);
    TakeWaiting();
    double seconds = 0;
    if (!batcher_.empty()) {
      lock.unlock();
      const auto start = Clock::now();
      batcher_.Run();
      lock.lock();
      TakeCancelled(lock);
      lock.unlock();
      batcher_.Deliver();
      seconds = SecondsBetween(start, Clock::now());
      lock.lock();
    }
    Publish(seconds);
    busy_ = !batcher_.empty();
    changed_.notify_all();
  }
}

}  // namespace octavo::engine
