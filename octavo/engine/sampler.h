// The next token of one sample from its row of logits. Used by the scheduler and the Engine of JetStream's words; knows
// no batch and no threads. The same row, history, seed, sample and position give the same token on every machine: all
// sums go over the row in one order, exponentials are those of kernels/math.h.
//
// Order: repetition penalty, presence and frequency penalties, logit bias, banned ids and constraint; then temperature,
// top-k, top-p, min-p (the reference's composite, `temperature_last`: top-k, top-p, min-p, temperature); then one draw
// u = bits64(threefry(fold_in(key(seed), sample)), position) / 2^64 in the running sum of what is left.
// Log-probabilities are the model's own: of the logits before all of this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/engine/request.h"
#include "octavo/kernels/isa.h"

namespace octavo::engine {

// The row gives no token: "nan_logits" (NaN, or nothing finite) or "empty_constraint" (nothing is allowed). The request
// fails, others go on.
class SampleError : public Error {
 public:
  SampleError(ErrorCode code, std::string word, std::string message, std::string hint = "")
      : Error(code, std::move(message), std::move(hint)), reason(std::move(word)) {}
  std::string reason;
};

// Memory that a thread reuses for all its rows.
struct SamplerScratch {
  std::vector<float> logits, weights;
  std::vector<std::pair<float, int32_t>> candidates;
};

class Sampler {
 public:
  Sampler(const Sampling& sampling, int sample, std::span<const int32_t> prompt);

  struct Row {
    std::span<const float> logits;
    int64_t position = 0;             // of the token to be drawn in its sequence
    std::span<const int32_t> banned;  // ids that may not come: ends before min_new_tokens
    std::span<const uint32_t> mask;   // of a constraint; empty: everything is allowed
    int top_logprobs = -1;            // -1: no log-probability is computed
  };
  // Throws SampleError. Does not change the history: Add does.
  TokenLogprob Next(kernels::Isa isa, const Row& row, SamplerScratch& scratch) const;
  // The token was taken.
  void Add(int32_t token);

 private:
  int32_t Choose(kernels::Isa isa, const Row& row, SamplerScratch& scratch) const;
  void Filter(kernels::Isa isa, std::span<const float> logits, float max, float temperature,
              SamplerScratch& scratch) const;
  bool TopK(size_t outputs) const { return sampling_.top_k > 0 && static_cast<uint64_t>(sampling_.top_k) < outputs; }
  void Change(const Row& row, std::span<float> logits) const;

  Sampling sampling_;
  RngKey key_;
  std::unordered_map<int32_t, int32_t> generated_;  // counts
  std::unordered_map<int32_t, int32_t> seen_;       // prompt and generated, for the repetition penalty
};

// log softmax(logits)[token] and the `top` most likely, the lower id first among equals. Throws SampleError for NaN.
TokenLogprob LogProbability(kernels::Isa isa, std::span<const float> logits, int32_t token, int top);

// The reference's names and arguments (decode_sampling_*): greedy, weighted, nucleus, topk, composite. Throws usage
// errors where it does: unknown name, p < 0, k <= 0, composite with p outside (0, 1].
Sampling SamplingOfStrategy(std::string_view strategy, int64_t top_k, double nucleus_p, double temperature);

}  // namespace octavo::engine
