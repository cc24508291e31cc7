// Adapter folders as PEFT writes them, for the tests of what reads and serves them.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ops/test_support.h"
#include "octavo/weights/hf_export.h"
#include "octavo/weights/hf_names.h"

namespace octavo::weights {

inline void WriteAdapter(const std::filesystem::path& folder, const std::string& json,
                         const std::map<std::string, Tensor>& tensors) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << json;
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.RawData()), static_cast<size_t>(tensor.bytes()));
    header[name] = {{"dtype", "F32"},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(folder / "adapter_model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << text << data;
}

// Every projection of the model that is no expert, by its name there: "model.layers.0.mlp.down_proj".
inline std::vector<HfPiece> Projections(const models::ModelConfig& config) {
  std::vector<HfPiece> pieces = HfPieces(HfModelTypeOf(config), config);
  std::erase_if(pieces, [](const HfPiece& piece) {
    return piece.stacked || piece.theirs.size() != 1 || piece.in.rank() == 0 || !piece.theirs[0].ends_with(".weight");
  });
  return pieces;
}

// Random factors of rank 3 for the projections whose names hold `part`; alpha / r is 2, large enough to change a text.
inline void WriteRandomAdapter(const std::filesystem::path& folder, const models::ModelConfig& config, uint32_t seed,
                               std::string_view part = "") {
  std::map<std::string, Tensor> tensors;
  std::set<std::string> targets;
  for (const HfPiece& piece : Projections(config)) {
    const std::string module = piece.theirs[0].substr(0, piece.theirs[0].size() - 7);
    if (module.find(part) == std::string::npos) continue;
    targets.insert(module);
    tensors["base_model.model." + module + ".lora_A.weight"] = ops::RandomTensor({3, piece.in.size()}, ++seed);
    tensors["base_model.model." + module + ".lora_B.weight"] = ops::RandomTensor({piece.out.size(), 3}, ++seed);
  }
  const nlohmann::json json = {{"peft_type", "LORA"}, {"r", 3}, {"lora_alpha", 6}, {"target_modules", targets}};
  WriteAdapter(folder, json.dump(), tensors);
}

}  // namespace octavo::weights
