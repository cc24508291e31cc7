// LoRA adapters as PEFT stores them (adapter_config.json, adapter_model.safetensors), brought to our names and layout.
// Used by the engine and by whoever trains on. Refused, with the reason: other methods than LoRA, DoRA, trained biases,
// whole modules (modules_to_save), embeddings and experts, factors that are only right over changed base weights
// (PiSSA and the like), every setting that is not known here, and files that lack what they promise.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/models/model.h"
#include "octavo/quant/lora.h"

namespace octavo::weights {

struct PeftConfig {
  int64_t r = 0;
  double alpha = 0;
  bool use_rslora = false;
  std::vector<std::string> target_modules;  // ends of module names
  std::string target_pattern;               // or one regular expression over whole names
  std::vector<std::string> exclude_modules;
  std::string exclude_pattern;
  std::vector<int64_t> layers;              // layers_to_transform; none: all
  std::vector<std::string> layers_pattern;  // what stands before the number of a layer; none: anything
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
  std::string base_model;

  // Rank and factor alpha / r (alpha / sqrt(r) for rslora) of a module such as "model.layers.0.self_attn.q_proj".
  int64_t RankOf(const std::string& module) const;
  float ScaleOf(const std::string& module) const;
  bool Targets(const std::string& module) const;
};

// `where` begins error messages.
PeftConfig ParsePeftConfig(std::string_view json, const std::string& where);

// Every factor checked against the model: a module that it does not have, or of another shape, is an error that names
// both; so is a target module without factors, or one that the model does not have. `name` is what requests will call
// it. Where our queries are theirs over a constant (HfQueryFactor), so is what the adapter adds to them.
quant::LoraAdapter ReadPeftAdapter(const std::filesystem::path& folder, const std::string& name,
                                   const models::Model& model);

}  // namespace octavo::weights
