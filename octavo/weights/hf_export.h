// The way out: one of our models as a folder that transformers loads with equal logits: config.json and safetensors
// shards. Used by the converter. Tokenizer files are the caller's to add to the same folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "octavo/base/publish.h"
#include "octavo/models/model_config.h"
#include "octavo/tensor/tensor.h"

namespace octavo::weights {

struct HfExportOptions {
  DType dtype = DType::kF32;               // of the written weights: f32, bf16 or f16
  int64_t shard_bytes = int64_t{5} << 30;  // a shard ends before it gets larger, unless one tensor is
};

// `read` gives a parameter by our name, in floats. Parameters are read one at a time, twice. Query kernels of a model
// whose scores have no scale are multiplied by sqrt(head_dim), which transformers divides by: exact when head_dim is a
// power of four. A usage error for models that transformers has no architecture for.
void ExportHf(const models::ModelConfig& config, const std::function<Tensor(const std::string&)>& read,
              const HfExportOptions& options, FolderPublisher& folder);

// What the query kernels are multiplied by on the way out: see ExportHf.
double HfQueryFactor(const models::ModelConfig& config);

// The model type that a model of ours is there: "llama", "gpt2" …
std::string HfModelTypeOf(const models::ModelConfig& config);

}  // namespace octavo::weights
