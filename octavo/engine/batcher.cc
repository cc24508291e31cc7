#include "octavo/engine/batcher.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "octavo/base/check.h"
#include "octavo/base/error.h"

namespace octavo::engine {
namespace {

constexpr int64_t kLeastPromptRows = 32;  // of a step beside streams that run

}  // namespace

Batcher::Batcher(Runner& runner, const text::Tokenizer& tokenizer, const BatcherOptions& options)
    : runner_(runner), tokenizer_(tokenizer), options_(options) {}

Batcher::~Batcher() { CancelAll(); }

// Pages that all tokens of the job so far would take, were none of them shared with other jobs.
int64_t Batcher::PagesOf(const Job& job) const {
  const int64_t page = runner_.page_tokens();
  const int64_t shared = job.prompt_tokens() / page;
  int64_t pages = shared;
  for (const Sample& sample : job.samples) {
    if (sample.ended) continue;
    const int64_t tokens = job.prompt_tokens() + static_cast<int64_t>(sample.generated.size()) + 1;
    pages += (tokens + page - 1) / page - shared;
  }
  return pages;
}

// Pages that the jobs under way will take soon: for prompts that are being run, for tokens that are computed again, for
// the next token of each sample.
int64_t Batcher::PromisedPages() const {
  int64_t pages = 0;
  for (const auto& job : jobs_) {
    if (!job->forked) {
      pages += PagesOf(*job) - (job->prompt_open ? runner_.length(job->prompt) / runner_.page_tokens() : 0);
      continue;
    }
    for (const Sample& sample : job->samples) {
      if (sample.ended) continue;
      const int64_t done = runner_.length(sample.sequence) - job->prompt_tokens();
      pages += runner_.PagesFor(sample.sequence, std::ssize(sample.generated) - done);
    }
  }
  return pages;
}

bool Batcher::Fits(const Job& job) const {
  auto slots = static_cast<int64_t>(job.samples.size());
  for (const auto& other : jobs_) slots += static_cast<int64_t>(other->samples.size());
  return slots <= options_.slots && PagesOf(job) + PromisedPages() <= runner_.free_pages();
}

bool Batcher::HasRoom(const Job& job) const {
  if (empty()) return true;
  return preempted_.empty() && Fits(job);  // those were here before
}

void Batcher::Admit(std::unique_ptr<Job> job) {
  const auto now = Clock::now();
  job->admitted = now;
  job->usage.prompt_tokens = job->prompt_tokens();
  job->usage.queue_seconds = SecondsBetween(job->submitted, now);
  counts_.prompt_tokens += job->prompt_tokens();
  jobs_.push_back(std::move(job));
}

// Opens the prompts of jobs that were admitted or resumed since the last step.
void Batcher::Begin() {
  for (const auto& job : jobs_) {
    if (job->prompt_open || job->forked) continue;
    try {
      const int64_t cached = Start(*job);
      if (std::exchange(job->begun, true)) continue;
      job->usage.cached_tokens = cached;
      counts_.prefix_queries += job->prompt_tokens();
      counts_.prefix_hits += cached;
    } catch (const std::exception& error) {
      Fail(*job, error.what(), "engine_fault");
    }
  }
  Sweep();
}

// Opens the prompt's sequence; gives the tokens that other jobs have run already.
int64_t Batcher::Start(Job& job) {
  // A prompt that is scored is run from its first token on, and again so after it gave its pages back: nobody's pages
  // are shared, not even its own of before, since those have no logits.
  const bool scores = job.request.prompt_logprobs && !job.prompt_given;
  const std::string scope = scores ? "scored " + std::to_string(++scored_) : "shared " + job.request.cache_scope;
  int64_t cached = 0;
  job.prompt = runner_.Open(job.request.prompt, job.adapter, scope, &cached);
  job.prompt_open = true;
  job.forked = false;
  return cached;
}

// Jobs that gave their pages back go on as soon as these are free again.
void Batcher::Resume() {
  while (!preempted_.empty()) {
    Job& job = *preempted_.front();
    if (!jobs_.empty() && !Fits(job)) return;
    // It is older than some that run now; order is by age.
    auto at = std::ranges::find_if(jobs_, [&](const auto& other) { return other->id > job.id; });
    jobs_.splice(at, preempted_, preempted_.begin());
  }
}

void Batcher::Release(Job& job) {
  for (Sample& sample : job.samples) {
    if (sample.open) runner_.Close(sample.sequence);
    sample.open = false;
  }
  if (job.prompt_open) runner_.Close(job.prompt);
  job.prompt_open = false;
  job.forked = false;
}

void Batcher::Preempt(Jobs::iterator victim) {
  Job& job = **victim;
  std::erase_if(items_, [&](const Item& item) {
    if (item.job != &job) return false;
    reserved_ -= item.pages;
    budget_ += std::ssize(item.work.tokens);
    if (item.work.all_logits) scored_left_ += std::ssize(item.work.tokens);
    return true;
  });
  Release(job);
  if (!job.prompt_given) job.prompt_logprobs.clear();
  ++counts_.preemptions;
  const auto at = std::ranges::find_if(preempted_, [&](const auto& other) { return other->id > job.id; });
  preempted_.splice(at, jobs_, victim);
}

void Batcher::Add(Job& job, int sample, SequenceId sequence, std::span<const int32_t> tokens, bool all, bool last) {
  Item item{&job, sample, {sequence, tokens, all, last}, runner_.PagesFor(sequence, std::ssize(tokens)), 0, 0, ""};
  reserved_ += item.pages;
  budget_ -= std::ssize(tokens);
  if (all) scored_left_ -= std::ssize(tokens);
  item.rows = all ? std::ssize(tokens) : last ? 1 : 0;
  items_.push_back(std::move(item));
}

// One row for each sample that decodes.
void Batcher::AddDecoding(Job& job) {
  for (size_t i = 0; i < job.samples.size(); ++i) {
    Sample& sample = job.samples[i];
    if (sample.ended || budget_ == 0) continue;
    const int64_t done = runner_.length(sample.sequence) - job.prompt_tokens();
    const auto tokens = std::span<const int32_t>(sample.generated).subspan(static_cast<size_t>(done));
    if (tokens.size() != 1) continue;
    const auto fits = [&] { return runner_.PagesFor(sample.sequence, 1) <= runner_.free_pages() - reserved_; };
    while (!fits() && jobs_.back().get() != &job) Preempt(std::prev(jobs_.end()));
    // The youngest job keeps what it has: to compute it again would cost more than to wait until an older one ends, or
    // takes the pages. Samples that still share a page each want a copy of it; the last one keeps it, a step later.
    if (fits()) Add(job, static_cast<int>(i), sample.sequence, tokens, false, true);
  }
}

// As many of `tokens` as rows and pages are left for.
int64_t Batcher::Fitting(SequenceId sequence, int64_t tokens) const {
  int64_t count = std::min(tokens, budget_);
  while (count > 0 && runner_.PagesFor(sequence, count) > runner_.free_pages() - reserved_) {
    count = std::max<int64_t>(0, count - runner_.page_tokens());
  }
  return count;
}

void Batcher::AddPrefill(Job& job) {
  if (!job.forked) {
    const bool scores = job.request.prompt_logprobs && !job.prompt_given;
    const int64_t done = runner_.length(job.prompt), left = job.prompt_tokens() - done;
    const int64_t count = Fitting(job.prompt, scores ? std::min(left, scored_left_) : left);
    if (count == 0) return;
    bool draws = false;
    for (const Sample& sample : job.samples) draws |= !sample.ended && sample.generated.empty();
    Add(job, -1, job.prompt,
        std::span<const int32_t>(job.request.prompt).subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
        scores, count == left && draws && job.request.max_new_tokens > 0);
    return;
  }
  for (size_t i = 0; i < job.samples.size(); ++i) {
    Sample& sample = job.samples[i];
    if (sample.ended) continue;
    const int64_t done = runner_.length(sample.sequence) - job.prompt_tokens();
    const int64_t left = std::ssize(sample.generated) - done;
    if (left <= 1) continue;  // decodes
    const int64_t count = Fitting(sample.sequence, left);
    if (count == 0) continue;
    const auto tokens =
        std::span<const int32_t>(sample.generated).subspan(static_cast<size_t>(done), static_cast<size_t>(count));
    Add(job, static_cast<int>(i), sample.sequence, tokens, false, count == left);
  }
}

void Batcher::Compose() {
  items_.clear();
  reserved_ = 0;
  budget_ = options_.step_tokens;
  scored_left_ = options_.scored_tokens;
  // Those that are preempted meanwhile stand behind the one that needs their pages.
  for (auto at = jobs_.begin(); at != jobs_.end(); ++at) {
    if ((*at)->forked) AddDecoding(**at);
  }
  // Every row of a prompt is felt by the streams that run: beside them prompts get two rows for each of theirs, so that
  // a step takes no more than about three times as long, and never more than half of a step. Few rows are nearly free.
  if (const auto streams = static_cast<int64_t>(items_.size()); streams > 0) {
    const int64_t most = std::max<int64_t>(1, options_.step_tokens / 2);
    budget_ = std::min({budget_, most, std::max(kLeastPromptRows, 2 * streams)});
  }
  for (const auto& job : jobs_) {
    if (budget_ > 0) AddPrefill(*job);
  }
}

void Batcher::Run() {
  try {
    RunStep();
  } catch (const std::exception& error) {
    FailAll(error.what());
  }
}

void Batcher::RunStep() {
  Resume();
  Begin();
  Compose();
  // Prompts that hold pages and wait for more: the youngest gives way until the oldest can go on.
  while (items_.empty() && jobs_.size() > 1) {
    Preempt(std::prev(jobs_.end()));
    Compose();
  }
  if (items_.empty()) {
    if (!jobs_.empty()) Fail(*jobs_.front(), "the cache has no page left for this request alone", "cache_full");
    Sweep();
    return;
  }
  std::vector<Work> work;
  int64_t rows = 0;
  for (Item& item : items_) {
    item.first_row = rows;
    rows += item.rows;
    work.push_back(item.work);
  }
  try {
    logits_ = runner_.Step(work);
  } catch (const std::exception& error) {
    if (items_.size() == 1) {
      items_[0].error = error.what();
    } else {
      RunAlone();
    }
  }
}

// The step failed: each item runs by itself, so that only the one that causes it fails. Same bits.
void Batcher::RunAlone() {
  int64_t rows = 0;
  for (const Item& item : items_) rows += item.rows;
  const int64_t outputs = runner_.vocabulary_size();
  logits_ = Tensor::Empty({rows, outputs}, DType::kF32);
  for (Item& item : items_) {
    try {
      const Tensor part = runner_.Step({&item.work, 1});
      if (item.rows == 0) continue;
      std::copy_n(part.Data<float>(), item.rows * outputs, logits_.MutableData<float>() + item.first_row * outputs);
    } catch (const std::exception& error) {
      item.error = error.what();
    }
  }
}

std::span<const float> Batcher::Row(int64_t row) const {
  const auto outputs = static_cast<size_t>(runner_.vocabulary_size());
  return {logits_.Data<float>() + static_cast<size_t>(row) * outputs, outputs};
}

}  // namespace octavo::engine
