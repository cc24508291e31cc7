// The expert blocks of models, from their configuration: which router, which path through the experts. Used by the
// models with experts.
#pragma once

#include "octavo/models/model_config.h"
#include "octavo/nn/moe.h"

namespace octavo::models {

// Sizes, activation, router and path. A usage error for a capacity_factor with grouped products, which drop nothing,
// and for a scoring function that is not known.
nn::MoeOptions MoeOptionsOf(const ModelConfig& config);

}  // namespace octavo::models
