// What somebody asks of the engine and what comes back, in tokens: shared by the scheduler, the command line and the
// server, which translates HTTP to it. Every number is checked by Validate before a request is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/text/token_constraint.h"

namespace octavo::engine {

// How the next token is drawn, per request. Order: penalties and bias on the logits, constraint, temperature, top-k,
// top-p, min-p, one draw keyed by (seed, sample, position of the token): whatever else is in the batch does not matter.
struct Sampling {
  double temperature = 1;  // 0: the largest logit, the lowest id among equals
  int64_t top_k = 0;       // 0: all
  double top_p = 1, min_p = 0;
  double presence_penalty = 0, frequency_penalty = 0;  // over generated tokens
  double repetition_penalty = 1;                       // over prompt and generated tokens
  std::vector<std::pair<int32_t, double>> logit_bias;
  uint64_t seed = 0;
  // The reference's "composite": top-k, then top-p inside those, then temperature.
  bool temperature_last = false;
};

struct Request {
  std::vector<int32_t> prompt;
  Sampling sampling;
  int64_t max_new_tokens = 16;    // >= 0; 0 only scores the prompt
  int64_t min_new_tokens = 0;     // no end before that many
  int samples = 1;                // 1 … 8 continuations of the one prompt
  std::vector<std::string> stop;  // the text ends before the first of these
  std::vector<int32_t> stop_ids;  // besides the model's own
  bool ignore_eos = false;
  int top_logprobs = -1;         // 0 … 20; -1: no log-probabilities at all
  bool prompt_logprobs = false;  // of every prompt token but the first
  std::string adapter;           // a LoRA adapter's name; empty: the base model
  std::string cache_scope;       // prefix pages are shared only between equal scopes (the client's key)
  std::shared_ptr<const text::TokenConstraint> constraint;  // cloned for each sample; null: free text
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;  // most likely first
};

enum class Finish : uint8_t { kStop, kLength, kCancelled, kError };

// One thing that happened to a request. Text comes in whole characters; what could still become a stop string is held
// back until it is decided. Several tokens may share one event.
struct Event {
  int sample = 0;
  std::vector<int32_t> tokens;         // new ones, ids that ended the text left out
  std::string text;                    // what they completed
  std::vector<TokenLogprob> logprobs;  // one per token when asked for
  std::vector<TokenLogprob>
      prompt;                     // once, first, with sample 0, when asked for: one per prompt token (the first: NaN)
  std::optional<Finish> finish;   // last event of this sample
  std::string stopped_by;         // the stop string, if one matched
  std::string error, error_code;  // with Finish::kError
};

struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0, first_token_seconds = 0;
};

// The last call for a request, after every sample's last event.
struct Outcome {
  Usage usage;
};

// Called on the engine's thread, one call at a time per request: be quick, never block, never throw.
struct Listener {
  std::function<void(Event&&)> on_event;
  std::function<void(const Outcome&)> on_done;
};

}  // namespace octavo::engine
