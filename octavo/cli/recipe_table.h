// One line per recipe, from the data that the code reads: for `octavo ls recipes` and docs/recipes.md.
#pragma once

#include <string>
#include <vector>

#include "octavo/quant/recipe.h"

namespace octavo {

struct RecipeLine {
  std::string name, origin, with_qwix;
  std::string weight, activation, gradient;  // formats
  std::string scaling;                       // granularity and where scales come from
  std::string extent;                        // what couples tokens in the forward pass
  std::string ops, use, options;
};

RecipeLine DescribeRecipe(const quant::Recipe& recipe);

// The whole of docs/recipes.md.
std::string RecipesMarkdown(const std::vector<quant::Recipe>& recipes);

}  // namespace octavo
