#include "octavo/weights/peft.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

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

// Keys that are read below, or that say how an adapter was trained and nothing about what it computes: dropout, seeds
// of the factors, where it was made.
constexpr std::string_view kKnown[] = {
    "peft_type",      "use_dora",      "bias",           "modules_to_save",   "r",
    "lora_alpha",     "use_rslora",    "target_modules", "exclude_modules",   "layers_to_transform",
    "layers_pattern", "rank_pattern",  "alpha_pattern",  "init_lora_weights", "base_model_name_or_path",
    "fan_in_fan_out", "lora_dropout",  "inference_mode", "task_type",         "auto_mapping",
    "revision",       "peft_version",  "loftq_config",   "eva_config",        "corda_config",
    "lora_ga_config", "megatron_core", "runtime_config", "qalora_group_size"};

template <typename T>
bool IsA(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
  if constexpr (std::is_same_v<T, int64_t>) return value.is_number_integer();
  if constexpr (std::is_same_v<T, double>) return value.is_number();
  return value.is_string();
}

template <typename T>
T Get(const Json& json, const char* key, T otherwise, const std::string& where) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return otherwise;
  if (!IsA<T>(*at)) ThrowFile("{}: {} has another type than expected", where, key);
  return at->get<T>();
}

// Without these PEFT's defaults would be guessed, and another factor is another adapter.
template <typename T>
T Need(const Json& json, const char* key, const std::string& where) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) {
    Refuse(where, fmt::format("{} is missing", key), "PEFT writes it; is this the file that it saved?");
  }
  return Get<T>(json, key, {}, where);
}

// One value or a list of them; nothing for null.
template <typename T>
std::vector<T> OneOrMore(const Json& json, const char* key, const std::string& where) {
  std::vector<T> values;
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return values;
  const Json list = at->is_array() ? *at : Json::array({*at});
  for (const Json& value : list) {
    if (!IsA<T>(value)) ThrowFile("{}: {} has another type than expected", where, key);
    values.push_back(value.template get<T>());
  }
  return values;
}

