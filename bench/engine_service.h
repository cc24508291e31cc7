// What users of the engine meet: many requests through the scheduler, and a model opened from disk.
#pragma once

#include <filesystem>

#include "bench/engine_model.h"

namespace octavo::bench {

struct Throughput {
  double one = 0, many = 0;  // generated tokens per second, prompts included in the time
};

// One request alone, then `requests` at once, each of 64 tokens of its own and 64 generated ones.
Throughput ServeTogether(engine::Runner& runner, int requests);

struct FirstByte {
  double open = 0, total = 0;  // seconds: the model is open; the first token of a prompt is there
};

// Opens a stored model with mapped weights and asks for one token.
FirstByte TimeFirstByte(const std::filesystem::path& model, int threads);

}  // namespace octavo::bench
