// From settings to rules: quantization=NAME or recipe=FILE with the options that the user gave. The text of the recipe
// goes into checkpoints, so that a converted model knows how it was trained.
#pragma once

#include <string>

#include "octavo/config/settings.h"
#include "octavo/quant/rule.h"

namespace octavo::train {

struct RecipeChoice {
  std::string name;  // "int8", "my_recipe.yml"; empty: nothing is quantized
  std::string text;  // of the recipe file
  quant::RuleSet rules{{}};
};

RecipeChoice ChooseRecipe(const Settings& settings);

}  // namespace octavo::train
