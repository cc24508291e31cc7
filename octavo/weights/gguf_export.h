// The way out to GGUF: the keys and tensors of one of our models as llama.cpp names and orders them. Codes of int8 and
// int4 that share a scale over 32 neighbours of a row become Q8_0 and Q4_0 blocks. Used by the converter, which adds
// the tokenizer's keys. The way in is gguf.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "octavo/checkpoint/gguf_writer.h"
#include "octavo/models/model_config.h"
#include "octavo/tensor/qarray.h"

namespace octavo::weights {

struct GgufExportOptions {
  DType dtype = DType::kF32;  // of matrices that come as floats: f32, bf16 or f16. Vectors are always f32
  std::string name;           // general.name
  // Keys of others, after those of the model.
  std::function<void(GgufWriter&)> more_keys;
  std::function<void(int64_t done, int64_t all)> progress;
};

struct GgufExported {
  int64_t tensors = 0, quantized = 0;
  std::vector<std::string> notes;
};

// `read` gives a parameter by our name, in floats or in codes; it is called twice for each. Codes go without loss where
// their scales are f16 numbers; scales that are not are rounded to f16, codes that no block type holds become floats:
// a note says how many and by how much. Queries of models whose scores have no scale are multiplied by sqrt(head_dim).
// A usage error for models that llama.cpp's architectures do not cover.
GgufExported ExportGguf(const models::ModelConfig& config,
                        const std::function<std::variant<Tensor, QArray>(const std::string&)>& read,
                        const GgufExportOptions& options, GgufWriter& writer);

}  // namespace octavo::weights
