#include "octavo/quant/recipe_choice.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"

namespace octavo::quant {
namespace {

constexpr std::string_view kRecipeOptions[] = {
    "quantization_calibration_method",
    "weight_quantization_calibration_method",
    "act_quantization_calibration_method",
    "bwd_quantization_calibration_method",
    "weight_sparsity_n",
    "weight_sparsity_m",
    "weight_sparsity_start_step",
    "weight_sparsity_update_step",
    "constant_bound_config",
    "quantization_group_size",
};

std::string ReadText(const std::string& path) {
  const MappedFile file(path);
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

// quantization_local_shard_count is not among them: a shard of the batch is one pass of its own, so inside a pass the
// count is 1.
Options GivenOptions(const Settings& settings) {
  Options options;
  for (const std::string_view key : kRecipeOptions) {
    if (settings.table().Find(key) == nullptr || settings.IsNull(key) || !settings.IsAskedFor(key)) continue;
    if (settings.Text(key).empty()) continue;
    options.emplace_back(key, settings.Text(key));
  }
  return options;
}

RecipeChoice Make(const std::string& name, const Recipe& recipe, const Options& given, const std::string& mixed) {
  RecipeChoice choice;
  choice.name = name;
  choice.text = recipe.text;
  choice.given = given;
  choice.mixed = mixed;
  choice.rules = RuleSet(RulesOf(recipe, given, mixed));
  return choice;
}

std::string MixedText(const Settings& settings) {
  const std::string path = settings.Text("quant_cfg_path");
  return path.empty() ? "" : ReadText(path);
}

}  // namespace

RecipeChoice ChooseRecipe(const Settings& settings) {
  const std::string name = settings.Text("quantization"), file = settings.Text("recipe");
  if (name.empty() && file.empty()) return {};
  if (!name.empty() && !file.empty()) ThrowUsage("give quantization=NAME or recipe=FILE, not both");
  const Recipe recipe =
      file.empty() ? FindRecipe(name, settings.Bool("use_qwix_quantization")) : ReadRecipe(ReadText(file), file);
  if (const std::string mixed = settings.Text("quant_cfg_path"); !mixed.empty() && !ReadsMixedPrecision(recipe)) {
    std::vector<std::string> readers;
    for (const Recipe& one : BuiltInRecipes()) {
      if (ReadsMixedPrecision(one)) readers.push_back("quantization=" + one.name);
    }
    throw Error(ErrorCode::kUsage,
                fmt::format("quant_cfg_path={}: {} does not read it", mixed,
                            file.empty() ? "quantization=" + name : "recipe=" + file),
                fmt::format("{} does; drop one of the two", fmt::join(readers, ", ")));
  }
  return Make(file.empty() ? name : file, recipe, GivenOptions(settings), MixedText(settings));
}

RecipeChoice RestoreRecipe(const std::string& name, const std::string& text, const Options& given,
                           const std::string& mixed, const std::string& where) {
  return Make(name, ReadRecipe(text, where), given, mixed);
}

RecipeChoice RestoreRecipe(const Settings& settings, const std::string& text, const std::string& where) {
  const std::string name = settings.Text("quantization"), file = settings.Text("recipe");
  return Make(file.empty() ? name : file, ReadRecipe(text, where), GivenOptions(settings), MixedText(settings));
}

RecipeChoice NamedRecipe(const Settings& settings, const std::string& name) {
  const std::vector<Recipe> recipes = BuiltInRecipes();
  const auto exists = [&](bool with_qwix) {
    return std::any_of(recipes.begin(), recipes.end(), [&](const Recipe& recipe) {
      return recipe.name == name && (recipe.origin == Origin::kOctavo || (recipe.origin == Origin::kQwix) == with_qwix);
    });
  };
  const bool asked = settings.Bool("use_qwix_quantization"), qwix = exists(asked) || !exists(!asked) ? asked : !asked;
  return Make(name, FindRecipe(name, qwix), {}, "");
}

}  // namespace octavo::quant
