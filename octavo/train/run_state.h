// A run's state in and out of checkpoints: parameters under their names, "opt/…" of the optimizer, "state/…" of the
// recipe, and the position of the data. Restoring is strict; what is missing or superfluous is listed.
#pragma once

#include <filesystem>
#include <string>

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/data/source.h"
#include "octavo/models/model.h"
#include "octavo/ops/state.h"
#include "octavo/optim/optimizer.h"
#include "octavo/quant/recipe_choice.h"
#include "octavo/weights/source.h"

namespace octavo::train {

struct RunState {
  models::Model& model;
  optim::Optimizer& optimizer;
  ops::StateStore& state;
};

// The tensors are those of the run, not copies.
CheckpointContent ContentOf(const RunState& run, int64_t step, std::string config, const quant::RecipeChoice& recipe,
                            std::string data_state);

// Parameters alone, into meta or real parameters.
void RestoreParameters(const Checkpoint& checkpoint, models::Model& model);
// Optimizer and recipe state.
void RestoreOptimizer(const Checkpoint& checkpoint, const RunState& run);

// load_parameters_path: a run (its latest checkpoint), or any model that weights/stored_model.h opens, with the tensors
// of this one; codes are dequantized.
void LoadParameters(const std::filesystem::path& path, models::Model& model);

// The one digest of parameters, optimizer and recipe state, in the order of names: what `octavo inspect` prints of a
// checkpoint of this moment.
std::string BitsOf(const RunState& run);

}  // namespace octavo::train
