// config.json of a model folder, in the spellings of transformers 4 and 5, as the configuration of one of our models.
// A value that would change the mathematics and that our models cannot follow is an error, never a default. Used by
// hf.h; the way back writes what transformers reads.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/models/model_config.h"

namespace octavo::weights {

struct HfConfig {
  std::string model_type;          // "llama"
  models::ModelConfig config;      // f32; max_target_length is the longest the model was made for
  DType dtype = DType::kF32;       // that the weights are said to be stored in
  int64_t skipped_layers = 0;      // prediction layers after the last one, which a plain decoder leaves out
  nlohmann::json quantization;     // quantization_config as it stands; null: none
  std::vector<std::string> notes;  // keys that nobody reads
};

// `where` names the text in errors. An architecture that none of our models can be is «unsupported architecture».
HfConfig ParseHfConfig(std::string_view text, const std::string& where);
HfConfig ReadHfConfig(const std::filesystem::path& file);

// The model types that can be read, and the reverse: config.json for a model of ours. A usage error for models that
// transformers has no architecture for.
std::vector<std::string_view> HfModelTypes();
nlohmann::ordered_json WriteHfConfig(const models::ModelConfig& config, DType dtype);

}  // namespace octavo::weights
