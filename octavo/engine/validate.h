// What a request may ask for: every number is checked before it is taken, and the error says both numbers. Used by the
// implementations of Service; never shortens or corrects anything.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/engine/request.h"

namespace octavo::engine {

// A request that cannot be taken. `param` is the field of Request or Sampling, `reason` a word for programs.
class RequestError : public Error {
 public:
  RequestError(std::string field, std::string why, std::string message, std::string hint = "")
      : Error(ErrorCode::kUsage, std::move(message), std::move(hint)),
        param(std::move(field)),
        reason(std::move(why)) {}
  std::string param;   // "prompt", "top_p", …
  std::string reason;  // "context_length_exceeded", "invalid_value", "model_not_found"
};

struct RequestLimits {
  int64_t context_length = 0, vocabulary_size = 0;
  int64_t max_position_embeddings = 0;  // what the model allows at most; 0: not known. Only for the message.
};

inline constexpr int kMaxSamples = 8, kMaxTopLogprobs = 20;
inline constexpr size_t kMaxStops = 16, kMaxStopBytes = 256;

// Sampling and stop strings alone, before a model is there. Throws RequestError.
void ValidateChoices(const Request& request);

// Throws RequestError.
void Validate(const Request& request, const RequestLimits& limits);

}  // namespace octavo::engine
