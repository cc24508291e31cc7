#include "octavo/quant/recipe.h"

#include <algorithm>
#include <array>

#include "octavo/base/embedded_file.h"
#include "octavo/base/error.h"
#include "octavo/base/nearest.h"

namespace octavo {
std::span<const EmbeddedFile> RecipeFiles();  // generated from recipes/*.yml
}

namespace octavo::quant {
namespace {

constexpr std::array<std::string_view, 4> kOrigins = {"qwix", "aqt", "te", "octavo"};

Options ReadOptions(const Yaml& map) {
  Options options;
  for (const auto& [name, value] : map.fields()) {
    options.emplace_back(name, value.is_null() ? "" : value.Text(name));
  }
  return options;
}

std::string Names(std::span<const Recipe> recipes, bool use_qwix) {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : recipes) {
    if (recipe.origin == Origin::kOctavo || (recipe.origin == Origin::kQwix) == use_qwix) names.push_back(recipe.name);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

void SetOption(Options& options, const std::string& name, const std::string& value, const Recipe& recipe) {
  const auto at =
      std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.first == name; });
  if (at != options.end()) {
    at->second = value;
    return;
  }
  std::vector<std::string> known;
  for (const auto& [option, otherwise] : recipe.options) known.push_back(option);
  throw Error(ErrorCode::kUsage, fmt::format("recipe {} has no option '{}'", recipe.name, name),
              known.empty() ? "it takes none" : fmt::format("it takes {}", fmt::join(known, ", ")));
}

}  // namespace

std::string_view NameOf(Origin origin) { return kOrigins[static_cast<size_t>(origin)]; }

Recipe ReadRecipe(std::string_view text, std::string_view source) {
  const Yaml yaml = Yaml::Parse(text, source);
  Recipe recipe;
  recipe.name = source;
  recipe.origin = Origin::kOctavo;
  recipe.file = source;
  recipe.text = text;
  bool has_rules = false;
  for (const auto& [key, value] : yaml.fields()) {
    if (key == "name") {
      recipe.name = value.Text(key);
    } else if (key == "origin") {
      const auto at = std::find(kOrigins.begin(), kOrigins.end(), value.Text(key));
      if (at == kOrigins.end()) ThrowUsage("{}: origin: expected one of {}", value.Where(), fmt::join(kOrigins, " "));
      recipe.origin = static_cast<Origin>(at - kOrigins.begin());
    } else if (key == "summary") {
      recipe.summary = value.Text(key);
    } else if (key == "use") {
      recipe.use = value.Text(key);
    } else if (key == "options") {
      recipe.options = ReadOptions(value);
    } else if (key == "rules") {
      has_rules = true;
    } else {
      throw Error(ErrorCode::kUsage, fmt::format("{}: unknown key '{}' in a recipe", value.Where(), key),
                  "a recipe has name, origin, summary, use, options and rules");
    }
  }
  if (!has_rules) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: a recipe needs rules", source),
                yaml.kind() == Yaml::Kind::kList
                    ? "put the list under `rules:`; octavo cp qwix.int8 FILE copies one out"
                    : "octavo cp qwix.int8 FILE copies one out");
  }
  return recipe;
}

std::vector<Recipe> BuiltInRecipes() {
  std::vector<Recipe> recipes;
  for (const EmbeddedFile& file : RecipeFiles()) recipes.push_back(ReadRecipe(file.text, file.name));
  std::sort(recipes.begin(), recipes.end(),
            [](const Recipe& a, const Recipe& b) { return std::pair(a.origin, a.name) < std::pair(b.origin, b.name); });
  return recipes;
}

Recipe FindRecipe(std::string_view name, bool use_qwix) {
  const std::vector<Recipe> recipes = BuiltInRecipes();
  const Recipe* other = nullptr;
  for (const Recipe& recipe : recipes) {
    if (recipe.name != name) continue;
    if (recipe.origin == Origin::kOctavo || (recipe.origin == Origin::kQwix) == use_qwix) return recipe;
    other = &recipe;
  }
  if (other != nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("quantization='{}' exists only {} use_qwix_quantization=true", name,
                            other->origin == Origin::kQwix ? "with" : "without"),
                fmt::format("{} it: {}", use_qwix ? "with" : "without", Names(recipes, use_qwix)));
  }
  throw Error(ErrorCode::kUsage, fmt::format("quantization='{}' is not a recipe", name),
              fmt::format("known: {} (octavo ls recipes)", Names(recipes, use_qwix)));
}

std::vector<Rule> RulesOf(const Recipe& recipe, const Options& given, std::string_view mixed_precision) {
  Options options = recipe.options;
  for (const auto& [name, value] : given) {
    if (name == "quantization_calibration_method") {
      SetOption(options, "weight_quantization_calibration_method", value, recipe);
      SetOption(options, "act_quantization_calibration_method", value, recipe);
    } else {
      SetOption(options, name, name == "quantization_local_shard_count" && value == "-1" ? "1" : value, recipe);
    }
  }
  if (recipe.origin == Origin::kQwix) {
    for (const auto& [name, value] : options) {
      if (name == "quantization_local_shard_count" && value == "0") {
        throw Error(ErrorCode::kUsage,
                    "quantization_local_shard_count=0 has no meaning with use_qwix_quantization=true",
                    "expected 1 or more tiles of the weight gradient; 0 (a float weight gradient) exists without Qwix");
      }
    }
  }
  if (ReadsMixedPrecision(recipe)) {
    if (mixed_precision.empty()) {
      throw Error(ErrorCode::kUsage, "quantization=intmp needs quant_cfg_path", "a JSON file of bits per module path");
    }
    return ParseMixedPrecision(mixed_precision, "quant_cfg_path");
  }
  const Yaml yaml = Yaml::Parse(recipe.text, recipe.file);
  return ParseRules(*yaml.Find("rules"), options);
}

}  // namespace octavo::quant
