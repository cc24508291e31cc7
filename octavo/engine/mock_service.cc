#include "octavo/engine/mock_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "octavo/engine/output_text.h"
#include "octavo/engine/validate.h"

namespace octavo::engine {
namespace {

double Seconds(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

TokenLogprob Scored(int32_t token, int top, int64_t vocabulary) {
  TokenLogprob result{token, -0.5f, {}};
  for (int j = 0; j < top; ++j) {
    result.top.emplace_back(static_cast<int32_t>((token + j) % vocabulary), -0.5f - static_cast<float>(j));
  }
  return result;
}

}  // namespace

struct MockService::Running {
  RequestId id = 0;
  Request request;
  Listener listener;
  std::vector<int32_t> words;  // of the prompt, special tokens left out
  struct Sample {
    std::unique_ptr<OutputText> text;
    std::unique_ptr<text::TokenConstraint> constraint;
    std::vector<int32_t> answer;
    int64_t generated = 0;
    bool ended = false;
  };
  std::vector<Sample> samples;
  bool started = false, cancelled = false, failed = false;
  std::chrono::steady_clock::time_point submitted, began;
  Outcome outcome;

  bool ended() const { return std::ranges::all_of(samples, &Sample::ended); }
};

MockService::MockService(const text::Tokenizer& tokenizer, MockOptions options)
    : tokenizer_(tokenizer), options_([&] {
        MockOptions filled = std::move(options);
        if (filled.vocabulary_size == 0) filled.vocabulary_size = tokenizer.vocabulary_size();
        return filled;
      }()) {
  stats_.slots = options_.slots;
  thread_ = std::thread([this] { Run(); });
}

MockService::~MockService() {
  Drain(0);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<MockService::Running> MockService::Make(Request request, Listener listener) const {
  Validate(request, {options_.context_length, options_.vocabulary_size});
  if (!request.adapter.empty() && std::ranges::find(options_.adapters, request.adapter) == options_.adapters.end()) {
    throw RequestError("adapter", "model_not_found", fmt::format("no adapter '{}' is loaded", request.adapter));
  }
  auto running = std::make_unique<Running>();
  for (const int32_t id : request.prompt) {
    if (id < tokenizer_.vocabulary_size() && !tokenizer_.IsSpecial(id)) running->words.push_back(id);
  }
  if (running->words.empty()) running->words.push_back(0);
  running->samples.resize(static_cast<size_t>(request.samples));
  running->request = std::move(request);
  running->listener = std::move(listener);
  running->submitted = std::chrono::steady_clock::now();
  return running;
}

std::vector<RequestId> MockService::SubmitAll(std::vector<Submission> submissions) {
  if (std::ssize(submissions) > options_.max_queue) {
    throw RequestError(
        "prompt", "invalid_value",
        fmt::format("{} prompts in one request, at most {} can wait", submissions.size(), options_.max_queue));
  }
  std::vector<std::unique_ptr<Running>> made;
  for (Submission& one : submissions) made.push_back(Make(std::move(one.request), std::move(one.listener)));
  const std::lock_guard lock(mutex_);
  if (stopping_) throw Busy("the server is stopping", options_.retry_seconds, true);
  if (std::ssize(waiting_) + std::ssize(made) > options_.max_queue) {
    throw Busy(fmt::format("{} requests are waiting", waiting_.size()), options_.retry_seconds, false);
  }
  std::vector<RequestId> ids;
  for (std::unique_ptr<Running>& running : made) {
    ids.push_back(running->id = next_id_++);
    waiting_.push_back(std::move(running));
  }
  changed_.notify_all();
  return ids;
}

void MockService::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  for (auto* queue : {&waiting_, &running_}) {
    for (auto& entry : *queue) {
      if (entry->id == id) entry->cancelled = true;
    }
  }
  changed_.notify_all();
}

std::vector<ModelInfo> MockService::Models() const {
  ModelInfo base;
  base.id = options_.model;
  base.fingerprint = "0123456789abcdef";
  base.quantization = "none";
  base.parameters = 1000;
  base.bytes = 4000;
  base.context_length = options_.context_length;
  base.vocabulary_size = options_.vocabulary_size;
  std::vector<ModelInfo> models{base};
  for (const std::string& name : options_.adapters) {
    models.push_back(base);
    models.back().id = name;
    models.back().parent = options_.model;
  }
  return models;
}

ServiceStats MockService::Stats() const {
  const std::lock_guard lock(mutex_);
  ServiceStats stats = stats_;
  stats.waiting = static_cast<int64_t>(waiting_.size());
  stats.running = static_cast<int64_t>(running_.size());
  return stats;
}

void MockService::Drain(double seconds) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  paused_ = false;
  changed_.notify_all();
  const auto idle = [&] { return waiting_.empty() && running_.empty(); };
  if (changed_.wait_for(lock, std::chrono::duration<double>(std::max(seconds, 0.0)), idle)) return;
  for (auto* queue : {&waiting_, &running_}) {
    for (auto& entry : *queue) entry->cancelled = true;
  }
  changed_.notify_all();
  changed_.wait(lock, idle);
}

void MockService::Pause() {
  const std::lock_guard lock(mutex_);
  paused_ = true;
}

void MockService::Resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  changed_.notify_all();
}

