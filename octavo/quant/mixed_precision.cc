// The JSON files of intmp.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/quant/recipe.h"

namespace octavo::quant {
namespace {

using Json = nlohmann::ordered_json;

struct LayerConfig {
  std::optional<int> weight_bits, activation_bits;
  double weight_scale = 1, activation_scale = 1;
  int64_t tile = -1;
};

std::optional<int> ReadBits(const Json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer() || (value.get<int64_t>() != 4 && value.get<int64_t>() != 8)) {
    ThrowUsage("{}: expected 4, 8 or null, found {}", where, value.dump());
  }
  return value.get<int>();
}

// Bits come from the file, the rest from what the entry inherits.
LayerConfig ReadEntry(const Json& entry, const std::string& where, LayerConfig config) {
  if (!entry.is_object()) ThrowUsage("{}: expected an object", where);
  for (const auto& [key, value] : entry.items()) {
    const std::string place = fmt::format("{}: {}", where, key);
    if (key == "w_bits") {
      config.weight_bits = ReadBits(value, place);
    } else if (key == "a_bits") {
      config.activation_bits = ReadBits(value, place);
    } else if (key == "w_scale" || key == "a_scale") {
      const double scale = value.is_number() ? value.get<double>() : 0;
      if (!(scale > 0 && scale <= 1)) ThrowUsage("{}: expected a number in (0, 1], found {}", place, value.dump());
      (key == "w_scale" ? config.weight_scale : config.activation_scale) = scale;
    } else if (key == "tile_size") {
      const int64_t tile = value.is_number_integer() ? value.get<int64_t>() : 0;
      if (tile != -1 && tile < 1)
        ThrowUsage("{}: expected a whole number of elements or -1, found {}", place, value.dump());
      config.tile = tile;
    } else {
      const std::string_view known[] = {"w_bits", "a_bits", "w_scale", "a_scale", "tile_size"};
      throw Error(ErrorCode::kUsage, fmt::format("{}: unknown key '{}'", where, key),
                  fmt::format("did you mean '{}'?", NearestNames(key, known, 1).front()));
    }
  }
  return config;
}

std::optional<Format> FormatOf(std::optional<int> bits) {
  if (!bits) return std::nullopt;
  return *bits == 4 ? Format::kInt4 : Format::kInt8;
}

Rule MakeRule(const std::string& path, const LayerConfig& config, std::string_view source) {
  Rule rule;
  rule.module_path = path;
  rule.ops = {ops::OpKind::kDotGeneral, ops::OpKind::kEinsum};
  rule.only_weights = true;
  rule.where = source;
  if (config.weight_bits || config.activation_bits) {
    AqtTreatment aqt;
    aqt.weight = FormatOf(config.weight_bits);
    aqt.activation = FormatOf(config.activation_bits);
    aqt.weight_clip = config.weight_scale;
    aqt.activation_clip = config.activation_scale;
    aqt.tile = config.tile == -1 ? 0 : config.tile;
    aqt.forward_codes = true;
    rule.treatment = aqt;
  }
  return rule;
}

// The nesting depth, bounded before the parser sees the text.
void CheckDepth(std::string_view json, std::string_view source) {
  int depth = 0;
  for (char c : json) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > 16) ThrowUsage("{}: JSON nested deeper than 16 levels", source);
  }
}

}  // namespace

std::vector<Rule> ParseMixedPrecision(std::string_view text, std::string_view source) {
  CheckDepth(text, source);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    ThrowUsage("{}: {}", source, error.what());
  }
  if (!json.is_object()) ThrowUsage("{}: expected an object of module paths", source);
  LayerConfig fallback;
  if (const auto at = json.find("__default__"); at != json.end()) {
    fallback = ReadEntry(*at, fmt::format("{}: __default__", source), {});
  }
  std::vector<Rule> rules;
  for (const auto& [path, entry] : json.items()) {
    if (path == "__default__") continue;
    rules.push_back(MakeRule(path, ReadEntry(entry, fmt::format("{}: {}", source, path), fallback), source));
  }
  std::reverse(rules.begin(), rules.end());  // the last match wins in the file, the first in a list of rules
  // What no expression names gets the default. Upstream fails there when the file has none; here it stays in float.
  rules.push_back(MakeRule("decoder/.*layers.*", fallback, source));
  return rules;
}

}  // namespace octavo::quant
