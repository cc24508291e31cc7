// The plan of a model under a recipe, by a dry run of one shard's loss on meta tensors. Used by the trainer before its
// first step and by `octavo plan`, which prints it.
#pragma once

#include "octavo/models/model.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/recipe_choice.h"
#include "octavo/train/options.h"

namespace octavo::train {

quant::Plan PlanOf(models::Model& model, const quant::RecipeChoice& recipe, const TrainOptions& options);

}  // namespace octavo::train
