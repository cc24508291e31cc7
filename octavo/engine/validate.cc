#include "octavo/engine/validate.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo::engine {
namespace {

[[noreturn]] void Refuse(const char* param, std::string message, std::string hint = "") {
  throw RequestError(param, "invalid_value", std::move(message), std::move(hint));
}

// NaN fails every comparison, so the test is written as what must hold.
void CheckRange(const char* param, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    Refuse(param, fmt::format("{}={} is outside {} … {}", param, value, low, high));
  }
}

void CheckToken(const char* param, int32_t id, const RequestLimits& limits) {
  if (id < 0 || id >= limits.vocabulary_size) {
    Refuse(param, fmt::format("{} holds token {}, the model has tokens 0 … {}", param, id, limits.vocabulary_size - 1));
  }
}

std::string HowToFit(const RequestLimits& limits) {
  if (limits.max_position_embeddings == 0) return "shorten it, or raise max_target_length if the model allows";
  if (limits.max_position_embeddings > limits.context_length) {
    return fmt::format("shorten it, or raise max_target_length if the model allows (max_position_embeddings {})",
                       limits.max_position_embeddings);
  }
  return fmt::format("shorten it; the model allows no larger max_target_length (max_position_embeddings {})",
                     limits.max_position_embeddings);
}

void CheckLength(const Request& request, const RequestLimits& limits) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) {
    throw RequestError("prompt", "invalid_value", "prompt is empty", "prompt='…', prompt=@FILE or text on stdin");
  }
  if (request.max_new_tokens < 0)
    Refuse("max_new_tokens", fmt::format("max_new_tokens={} is negative", request.max_new_tokens));
  // A prompt that fills the context leaves no room for even one token.
  const int64_t room = limits.context_length - (request.max_new_tokens > 0 ? 1 : 0);
  if (prompt > room) {
    throw RequestError("prompt", "context_length_exceeded",
                       fmt::format("prompt has {} tokens, the model takes {}{}", prompt, limits.context_length,
                                   prompt > limits.context_length ? "" : " together with the answer"),
                       HowToFit(limits));
  }
  if (request.max_new_tokens > limits.context_length - prompt) {
    throw RequestError("max_new_tokens", "context_length_exceeded",
                       fmt::format("prompt has {} tokens and {} new ones are asked for, the model takes {}", prompt,
                                   request.max_new_tokens, limits.context_length),
                       fmt::format("ask for at most {}", limits.context_length - prompt));
  }
  if (request.min_new_tokens < 0 || request.min_new_tokens > request.max_new_tokens) {
    Refuse("min_new_tokens", fmt::format("min_new_tokens={} is outside 0 … max_new_tokens={}", request.min_new_tokens,
                                         request.max_new_tokens));
  }
}

void CheckSampling(const Sampling& sampling) {
  CheckRange("temperature", sampling.temperature, 0, 1e6);
  CheckRange("top_k", static_cast<double>(sampling.top_k), 0, 2147483647);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    Refuse("top_p", fmt::format("top_p={} is outside (0, 1]", sampling.top_p));
  CheckRange("min_p", sampling.min_p, 0, 1);
  CheckRange("presence_penalty", sampling.presence_penalty, -2, 2);
  CheckRange("frequency_penalty", sampling.frequency_penalty, -2, 2);
  if (!(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= 1000)) {
    Refuse("repetition_penalty",
           fmt::format("repetition_penalty={} is outside (0, 1000]", sampling.repetition_penalty));
  }
  for (const auto& [id, bias] : sampling.logit_bias) CheckRange("logit_bias", bias, -100, 100);
}

}  // namespace

void ValidateChoices(const Request& request) {
  CheckSampling(request.sampling);
  CheckRange("samples", request.samples, 1, kMaxSamples);
  CheckRange("top_logprobs", request.top_logprobs, -1, kMaxTopLogprobs);
  if (request.stop.size() > kMaxStops) {
    Refuse("stop", fmt::format("{} stop strings, at most {} are taken", request.stop.size(), kMaxStops));
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) Refuse("stop", "a stop string is empty");
    if (stop.size() > kMaxStopBytes) {
      Refuse("stop", fmt::format("a stop string has {} bytes, at most {} are taken", stop.size(), kMaxStopBytes));
    }
  }
}

void Validate(const Request& request, const RequestLimits& limits) {
  CheckLength(request, limits);
  for (const int32_t id : request.prompt) CheckToken("prompt", id, limits);
  for (const int32_t id : request.stop_ids) CheckToken("stop_ids", id, limits);
  for (const auto& [id, bias] : request.sampling.logit_bias) CheckToken("logit_bias", id, limits);
  ValidateChoices(request);
}

}  // namespace octavo::engine
