// The engine as others see it: requests in, events out, from any thread. `scheduler.h` implements it on a real model,
// `mock_service.h` with arithmetic that can be done by hand, so that the server is tested without a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/engine/request.h"
#include "octavo/text/tokenizer.h"

namespace octavo::engine {

using RequestId = uint64_t;

// The queue is full, or the service is stopping: try again later.
class Busy : public Error {
 public:
  Busy(std::string message, double wait_seconds, bool is_stopping)
      : Error(ErrorCode::kJob, std::move(message)), retry_seconds(wait_seconds), stopping(is_stopping) {}
  double retry_seconds;  // predicted wait
  bool stopping;
};

struct ModelInfo {
  std::string id;           // as clients name it
  std::string parent;       // of an adapter: the base model's id
  std::string fingerprint;  // of weights, recipe and numerics version
  std::string quantization;
  int64_t parameters = 0, bytes = 0, context_length = 0, vocabulary_size = 0;
};

struct ServiceStats {
  int64_t running = 0, waiting = 0, slots = 0;
  int64_t kv_pages_used = 0, kv_pages = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;  // since the start
  int64_t prefix_queries = 0, prefix_hits = 0;      // in tokens
  int64_t preemptions = 0, finished = 0, failed = 0, cancelled = 0;
  double seconds_per_step = 0;  // of late
};

struct Submission {
  Request request;
  Listener listener;
};

class Service {
 public:
  virtual ~Service() = default;

  // Takes all of the requests, or throws and takes none: usage errors (empty or too long prompt, token or number out of
  // range, unknown adapter, more requests than there are places) and Busy. The listeners are called from then on.
  virtual std::vector<RequestId> SubmitAll(std::vector<Submission> submissions) = 0;
  RequestId Submit(Request request, Listener listener) {
    std::vector<Submission> one;
    one.push_back({std::move(request), std::move(listener)});
    return SubmitAll(std::move(one))[0];
  }
  // The request ends with Finish::kCancelled within one step. An id that ended already is ignored.
  virtual void Cancel(RequestId id) = 0;

  virtual std::vector<ModelInfo> Models() const = 0;  // the base model first, then adapters
  virtual ServiceStats Stats() const = 0;
  virtual const text::Tokenizer& tokenizer() const = 0;
  // Takes no new requests; returns when the running ones ended or `seconds` passed (those left are then cancelled).
  virtual void Drain(double seconds) = 0;
};

}  // namespace octavo::engine
