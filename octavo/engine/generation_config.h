// What a model's files say about generating: generation_config.json beside a model in Hugging Face's form. These are
// the defaults of `generate`, `chat` and the server; a request overrides each of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "octavo/engine/request.h"

namespace octavo::engine {

struct GenerationDefaults {
  Sampling sampling;                      // temperature, top_p, top_k, min_p, repetition_penalty
  std::optional<int64_t> max_new_tokens;  // unset: the caller's
  std::vector<int32_t> end_ids;           // eos_token_id, one or several
  bool given = false;                     // the file says something about sampling; most hold ids and flags only
};

// A malformed file, or a number outside its range, is a file Error. do_sample=false is temperature 0; without do_sample
// a file draws when it has one of temperature, top_p, top_k, min_p.
GenerationDefaults ParseGenerationConfig(std::string_view json, std::string_view name);

// Of a model folder; defaults when it has no such file.
GenerationDefaults ReadGenerationConfig(const std::filesystem::path& folder);

}  // namespace octavo::engine
