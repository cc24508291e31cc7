#include "octavo/engine/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "octavo/base/error.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::engine {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;

double NumberIn(const text::JsonValue& value, const std::string& where, double low, double high) {
  const double number = value.Number(where);
  if (!(number >= low && number <= high)) ThrowFile("{}: {} is outside {} … {}", where, number, low, high);
  return number;
}

}  // namespace

GenerationDefaults ParseGenerationConfig(std::string_view json, std::string_view name) {
  const text::JsonValue config = text::ParseJson(json, name);
  if (!config.IsObject()) ThrowFile("{}: expected an object", name);
  GenerationDefaults defaults;
  Sampling& sampling = defaults.sampling;
  const auto where = [&](std::string_view key) { return fmt::format("{}: {}", name, key); };
  const auto number = [&](std::string_view key, double low, double high, double& into) {
    if (const text::JsonValue* value = config.Find(key)) into = NumberIn(*value, where(key), low, high);
  };
  const auto names = [&](std::string_view key) { return config.Find(key) != nullptr; };
  number("temperature", 0, 1e6, sampling.temperature);
  number("top_p", 0, 1, sampling.top_p);
  // 0 keeps the most likely token, as any number too small to be passed does.
  sampling.top_p = std::max(sampling.top_p, 1e-12);
  number("min_p", 0, 1, sampling.min_p);
  number("repetition_penalty", 1e-3, 1000, sampling.repetition_penalty);
  if (const text::JsonValue* value = config.Find("top_k")) sampling.top_k = value->Int(where("top_k"), 0, kMostTokens);
  if (const text::JsonValue* value = config.Find("max_new_tokens")) {
    defaults.max_new_tokens = value->Int(where("max_new_tokens"), 0, kMostTokens);
  }
  // Without do_sample, files that say how to draw mean it: servers draw so whatever the flag says. What is left, a
  // penalty alone, is no reason to draw, and Hugging Face's default takes the most likely token.
  const bool says_how = names("temperature") || names("top_p") || names("top_k") || names("min_p");
  defaults.given = says_how || names("repetition_penalty") || names("do_sample");
  if (defaults.given && !config.BoolOr("do_sample", says_how, name)) sampling.temperature = 0;
  if (const text::JsonValue* value = config.Find("eos_token_id")) {
    const auto add = [&](const text::JsonValue& id) {
      defaults.end_ids.push_back(static_cast<int32_t>(id.Int(where("eos_token_id"), 0, kMostTokens - 1)));
    };
    if (value->IsArray()) {
      for (const text::JsonValue& id : value->Items(where("eos_token_id"))) add(id);
    } else {
      add(*value);
    }
  }
  return defaults;
}

GenerationDefaults ReadGenerationConfig(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return {};
  return ParseGenerationConfig(text::ReadWholeFile(file.string(), size_t{1} << 20), file.string());
}

}  // namespace octavo::engine
