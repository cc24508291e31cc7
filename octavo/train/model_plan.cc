#include "octavo/train/model_plan.h"

namespace octavo::train {

quant::Plan PlanOf(models::Model& model, const quant::RecipeChoice& recipe, const TrainOptions& options) {
  const int64_t rows = options.rows / options.shards;
  const auto dry_run = [&](ops::Context& context) {
    const Tensor tokens = Tensor::Meta({rows, options.length}, DType::kI32);
    models::LossParts parts;
    const models::LossOptions loss{.total_weights = 1, .vocab_tiling = options.vocab_tiling};
    models::Loss(context, model, tokens, tokens, tokens, ops::RowsOfShape(rows, options.length), loss, &parts);
  };
  quant::PlanOptions plan_options;
  plan_options.model_name = model.config().model_name;
  return quant::MakePlan(dry_run, recipe.rules, plan_options);
}

}  // namespace octavo::train