// One thread takes turns over what runs. Listeners are called without the lock: they may submit and cancel.
void MockService::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ended_ || (!paused_ && !(waiting_.empty() && running_.empty())); });
    if (ended_) return;
    if (options_.step_seconds > 0) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.step_seconds));
      lock.lock();
    }
    while (!waiting_.empty()) {
      int64_t used = 0;
      for (const auto& entry : running_) used += entry->request.samples;
      if (used > 0 && used + waiting_.front()->request.samples > options_.slots) break;
      running_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    // Cancelled requests leave the queue as well.
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if ((*it)->cancelled) {
        running_.push_back(std::move(*it));
        it = waiting_.erase(it);
      } else {
        ++it;
      }
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      Running& entry = *running_[i];
      const bool cancelled = entry.cancelled;
      lock.unlock();
      if (cancelled) {
        for (int s = 0; s < entry.request.samples; ++s) {
          if (!entry.samples[static_cast<size_t>(s)].ended) End(entry, s, Finish::kCancelled, {});
        }
      } else {
        Step(entry);
      }
      if (entry.ended()) {
        {
          const std::lock_guard counting(mutex_);
          ++(cancelled ? stats_.cancelled : entry.failed ? stats_.failed : stats_.finished);
        }
        if (entry.listener.on_done) entry.listener.on_done(entry.outcome);
      }
      lock.lock();
    }
    std::erase_if(running_, [](const auto& entry) { return entry->ended(); });
    changed_.notify_all();
  }
}

bool MockService::Pick(int32_t wanted, text::TokenConstraint* constraint, int32_t& token) const {
  token = wanted;
  if (constraint == nullptr) return true;
  std::vector<uint32_t> mask(static_cast<size_t>((options_.vocabulary_size + 31) / 32));
  constraint->Fill(mask);
  const auto allowed = [&](int32_t id) { return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0; };
  if (!allowed(wanted)) {
    for (token = 0; token < options_.vocabulary_size && !allowed(token);) ++token;
  }
  return token < options_.vocabulary_size;
}

