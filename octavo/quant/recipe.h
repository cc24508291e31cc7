// Recipes: named lists of rules, one YAML file each in recipes/, with the options they take. Names are MaxText's; the
// same name may mean two things, told apart by use_qwix_quantization. A new recipe is a text file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/quant/rule.h"

namespace octavo::quant {

enum class Origin : uint8_t { kQwix, kAqt, kTransformerEngine, kOctavo };
std::string_view NameOf(Origin origin);

struct Recipe {
  std::string name;
  Origin origin = Origin::kQwix;
  std::string summary, use;
  Options options;   // with their defaults
  std::string file;  // "qwix.int8.yml"
  std::string text;  // the whole file: part of manifests, and of what `octavo cp` copies out
};

// Every built-in recipe, by origin and name.
std::vector<Recipe> BuiltInRecipes();

// quantization=NAME with or without use_qwix_quantization. A name that does not exist, or only with the other switch,
// is a usage error that lists what does.
Recipe FindRecipe(std::string_view name, bool use_qwix);
// A recipe of the user's, in the form of the built-in ones. `rules:` alone is enough.
Recipe ReadRecipe(std::string_view text, std::string_view source);

// Whether its rules come from the JSON file quant_cfg_path.
inline bool ReadsMixedPrecision(const Recipe& recipe) { return recipe.name == "intmp"; }

// The rules of a recipe. `given` replaces defaults of its options; quantization_calibration_method stands for the
// weights' and the activations' method; quantization_local_shard_count=-1 is 1. An option that the recipe does not take
// is a usage error. intmp reads the JSON text `mixed_precision` (the contents of quant_cfg_path).
std::vector<Rule> RulesOf(const Recipe& recipe, const Options& given, std::string_view mixed_precision = "");

// The JSON of intmp: module path expressions to {w_bits, a_bits, w_scale, a_scale, tile_size}, "__default__" for the
// rest. The last match wins there, so the rules come in reverse order.
std::vector<Rule> ParseMixedPrecision(std::string_view json, std::string_view source);

}  // namespace octavo::quant
