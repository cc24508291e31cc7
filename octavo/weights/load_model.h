// A model that can run, from one on disk: every parameter restored strictly, in floats or in codes, with the plan of
// its forward pass. Quantizing on load gives the bits of the converted file: both call quant::Freeze through FreezeFor.
// Used by the engine, eval, the converter's checks, and the trainer that starts from given parameters. Needs the memory
// of the loaded model and one float parameter at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/models/model.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/run.h"
#include "octavo/weights/stored_model.h"

namespace octavo::weights {

// How the parameters of sites that the recipe quantizes are held.
enum class Holding : uint8_t {
  kCodes,   // frozen: what serving runs on
  kFloats,  // as the trainer's forward pass has them: quantized anew at each use, with the same bits
};

struct LoadOptions {
  // nullptr: the model's own recipe (StoredModel::recipe). Codes that are stored already can only run under their own:
  // another one is a usage error unless `dequantize`.
  const quant::RecipeChoice* recipe = nullptr;
  bool dequantize = false;         // codes become floats and the model's own recipe is left out; a given recipe applies
  bool must_be_quantized = false;  // checkpoint_is_quantized=true: floats that a recipe quantizes are a usage error
  Holding holding = Holding::kCodes;
  std::optional<DType> dtype;     // of the computation; unset: the model's
  int64_t max_target_length = 0;  // 0: the model's
};

struct LoadedModel {
  std::unique_ptr<models::Model> model;
  std::unique_ptr<const quant::Plan> plan;  // of the forward pass; a Provider may point to it
  ops::StateStore state;                    // goes into Context::state
  std::string recipe_name, recipe_text;     // empty: floats
  // One digest of every parameter as it is held, the architecture, the recipe and the version of the numerics: equal
  // models give equal logits. A converted checkpoint and its source quantized on load have the same.
  std::string fingerprint;
  int64_t parameter_bytes = 0;
  std::vector<std::string> notes;
};

LoadedModel LoadModel(const StoredModel& stored, const LoadOptions& options, ThreadPool& pool, kernels::Isa isa);

// Parameters into a model that exists already, dequantized: the trainer's load_parameters_path. The stored model must
// have been opened with that model's configuration.
void LoadFloats(const StoredModel& stored, models::Model& model);

// The plan of the forward pass of a model under rules, by a dry run on meta tensors. Parameters must be meta still.
quant::Plan ForwardPlan(models::Model& model, const quant::RuleSet& rules);

// Which parameters of a plan are held as codes: those that one or several equal sites multiply by, and nothing else
// uses. By name.
std::map<std::string, const quant::SitePlan*> FrozenParameters(const models::Model& model, const quant::Plan& plan);

// One parameter as its site's forward pass uses it.
QArray FreezeFor(const quant::SitePlan& site, const Tensor& weight, const ops::StateStore& state, ThreadPool& pool,
                 kernels::Isa isa);

}  // namespace octavo::weights