void MockService::Step(Running& running) {
  const Request& request = running.request;
  const auto now = std::chrono::steady_clock::now();
  Usage& usage = running.outcome.usage;
  if (!running.started) {
    running.started = true;
    running.began = now;
    usage.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    usage.queue_seconds = Seconds(running.submitted, now);
    usage.first_token_seconds = usage.queue_seconds;
    for (int s = 0; s < request.samples; ++s) {
      auto& sample = running.samples[static_cast<size_t>(s)];
      sample.text = std::make_unique<OutputText>(tokenizer_, request.prompt, request.stop);
      if (request.constraint) sample.constraint = request.constraint->Clone();
      if (options_.answer) sample.answer = options_.answer(request, s);
      if (!request.prompt_logprobs || s > 0) continue;
      Event event;
      for (const int32_t id : request.prompt) {
        event.prompt.push_back(Scored(id, std::max(request.top_logprobs, 0), options_.vocabulary_size));
        event.prompt.back().logprob = -0.25f;
      }
      event.prompt[0].logprob = std::numeric_limits<float>::quiet_NaN();
      event.prompt[0].top.clear();
      if (running.listener.on_event) running.listener.on_event(std::move(event));
    }
    const std::lock_guard lock(mutex_);
    stats_.prompt_tokens += usage.prompt_tokens;
  }
  usage.decode_seconds = Seconds(running.began, now);
  const bool poisoned = std::ranges::find(request.prompt, options_.poison_token) != request.prompt.end();
  const bool wants_logprobs = request.top_logprobs >= 0;
  const uint64_t shift = request.sampling.temperature > 0 ? request.sampling.seed : 0;
  for (int s = 0; s < request.samples; ++s) {
    auto& sample = running.samples[static_cast<size_t>(s)];
    if (sample.ended) continue;
    Event event;
    if (poisoned && sample.generated == 1) {
      event.error = "the model's numbers broke: NaN logits";
      event.error_code = "nan_logits";
      End(running, s, Finish::kError, std::move(event));
      continue;
    }
    if (sample.generated == request.max_new_tokens) {
      End(running, s, Finish::kLength, std::move(event));
      continue;
    }
    const auto i = static_cast<uint64_t>(sample.generated);
    if (options_.answer && i >= sample.answer.size()) {
      End(running, s, Finish::kStop, std::move(event));
      continue;
    }
    const int32_t wanted = options_.answer
                               ? sample.answer[i]
                               : running.words[(i + static_cast<uint64_t>(s) + shift) % running.words.size()];
    int32_t token = 0;
    if (!Pick(wanted, sample.constraint.get(), token)) {
      event.error = "the constraint allows no token";
      event.error_code = "empty_constraint";
      End(running, s, Finish::kError, std::move(event));
      continue;
    }
    if (sample.constraint) sample.constraint->Accept(token);
    ++sample.generated;
    ++usage.completion_tokens;
    {
      const std::lock_guard lock(mutex_);
      ++stats_.generated_tokens;
    }
    const bool is_eos = token == tokenizer_.roles().eos && !request.ignore_eos;
    const bool may_stop = sample.generated >= request.min_new_tokens;
    if (may_stop && (is_eos || std::ranges::find(request.stop_ids, token) != request.stop_ids.end())) {
      End(running, s, Finish::kStop, std::move(event));
      continue;
    }
    auto scored = Scored(token, std::max(request.top_logprobs, 0), options_.vocabulary_size);
    if (sample.text->Push(std::move(scored), wants_logprobs, may_stop, event)) {
      End(running, s, Finish::kStop, std::move(event));
    } else if (sample.generated == request.max_new_tokens) {
      End(running, s, Finish::kLength, std::move(event));
    } else if (!event.tokens.empty()) {
      event.sample = s;
      if (running.listener.on_event) running.listener.on_event(std::move(event));
    }
  }
}

void MockService::End(Running& running, int sample, Finish finish, Event event) {
  auto& state = running.samples[static_cast<size_t>(sample)];
  if (state.text && event.stopped_by.empty()) {
    const bool may_stop = state.generated >= running.request.min_new_tokens;
    if (state.text->Finish(running.request.top_logprobs >= 0, may_stop, event)) finish = Finish::kStop;
  }
  state.ended = true;
  running.failed |= finish == Finish::kError;
  event.sample = sample;
  event.finish = finish;
  if (running.listener.on_event) running.listener.on_event(std::move(event));
}

}  // namespace octavo::engine
