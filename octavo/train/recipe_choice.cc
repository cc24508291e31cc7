#include "octavo/train/recipe_choice.h"

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/quant/recipe.h"
#include "octavo/train/options.h"

namespace octavo::train {
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
quant::Options GivenOptions(const Settings& settings) {
  quant::Options options;
  for (const std::string_view key : kRecipeOptions) {
    if (settings.table().Find(key) == nullptr || settings.IsNull(key) || !IsAskedFor(settings, key)) continue;
    if (settings.Text(key).empty()) continue;
    options.emplace_back(key, settings.Text(key));
  }
  return options;
}

}  // namespace

RecipeChoice ChooseRecipe(const Settings& settings) {
  const std::string name = settings.Text("quantization"), file = settings.Text("recipe");
  if (name.empty() && file.empty()) return {};
  if (!name.empty() && !file.empty()) ThrowUsage("give quantization=NAME or recipe=FILE, not both");
  const quant::Recipe recipe = file.empty() ? quant::FindRecipe(name, settings.Bool("use_qwix_quantization"))
                                            : quant::ReadRecipe(ReadText(file), file);
  const std::string mixed = settings.Text("quant_cfg_path");
  RecipeChoice choice;
  choice.name = file.empty() ? name : file;
  choice.text = recipe.text;
  choice.rules = quant::RuleSet(quant::RulesOf(recipe, GivenOptions(settings), mixed.empty() ? "" : ReadText(mixed)));
  return choice;
}

}  // namespace octavo::train
