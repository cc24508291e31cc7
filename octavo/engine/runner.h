// One model with its key-value pages: runs the rows of one step, whatever mixture of prompt chunks and decoding
// sequences they are, and gives logits back. Used by the scheduler, the Engine of JetStream's words (engine.h) and
// `octavo verify`. Not thread-safe: one thread drives it. It knows no requests, no sampling, no text.
//
// Bits. The logits of a token depend on the tokens before it in its sequence and on its adapter, and on nothing else:
// not on what shares the step, how the prompt was cut, which pages it got, or whether they came from the prefix cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/tensor/tensor.h"

namespace octavo::engine {

using SequenceId = int64_t;

// The next tokens of one sequence.
struct Work {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;
  bool all_logits = false;  // of each token; otherwise only of the last
  bool last_logits = true;  // false for a prompt's chunks before its last
};

class Runner {
 public:
  virtual ~Runner() = default;

  virtual int64_t vocabulary_size() const = 0;
  virtual int64_t context_length() const = 0;
  virtual int64_t page_tokens() const = 0;  // tokens of one page: the attention's key block
  virtual int64_t pages() const = 0;
  virtual int64_t free_pages() const = 0;  // those that only the prefix cache holds count as free

  // A new sequence. Pages of its prompt's beginning that are known from earlier sequences of the same adapter and scope
  // are shared: `cached` tokens need not be run (always fewer than the prompt has).
  virtual SequenceId Open(std::span<const int32_t> prompt, int adapter, const std::string& scope, int64_t* cached) = 0;
  // A copy that shares the pages of `from`: further samples of one prompt.
  virtual SequenceId Fork(SequenceId from) = 0;
  // Gives the pages back; full ones stay known for later prompts as long as nobody needs the memory.
  virtual void Close(SequenceId sequence) = 0;
  virtual int64_t length(SequenceId sequence) const = 0;  // tokens that were run or shared
  // New pages that running `tokens` more tokens would take.
  virtual int64_t PagesFor(SequenceId sequence, int64_t tokens) const = 0;

  // Runs all work in one pass. Logits [rows asked for, V] f32, in the order of the work. A usage error, and no change,
  // when pages or context do not suffice.
  virtual Tensor Step(std::span<const Work> work) = 0;
};

}  // namespace octavo::engine
