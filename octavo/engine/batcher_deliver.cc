// The second half of a step: from logits to tokens, text and events.
#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "octavo/engine/batcher.h"

namespace octavo::engine {

void Batcher::Deliver() {
  for (const Item& item : items_) {
    if (item.job->ended()) continue;  // cancelled since
    if (!item.error.empty()) {
      Fail(*item.job, item.error, "engine_fault");
      continue;
    }
    try {
      Apply(item);
    } catch (const std::exception& error) {
      Fail(*item.job, error.what(), "engine_fault");
    }
  }
  items_.clear();
  logits_ = {};
  Sweep();
}

void Batcher::Apply(const Item& item) {
  Job& job = *item.job;
  if (item.sample < 0) {
    ApplyPrompt(job, item);
  } else if (item.rows > 0 && !job.samples[static_cast<size_t>(item.sample)].ended) {
    Draw(job, item.sample, Row(item.first_row + item.rows - 1));
  }
}

void Batcher::ApplyPrompt(Job& job, const Item& item) {
  const int64_t end = runner_.length(job.prompt), begin = end - std::ssize(item.work.tokens);
  if (item.work.all_logits) {
    if (begin == 0) job.prompt_logprobs.push_back({job.request.prompt[0], std::numeric_limits<float>::quiet_NaN(), {}});
    try {
      for (int64_t i = begin; i < std::min(end, job.prompt_tokens() - 1); ++i) {
        job.prompt_logprobs.push_back(LogProbability(options_.isa, Row(item.first_row + i - begin),
                                                     job.request.prompt[static_cast<size_t>(i) + 1],
                                                     std::max(job.request.top_logprobs, 0)));
      }
    } catch (const SampleError& error) {
      Fail(job, error.what(), error.reason);
      return;
    }
  }
  if (end < job.prompt_tokens()) return;
  Fork(job);
  if (job.request.prompt_logprobs && !job.prompt_given) {
    job.prompt_given = true;
    Event event;
    event.prompt = std::move(job.prompt_logprobs);
    Give(job, std::move(event));
  }
  for (size_t i = 0; i < job.samples.size(); ++i) {
    if (job.samples[i].ended) continue;
    if (job.request.max_new_tokens == 0) {
      EndSample(job, static_cast<int>(i), Finish::kLength);
    } else if (job.samples[i].generated.empty()) {
      Draw(job, static_cast<int>(i), Row(item.first_row + item.rows - 1));
    }
  }
}

// The prompt's sequence goes to the first sample that still runs, copies of it to the others.
void Batcher::Fork(Job& job) {
  job.forked = true;
  for (Sample& sample : job.samples) {
    if (sample.ended) continue;
    sample.sequence = job.prompt_open ? job.prompt : runner_.Fork(job.prompt);
    sample.open = true;
    job.prompt_open = false;
  }
}

void Batcher::Draw(Job& job, int index, std::span<const float> logits) {
  Sample& sample = job.samples[static_cast<size_t>(index)];
  Sampler::Row row;
  row.logits = logits;
  row.position = job.prompt_tokens() + std::ssize(sample.generated);
  row.top_logprobs = job.request.top_logprobs;
  if (std::ssize(sample.generated) < job.request.min_new_tokens) row.banned = job.ends;
  TokenLogprob token;
  try {
    if (sample.constraint) {
      mask_.assign((logits.size() + 31) / 32, 0);
      sample.constraint->Fill(mask_);
      row.mask = mask_;
    }
    token = sample.sampler.Next(options_.isa, row, scratch_);
    if (sample.constraint && !sample.constraint->Accept(token.token)) {
      throw SampleError(ErrorCode::kCheck, "constraint", "the constraint refused a token that it had allowed");
    }
  } catch (const SampleError& error) {
    Event event;
    event.error = error.what();
    event.error_code = error.reason;
    EndSample(job, index, Finish::kError, std::move(event));
    return;
  } catch (const std::exception& error) {
    Event event;
    event.error = error.what();
    event.error_code = "engine_fault";
    EndSample(job, index, Finish::kError, std::move(event));
    return;
  }
  Take(job, index, std::move(token));
}

void Batcher::Take(Job& job, int index, TokenLogprob token) {
  Sample& sample = job.samples[static_cast<size_t>(index)];
  if (!job.has_token) {
    job.has_token = true;
    job.first_token = Clock::now();
    job.usage.prefill_seconds = SecondsBetween(job.admitted, job.first_token);
    job.usage.first_token_seconds = SecondsBetween(job.submitted, job.first_token);
  }
  const int32_t id = token.token;
  sample.generated.push_back(id);
  sample.sampler.Add(id);
  ++job.usage.completion_tokens;
  ++counts_.generated_tokens;
  const bool may_stop = std::ssize(sample.generated) >= job.request.min_new_tokens;
  Event event;
  if (std::ranges::find(job.ends, id) != job.ends.end()) {
    EndSample(job, index, Finish::kStop, std::move(event));
  } else if (sample.text.Push(std::move(token), job.request.top_logprobs >= 0, may_stop, event)) {
    EndSample(job, index, Finish::kStop, std::move(event));
  } else if (std::ssize(sample.generated) == job.request.max_new_tokens) {
    EndSample(job, index, OnlyEndFollows(job, sample) ? Finish::kStop : Finish::kLength, std::move(event));
  } else if (!event.tokens.empty()) {
    event.sample = index;
    Give(job, std::move(event));
  }
}

// The last token that was allowed closed the form: nothing was cut. A number that could go on may have been.
bool Batcher::OnlyEndFollows(const Job& job, const Sample& sample) {
  if (!sample.constraint || !sample.constraint->Complete()) return false;
  sample.constraint->Fill(mask_);  // as long as for the token that was drawn
  for (const int32_t id : job.ends) {
    const auto word = static_cast<size_t>(id) / 32;
    if (word < mask_.size()) mask_[word] &= ~(1u << (id % 32));
  }
  return std::ranges::all_of(mask_, [](uint32_t word) { return word == 0; });
}

void Batcher::EndSample(Job& job, int index, Finish finish, Event event) {
  Sample& sample = job.samples[static_cast<size_t>(index)];
  if (event.stopped_by.empty()) {
    const bool may_stop = std::ssize(sample.generated) >= job.request.min_new_tokens;
    const bool stopped = sample.text.Finish(job.request.top_logprobs >= 0, may_stop, event);
    if (stopped && finish == Finish::kLength) finish = Finish::kStop;
  }
  sample.ended = true;
  job.failed |= finish == Finish::kError;
  if (sample.open) runner_.Close(sample.sequence);
  sample.open = false;
  event.sample = index;
  event.finish = finish;
  Give(job, std::move(event));
}

void Batcher::Fail(Job& job, const std::string& message, const std::string& code) {
  for (size_t i = 0; i < job.samples.size(); ++i) {
    if (job.samples[i].ended) continue;
    Event event;
    event.error = message;
    event.error_code = code;
    EndSample(job, static_cast<int>(i), Finish::kError, std::move(event));
  }
}

// Something broke that no request is to blame for. They all end; what comes next may go well.
void Batcher::FailAll(const std::string& message) {
  items_.clear();
  logits_ = {};
  jobs_.splice(jobs_.end(), preempted_);
  for (const auto& job : jobs_) Fail(*job, message, "engine_fault");
  Sweep();
}

// Listeners promise not to throw. One that does, for want of memory say, is not called again and its request ends;
// the engine's thread and everybody else's requests go on.
void Batcher::Give(Job& job, Event&& event) {
  if (job.deaf || !job.listener.on_event) return;
  try {
    job.listener.on_event(std::move(event));
  } catch (...) {
    job.deaf = true;
  }
}

// The last call for a job.
void Batcher::Close(Job& job) {
  if (job.has_token) job.usage.decode_seconds = SecondsBetween(job.first_token, Clock::now());
  if (!job.listener.on_done) return;
  try {
    job.listener.on_done({job.usage});
  } catch (...) {
    job.deaf = true;
  }
}

// Takes jobs out that have ended, gives their pages back and tells the listener.
void Batcher::Sweep() {
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = **at;
    if (job.deaf && !job.ended()) Fail(job, "the listener of this request threw", "engine_fault");
    if (!job.ended()) {
      ++at;
      continue;
    }
    Release(job);
    std::erase_if(items_, [&](const Item& item) { return item.job == &job; });
    ++(job.failed ? counts_.failed : counts_.finished);
    const std::unique_ptr<Job> done = std::move(*at);
    at = jobs_.erase(at);
    Close(*done);
  }
}

