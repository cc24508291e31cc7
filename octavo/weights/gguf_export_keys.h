// The keys that describe one of our models in a GGUF file, and which models llama.cpp has an architecture for. Only
// gguf_export.cc uses it.
#pragma once

#include <string>
#include <vector>

#include "octavo/checkpoint/gguf_writer.h"
#include "octavo/models/model_config.h"
#include "octavo/weights/gguf_names.h"

namespace octavo::weights {

// A usage error for models that llama.cpp's architectures do not cover.
const GgufArchitecture& GgufArchitectureFor(const models::ModelConfig& config, const std::string& model_type);

struct GgufFileKeys {
  std::string name;             // general.name
  DType dtype;                  // of matrices in floats
  std::vector<GgmlType> types;  // of the tensors
};
void WriteGgufKeys(const models::ModelConfig& config, const std::string& model_type, const GgufFileKeys& file,
                   GgufWriter& writer);

}  // namespace octavo::weights
