// What runs now: composes each step from the jobs that are under way, runs it, and hands out the tokens. Decoding
// samples come first, one row each; then prompts in chunks, the oldest job first: alone they take the whole step,
// beside samples that decode two rows for each of those (32 at least, half of a step at most). When pages run out the
// youngest job gives its own back and is computed again later, with the same bits; who is the youngest waits. Used by
// the scheduler on the engine's thread; knows no queue and no lock.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/engine/job.h"
#include "octavo/engine/runner.h"
#include "octavo/kernels/isa.h"
#include "octavo/text/tokenizer.h"

namespace octavo::engine {

struct BatcherOptions {
  int64_t slots = 8;           // samples under way together
  int64_t step_tokens = 512;   // rows of one step at most
  int64_t scored_tokens = 64;  // rows of one step whose logits are all wanted: they take 4 V bytes each
  kernels::Isa isa = kernels::Isa::kReference;
};

class Batcher {
 public:
  // Both must outlive the batcher.
  Batcher(Runner& runner, const text::Tokenizer& tokenizer, const BatcherOptions& options);
  ~Batcher();

  bool empty() const { return jobs_.empty() && preempted_.empty(); }
  int64_t running() const { return static_cast<int64_t>(jobs_.size() + preempted_.size()); }
  // Slots and pages for one more job, now. A job alone always has room.
  bool HasRoom(const Job& job) const;
  // It begins with the next Run. Calls no listener: the scheduler holds its lock.
  void Admit(std::unique_ptr<Job> job);
  // Ends it with Finish::kCancelled. An unknown id is ignored.
  void Cancel(RequestId id);
  void CancelAll();

  // One step in two halves: Run computes, Deliver samples and calls listeners. A job cancelled between them gets no
  // more tokens.
  void Run();
  void Deliver();

  // Ends a job that never ran.
  static void EndUnstarted(Job& job, Finish finish);

  // Sums since the start.
  struct Counts {
    int64_t prompt_tokens = 0, generated_tokens = 0, prefix_queries = 0, prefix_hits = 0, preemptions = 0;
    int64_t finished = 0, failed = 0, cancelled = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  using Jobs = std::list<std::unique_ptr<Job>>;
  // Some tokens of one job in the step that is being made.
  struct Item {
    Job* job;
    int sample;  // -1: its prompt
    Work work;
    int64_t pages;                    // that it takes
    int64_t first_row = 0, rows = 0;  // of its logits
    std::string error;                // the step failed on it alone
  };

  int64_t PagesOf(const Job& job) const;
  int64_t PromisedPages() const;
  bool Fits(const Job& job) const;
  void RunStep();
  void Resume();
  void Begin();
  int64_t Start(Job& job);
  void Compose();
  void AddDecoding(Job& job);
  void AddPrefill(Job& job);
  int64_t Fitting(SequenceId sequence, int64_t tokens) const;
  void Add(Job& job, int sample, SequenceId sequence, std::span<const int32_t> tokens, bool all, bool last);
  void Preempt(Jobs::iterator victim);
  void Release(Job& job);
  void RunAlone();

  void Apply(const Item& item);
  void ApplyPrompt(Job& job, const Item& item);
  void Fork(Job& job);
  void Draw(Job& job, int index, std::span<const float> logits);
  void Take(Job& job, int index, TokenLogprob token);
  bool OnlyEndFollows(const Job& job, const Sample& sample);
  void EndSample(Job& job, int index, Finish finish, Event event = {});
  void Fail(Job& job, const std::string& message, const std::string& code);
  void FailAll(const std::string& message);
  static void Give(Job& job, Event&& event);
  static void Close(Job& job);
  void Sweep();
  std::span<const float> Row(int64_t row) const;

  Runner& runner_;
  const text::Tokenizer& tokenizer_;
  const BatcherOptions options_;
  Jobs jobs_, preempted_;  // oldest first
  std::vector<Item> items_;
  int64_t reserved_ = 0;                  // pages of the step so far
  int64_t budget_ = 0, scored_left_ = 0;  // rows that it may still take, and those whose logits are all wanted
  int64_t scored_ = 0;                    // prompts begun to be scored
  Tensor logits_;
  SamplerScratch scratch_;
  std::vector<uint32_t> mask_;
  Counts counts_;
};

}  // namespace octavo::engine
