// GGUF files as one of our models and its weights: the keys of an architecture as its configuration, the names and row
// orders of llama.cpp as those of plain model folders. Used like hf.h. Tokenizers in such files are text/'s business.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "octavo/checkpoint/gguf.h"
#include "octavo/weights/gguf_names.h"
#include "octavo/weights/hf.h"

namespace octavo::weights {

// An architecture that none of our models can be is «unsupported architecture».
HfModel OpenGguf(const std::filesystem::path& file);

// The configuration alone; gguf_config.cc.
HfConfig GgufConfig(const GgufContent& content);

// What llama 3's scaling divides the frequencies by, [head_dim / 2]: the tensor rope_freqs.weight.
std::vector<float> Llama3RopeFactors(const models::ModelConfig& config);

// Rows of queries and keys in the files of llama.cpp's llama turn neighbours, those of plain folders turn halves.
// [heads * D, in] or [heads * D].
Tensor RowsToHalves(const Tensor& rows, int64_t heads);
Tensor RowsToPairs(const Tensor& rows, int64_t heads);

}  // namespace octavo::weights
