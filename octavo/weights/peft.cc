#include "octavo/weights/peft.h"

#include <re2/re2.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/checkpoint/strict_json.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/hf_export.h"
#include "octavo/weights/hf_names.h"
#include "octavo/weights/source.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;

[[noreturn]] void Refuse(const std::string& where, const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::kUsage, fmt::format("{}: {}", where, what), hint);
}

template <typename T>
T Get(const Json& json, const char* key, T otherwise, const std::string& where) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return otherwise;
  try {
    return at->get<T>();
  } catch (const Json::exception&) {
    ThrowFile("{}: {} has another type than expected", where, key);
  }
}

// PEFT's patterns: the whole name, or its end after a dot.
bool Matches(const std::string& pattern, const std::string& module) {
  const RE2 expression("(?:.*\\.)?(?:" + pattern + ")", RE2::Quiet);
  return expression.ok() && RE2::FullMatch(module, expression);
}

template <typename T>
T ByPattern(const std::map<std::string, T>& patterns, const std::string& module, T otherwise) {
  for (const auto& [pattern, value] : patterns) {
    if (Matches(pattern, module)) return value;
  }
  return otherwise;
}

template <typename T>
std::map<std::string, T> Patterns(const Json& json, const char* key, const std::string& where) {
  std::map<std::string, T> result;
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return result;
  if (!at->is_object()) ThrowFile("{}: {} is no object", where, key);
  for (const auto& entry : at->items()) {
    const std::string& pattern = entry.key();
    const Json& value = entry.value();
    if (!value.is_number() || !(value.get<double>() > 0))
      ThrowFile("{}: {}['{}'] is no positive number", where, key, pattern);
    if (!RE2(pattern, RE2::Quiet).ok()) ThrowFile("{}: {}: '{}' is no regular expression", where, key, pattern);
    result[pattern] = value.template get<T>();
  }
  return result;
}

// "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight" -> module and 'A'.
struct FactorName {
  std::string module;
  char side;
};
FactorName ParseName(const std::string& name, const std::string& where) {
  static constexpr std::string_view kPrefix = "base_model.model.";
  std::string rest = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  for (const char side : {'A', 'B'}) {
    for (const char* end : {".weight", ".default.weight"}) {
      const std::string tail = fmt::format(".lora_{}{}", side, end);
      if (rest.ends_with(tail)) return {rest.substr(0, rest.size() - tail.size()), side};
    }
  }
  if (name.find("lora_embedding") != std::string::npos) {
    Refuse(where, fmt::format("{} adapts the embedding, which is not supported", name), "adapters of projections are");
  }
  if (name.find("lora_magnitude_vector") != std::string::npos) {
    Refuse(where, "this is a DoRA adapter, which is not supported", "train it without use_dora");
  }
  Refuse(where, fmt::format("tensor {} is no LoRA factor", name), "modules_to_save and biases are not supported");
}

}  // namespace

int64_t PeftConfig::RankOf(const std::string& module) const { return ByPattern(rank_pattern, module, r); }

float PeftConfig::ScaleOf(const std::string& module) const {
  const double own = ByPattern(alpha_pattern, module, alpha);
  const auto rank = static_cast<double>(RankOf(module));
  return static_cast<float>(own / (use_rslora ? std::sqrt(rank) : rank));
}

bool PeftConfig::Targets(const std::string& module) const {
  if (!target_pattern.empty()) return RE2::FullMatch(module, RE2(target_pattern, RE2::Quiet));
  for (const std::string& end : target_modules) {
    if (module == end || module.ends_with("." + end)) return true;
  }
  return target_modules.empty();
}

PeftConfig ParsePeftConfig(std::string_view text, const std::string& where) {
  const Json json = ParseStrictJson(text, where, {size_t{1} << 24, 32});
  if (!json.is_object()) ThrowFile("{}: expected an object", where);
  const std::string type = Get<std::string>(json, "peft_type", "", where);
  if (type != "LORA") Refuse(where, fmt::format("peft_type is '{}'", type), "only LORA adapters can be used");
  if (Get(json, "use_dora", false, where)) {
    Refuse(where, "use_dora=true is not supported", "the adapter would give wrong numbers without its magnitudes");
  }
  const std::string bias = Get<std::string>(json, "bias", "none", where);
  if (bias != "none") Refuse(where, fmt::format("bias='{}' is not supported", bias), "train it with bias='none'");
  const auto saved = json.find("modules_to_save");
  if (saved != json.end() && saved->is_array() && !saved->empty()) {
    Refuse(where, fmt::format("modules_to_save={} is not supported", saved->dump()),
           "whole modules cannot be exchanged per request; merge the adapter instead");
  }
  PeftConfig config;
  config.r = Get<int64_t>(json, "r", 8, where);
  config.alpha = Get<double>(json, "lora_alpha", 8, where);
  config.use_rslora = Get(json, "use_rslora", false, where);
  config.base_model = Get<std::string>(json, "base_model_name_or_path", "", where);
  if (config.r <= 0 || !std::isfinite(config.alpha))
    ThrowFile("{}: r={}, lora_alpha={}", where, config.r, config.alpha);
  const auto targets = json.find("target_modules");
  if (targets != json.end() && targets->is_string()) {
    config.target_pattern = targets->get<std::string>();
    if (config.target_pattern == "all-linear") config.target_pattern.clear();
    if (!RE2(config.target_pattern, RE2::Quiet).ok()) {
      ThrowFile("{}: target_modules '{}' is no regular expression", where, config.target_pattern);
    }
  } else if (targets != json.end() && !targets->is_null()) {
    config.target_modules = Get<std::vector<std::string>>(json, "target_modules", {}, where);
  }
  config.rank_pattern = Patterns<int64_t>(json, "rank_pattern", where);
  config.alpha_pattern = Patterns<double>(json, "alpha_pattern", where);
  return config;
}

