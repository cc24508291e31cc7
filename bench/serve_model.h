// The model that `./run bench serve` serves: a random llama of 0.85 B parameters with every weight, the head included,
// in int8, as a checkpoint for Octavo and the same codes as a GGUF file for llama-server. Speed does not depend on the
// numbers in it.
#pragma once

#include <filesystem>

namespace octavo::bench {

struct ServedFiles {
  std::filesystem::path checkpoint, gguf;
};

// Makes what is not there yet in `folder`; the GGUF file only `with_gguf`.
ServedFiles MakeServedModel(const std::filesystem::path& folder, int64_t layers, bool with_gguf);

}  // namespace octavo::bench