void Batcher::Cancel(RequestId id) {
  for (Jobs* list : {&jobs_, &preempted_}) {
    const auto at = std::ranges::find_if(*list, [&](const auto& job) { return job->id == id; });
    if (at == list->end()) continue;
    Job& job = **at;
    for (size_t i = 0; i < job.samples.size(); ++i) {
      if (!job.samples[i].ended) EndSample(job, static_cast<int>(i), Finish::kCancelled);
    }
    Release(job);
    std::erase_if(items_, [&](const Item& item) { return item.job == &job; });
    ++counts_.cancelled;
    const std::unique_ptr<Job> done = std::move(*at);
    list->erase(at);
    Close(*done);
    return;
  }
}

void Batcher::CancelAll() {
  while (!jobs_.empty()) Cancel(jobs_.front()->id);
  while (!preempted_.empty()) Cancel(preempted_.front()->id);
}

void Batcher::EndUnstarted(Job& job, Finish finish) {
  job.usage.prompt_tokens = job.prompt_tokens();
  job.usage.queue_seconds = SecondsBetween(job.submitted, Clock::now());
  for (int i = 0; i < job.request.samples; ++i) {
    Event event;
    event.sample = i;
    event.finish = finish;
    Give(job, std::move(event));
  }
  Close(job);
}

}  // namespace octavo::engine
