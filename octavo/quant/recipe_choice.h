// From settings to rules: quantization=NAME or recipe=FILE with the options that the user gave. Everything that decides
// the rules goes into checkpoints, so that a converted model knows how it was trained and its rules can be made again
// without the files they came from. Used by trainer, converter, engine and `octavo plan`.
#pragma once

#include <string>

#include "octavo/config/settings.h"
#include "octavo/quant/recipe.h"

namespace octavo::quant {

struct RecipeChoice {
  std::string name;   // "int8", "my_recipe.yml"; empty: nothing is quantized
  std::string text;   // of the recipe file
  Options given;      // that replace defaults of the recipe
  std::string mixed;  // contents of quant_cfg_path
  RuleSet rules{{}};

  bool empty() const { return name.empty(); }
};

RecipeChoice ChooseRecipe(const Settings& settings);
// A built-in recipe with its own defaults, by the settings' use_qwix_quantization where the name has two meanings.
RecipeChoice NamedRecipe(const Settings& settings, const std::string& name);

// The same from what a checkpoint holds. `where` begins error messages.
RecipeChoice RestoreRecipe(const std::string& name, const std::string& text, const Options& given,
                           const std::string& mixed, const std::string& where);
inline RecipeChoice CopyOf(const RecipeChoice& choice) {
  return choice.empty() ? RecipeChoice() : RestoreRecipe(choice.name, choice.text, choice.given, choice.mixed, "");
}

// Of a run's settings and the recipe text that its checkpoint holds: for checkpoints that hold no more.
RecipeChoice RestoreRecipe(const Settings& settings, const std::string& text, const std::string& where);

}  // namespace octavo::quant