quant::LoraAdapter ReadPeftAdapter(const std::filesystem::path& folder, const std::string& name,
                                   const models::Model& model) {
  const std::filesystem::path file = folder / "adapter_model.safetensors", config_file = folder / "adapter_config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    throw Error(ErrorCode::kFile, fmt::format("no adapter_model.safetensors in {}", folder.string()),
                "adapter_model.bin is a pickle: save the adapter again with safe_serialization=True");
  }
  const PeftConfig config = ParsePeftConfig(ReadSmallFile(config_file), config_file.string());
  const std::string where = file.string();
  const Source source = OpenSafetensors({&file, 1});
  std::map<std::string, const HfPiece*> pieces;  // by module
  const std::vector<HfPiece> all = HfPieces(HfModelTypeOf(model.config()), model.config());
  for (const HfPiece& piece : all) {
    if (piece.stacked || piece.theirs.size() != 1 || piece.in.rank() == 0) continue;
    const std::string& theirs = piece.theirs[0];
    if (theirs.ends_with(".weight")) pieces[theirs.substr(0, theirs.size() - 7)] = &piece;
  }
  std::map<std::string, std::map<char, std::string>> found;  // module, side, tensor
  for (const auto& [tensor, value] : source.tensors) {
    const FactorName parsed = ParseName(tensor, where);
    found[parsed.module][parsed.side] = tensor;
  }
  if (found.empty()) ThrowFile("{}: no LoRA factors", where);
  quant::LoraAdapter adapter;
  adapter.name = name;
  for (const auto& [module, sides] : found) {
    const auto at = pieces.find(module);
    if (at == pieces.end()) {
      std::vector<std::string_view> known;
      for (const auto& [theirs, piece] : pieces) known.push_back(theirs);
      Refuse(where, fmt::format("the model has no module {} to adapt", module),
             fmt::format("nearest: {}; the adapter was made for {}", fmt::join(NearestNames(module, known, 3), ", "),
                         config.base_model.empty() ? "another model" : config.base_model));
    }
    if (!config.Targets(module)) ThrowFile("{}: factors of {}, which target_modules does not name", where, module);
    if (sides.size() != 2) ThrowFile("{}: {} has lora_{} only", where, module, sides.begin()->first);
    const HfPiece& piece = *at->second;
    const SourceTensor &a = source.tensors.at(sides.at('A')), &b = source.tensors.at(sides.at('B'));
    const int64_t rank = config.RankOf(module), in = piece.in.size(), out = piece.out.size();
    if (a.shape != Shape{rank, in} || b.shape != Shape{out, rank}) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("{}: {}: lora_A {} and lora_B {}, expected {} and {}", where, module, a.shape, b.shape,
                      Shape{rank, in}, Shape{out, rank}),
          fmt::format("the adapter was made for {}", config.base_model.empty() ? "another model" : config.base_model));
    }
    quant::LoraFactors factors;
    factors.scale = config.ScaleOf(module);
    factors.a = {fmt::format("{}/{}/lora_a", name, piece.ours),
                 ConvertFloats(a.read(), DType::kF32).Transpose().Contiguous()};
    // B is a projection from r features to the module's outputs: it is laid out as the module's own weight is.
    HfPiece of_b = piece;
    of_b.in = Shape{rank};
    of_b.transposed = true;
    const Tensor values = ConvertFloats(b.read(), DType::kF32);
    factors.b = {fmt::format("{}/{}/lora_b", name, piece.ours),
                 ImportPiece(of_b, {&values, 1}).Contiguous().Reshape({rank, out})};
    adapter.factors[piece.ours] = std::move(factors);
  }
  return adapter;
}

}  // namespace octavo::weights