bool IsEmpty(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

// PEFT's patterns: the whole name, or its end after a dot.
bool Matches(const std::string& pattern, const std::string& module) {
  const RE2 expression("(?:.*\\.)?(?:" + pattern + ")", RE2::Quiet);
  return expression.ok() && RE2::FullMatch(module, expression);
}

// PEFT takes the first of its file that matches, an order that is not kept here: two that disagree are an error.
template <typename T>
T ByPattern(const std::map<std::string, T>& patterns, const std::string& module, T otherwise) {
  const std::string* first = nullptr;
  for (const auto& [pattern, value] : patterns) {
    if (!Matches(pattern, module)) continue;
    if (first != nullptr && value != otherwise) {
      ThrowUsage("adapter_config.json: patterns '{}' and '{}' say different things about {}", *first, pattern, module);
    }
    first = &pattern;
    otherwise = value;
  }
  return otherwise;
}

bool EndsOne(const std::vector<std::string>& ends, const std::string& module) {
  return std::ranges::any_of(ends,
                             [&](const std::string& end) { return module == end || module.ends_with("." + end); });
}

void RequirePattern(const std::string& pattern, const char* key, const std::string& where) {
  if (!RE2(pattern, RE2::Quiet).ok()) ThrowFile("{}: {} '{}' is no regular expression", where, key, pattern);
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
    if (!IsA<T>(value) || !(value.template get<double>() > 0))
      ThrowFile("{}: {}['{}'] is no positive number", where, key, pattern);
    RequirePattern(pattern, key, where);
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
  if (!exclude_pattern.empty() && RE2::FullMatch(module, RE2(exclude_pattern, RE2::Quiet))) return false;
  if (EndsOne(exclude_modules, module)) return false;
  if (!target_pattern.empty()) return RE2::FullMatch(module, RE2(target_pattern, RE2::Quiet));
  if (target_modules.empty()) return true;
  if (!EndsOne(target_modules, module)) return false;
  if (layers.empty()) return true;
  const std::vector<std::string> any{"[^.]*"};
  for (const std::string& pattern : layers_pattern.empty() ? any : layers_pattern) {
    const RE2 expression("^.*\\.(?:" + pattern + ")\\.(\\d+)\\.", RE2::Quiet);
    int64_t layer = -1;
    if (RE2::PartialMatch(module, expression, &layer)) return std::ranges::find(layers, layer) != layers.end();
  }
  return false;
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
  const auto init = json.find("init_lora_weights");
  if (init != json.end() && init->is_string()) {
    const std::string& how = init->get_ref<const std::string&>();
    if (how != "gaussian" && how != "eva" && how != "orthogonal") {
      Refuse(where, fmt::format("init_lora_weights='{}' changed the base weights too", how),
             "save the adapter with path_initial_model_for_weight_conversion, which makes a plain one of it");
    }
  }
  for (const auto& entry : json.items()) {
    if (std::ranges::find(kKnown, std::string_view(entry.key())) != std::end(kKnown) || IsEmpty(entry.value()))
      continue;
    Refuse(where, fmt::format("{} is set, which is not supported", entry.key()),
           "the adapter could compute something else than alpha/r · A B");
  }
  PeftConfig config;
  config.r = Need<int64_t>(json, "r", where);
  config.alpha = Need<double>(json, "lora_alpha", where);
  config.use_rslora = Get(json, "use_rslora", false, where);
  config.base_model = Get<std::string>(json, "base_model_name_or_path", "", where);
  if (config.r <= 0 || !std::isfinite(config.alpha))
    ThrowFile("{}: r={}, lora_alpha={}", where, config.r, config.alpha);
  const auto targets = json.find("target_modules");
  if (targets != json.end() && targets->is_string()) {
    config.target_pattern = targets->get<std::string>();
    if (config.target_pattern == "all-linear") config.target_pattern.clear();
    RequirePattern(config.target_pattern, "target_modules", where);
  } else {
    config.target_modules = OneOrMore<std::string>(json, "target_modules", where);
  }
  const auto excluded = json.find("exclude_modules");
  if (excluded != json.end() && excluded->is_string()) {
    config.exclude_pattern = excluded->get<std::string>();
    RequirePattern(config.exclude_pattern, "exclude_modules", where);
  } else {
    config.exclude_modules = OneOrMore<std::string>(json, "exclude_modules", where);
  }
  config.layers = OneOrMore<int64_t>(json, "layers_to_transform", where);
  config.layers_pattern = OneOrMore<std::string>(json, "layers_pattern", where);
  for (const std::string& pattern : config.layers_pattern) RequirePattern(pattern, "layers_pattern", where);
  config.rank_pattern = Patterns<int64_t>(json, "rank_pattern", where);
  config.alpha_pattern = Patterns<double>(json, "alpha_pattern", where);
  return config;
}

namespace {

std::vector<HfPiece> PiecesOf(const models::ModelConfig& config) {
  std::string type;
  try {
    type = HfModelTypeOf(config);
  } catch (const Error&) {  // speaks of writing
    throw Error(
        ErrorCode::kUsage,
        fmt::format("adapters for a model like this one (decoder_block {}) are not supported", config.decoder_block),
        "PEFT's names for its projections are known for llama2, mistral, mixtral, qwen3, deepseek and plain gpt3");
  }
  return HfPieces(type, config);
}

// The modules of a model by their names there.
struct Modules {
  explicit Modules(const models::ModelConfig& config) : all(PiecesOf(config)) {
    for (const HfPiece& piece : all) {
      for (const std::string& theirs : piece.theirs) {
        if (piece.in.rank() == 0 || !theirs.ends_with(".weight")) continue;
        const std::string module = theirs.substr(0, theirs.size() - 7);
        if (piece.stacked) {
          experts.insert(module);
        } else if (piece.theirs.size() == 1) {
          projections[module] = &piece;
        }
      }
    }
  }

  std::vector<HfPiece> all;
  std::map<std::string, const HfPiece*> projections;
  std::set<std::string> experts;
};

std::string MadeFor(const PeftConfig& config) {
  return fmt::format("the adapter was made for {}", config.base_model.empty() ? "another model" : config.base_model);
}

const HfPiece& Find(const Modules& modules, const std::string& module, const PeftConfig& config,
                    const std::string& where) {
  const auto at = modules.projections.find(module);
  if (at != modules.projections.end()) return *at->second;
  if (modules.experts.contains(module)) {
    Refuse(where, fmt::format("{} is an expert, which is not supported", module), "adapters of other projections are");
  }
  std::vector<std::string_view> known;
  for (const auto& entry : modules.projections) known.push_back(entry.first);
  Refuse(where, fmt::format("the model has no module {} to adapt", module),
         fmt::format("nearest: {}; {}", fmt::join(NearestNames(module, known, 3), ", "), MadeFor(config)));
}

// What the configuration names is in the model and in the file: an adapter that lacks a part would be applied without
// it and nobody told.
void RequireComplete(const Modules& modules, const PeftConfig& config, const std::string& config_where,
                     const std::string& where, const std::function<bool(const std::string&)>& has_factors) {
  for (const std::string& end : config.target_modules) {
    const auto ends = [&](const std::string& module) { return EndsOne({end}, module); };
    if (std::ranges::any_of(modules.projections, [&](const auto& entry) { return ends(entry.first); })) continue;
    if (std::ranges::any_of(modules.experts, ends)) continue;  // said of its factors, if there are any
    std::set<std::string_view> names;
    for (const auto& entry : modules.projections) {
      names.insert(std::string_view(entry.first).substr(entry.first.rfind('.') + 1));
    }
    Refuse(config_where, fmt::format("target_modules names {}, the model has no such projection", end),
           fmt::format("it has {}; {}", fmt::join(names, ", "), MadeFor(config)));
  }
  if (config.target_modules.empty() && config.target_pattern.empty()) return;
  for (const auto& entry : modules.projections) {
    if (!config.Targets(entry.first) || has_factors(entry.first)) continue;
    ThrowFile("{}: no factors of {}, which target_modules names", where, entry.first);
  }
}

Tensor ReadFactor(const SourceTensor& tensor, const std::string& name, const std::string& where) {
  Tensor values = ConvertFloats(tensor.read(), DType::kF32);
  const auto floats = values.Values<float>();
  if (!std::ranges::all_of(floats, [](float value) { return std::isfinite(value); })) {
    ThrowFile("{}: {} holds NaN or infinity", where, name);
  }
  return values;
}

}  // namespace

quant::LoraAdapter ReadPeftAdapter(const std::filesystem::path& folder, const std::string& name,
                                   const models::Model& model) {
  const std::filesystem::path file = folder / "adapter_model.safetensors", config_file = folder / "adapter_config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    throw Error(ErrorCode::kFile, fmt::format("no adapter_model.safetensors in {}", folder.string()),
                "adapter_model.bin is a pickle: save the adapter again with safe_serialization=True");
  }
  if (!std::filesystem::is_regular_file(config_file, ignored))
    ThrowFile("no adapter_config.json in {}", folder.string());
  const PeftConfig config = ParsePeftConfig(ReadSmallFile(config_file), config_file.string());
  const std::string where = file.string();
  const Source source = OpenSafetensors({&file, 1});
  const Modules modules(model.config());
  std::map<std::string, std::map<char, std::string>> found;  // module, side, tensor
  for (const auto& entry : source.tensors) {
    const FactorName parsed = ParseName(entry.first, where);
    if (!found[parsed.module].emplace(parsed.side, entry.first).second) {
      ThrowFile("{}: two tensors are lora_{} of {}", where, parsed.side, parsed.module);
    }
  }
  if (found.empty()) ThrowFile("{}: no LoRA factors", where);
  const double query_factor = HfQueryFactor(model.config());
  quant::LoraAdapter adapter;
  adapter.name = name;
  for (const auto& [module, sides] : found) {
    const HfPiece& piece = Find(modules, module, config, where);
    if (!config.Targets(module)) ThrowFile("{}: factors of {}, which target_modules does not name", where, module);
    if (sides.size() != 2) ThrowFile("{}: {} has lora_{} only", where, module, sides.begin()->first);
    const SourceTensor &a = source.tensors.at(sides.at('A')), &b = source.tensors.at(sides.at('B'));
    const int64_t rank = config.RankOf(module), in = piece.in.size(), out = piece.out.size();
    if (a.shape != Shape{rank, in} || b.shape != Shape{out, rank}) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}: {}: lora_A {} and lora_B {}, expected {} and {}", where, module, a.shape, b.shape,
                              Shape{rank, in}, Shape{out, rank}),
                  MadeFor(config));
    }
    quant::LoraFactors factors;
    factors.scale = config.ScaleOf(module);
    // Their queries are ours times this, so is what is added to them.
    if (piece.ours.find("/query/") != std::string::npos) {
      factors.scale = static_cast<float>(static_cast<double>(factors.scale) / query_factor);
    }
    factors.a = {fmt::format("{}/{}/lora_a", name, piece.ours),
                 ReadFactor(a, sides.at('A'), where).Transpose().Contiguous()};
    // B is a projection from r features to the module's outputs: it is laid out as the module's own weight is.
    HfPiece of_b = piece;
    of_b.in = Shape{rank};
    of_b.transposed = true;
    const Tensor values = ReadFactor(b, sides.at('B'), where);
    factors.b = {fmt::format("{}/{}/lora_b", name, piece.ours),
                 ImportPiece(of_b, {&values, 1}).Contiguous().Reshape({rank, out})};
    adapter.factors[piece.ours] = std::move(factors);
  }
  RequireComplete(modules, config, config_file.string(), where,
                  [&](const std::string& module) { return found.contains(module); });
  return adapter;
}

}  // namespace octavo::weights
