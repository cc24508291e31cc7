// One request on its way through the engine: what was asked, how far each sample is, what it has cost. Touched by the
// engine's thread only, once it has left the queue.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "octavo/engine/output_text.h"
#include "octavo/engine/request.h"
#include "octavo/engine/runner.h"
#include "octavo/engine/sampler.h"
#include "octavo/engine/service.h"

namespace octavo::engine {

using Clock = std::chrono::steady_clock;

inline double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// One continuation of the prompt.
struct Sample {
  Sampler sampler;
  OutputText text;
  std::unique_ptr<text::TokenConstraint> constraint;
  std::vector<int32_t> generated;  // what stands behind the prompt; the last one has not been run yet
  SequenceId sequence = 0;
  bool open = false;  // has a sequence
  bool ended = false;
};

struct Job {
  RequestId id = 0;
  Request request;
  Listener listener;
  int adapter = 0;                          // of Runner::Open
  std::shared_ptr<const void> adapter_use;  // keeps its weights
  std::vector<int32_t> ends;                // ids that end a text of this request

  std::vector<Sample> samples;
  SequenceId prompt = 0;  // the sequence that runs the prompt, until the samples take it over
  bool prompt_open = false;
  bool forked = false;  // the prompt has been run and each sample has its own sequence
  std::vector<TokenLogprob> prompt_logprobs;
  bool prompt_given = false;
  bool failed = false;
  bool deaf = false;  // its listener threw

  Clock::time_point submitted, admitted, first_token;
  bool begun = false, has_token = false;
  Usage usage;

  int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  bool ended() const {
    for (const Sample& sample : samples) {
      if (!sample.ended) return false;
    }
    return true;
  }
};

}  // namespace octavo::engine
