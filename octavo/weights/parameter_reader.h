// The parameters of a stored model one at a time, as a run under a recipe holds them. The one path from stored values
// to codes, behind LoadModel and the converter: so that quantizing on load and converting give the same bits. Holds the
// model with meta parameters and its forward plan; keeps no values.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "octavo/weights/load_model.h"

namespace octavo::weights {

class ParameterReader {
 public:
  // `stored` must outlive the reader, and a recipe that is given.
  ParameterReader(const StoredModel& stored, const LoadOptions& options, ThreadPool& pool, kernels::Isa isa);

  const StoredModel& stored() const { return stored_; }
  const quant::RecipeChoice* recipe() const { return recipe_; }  // null: floats
  models::Model& model() { return *model_; }
  const models::Model& model() const { return *model_; }
  const quant::Plan& plan() const { return *plan_; }

  // Whether the parameter is held as codes, and by which site. Codes that are stored already have a site too.
  const quant::SitePlan* SiteOf(const std::string& name) const;
  bool HoldsCodes(const std::string& name) const { return SiteOf(name) != nullptr; }
  bool IsStoredAsCodes(const std::string& name) const;
  bool ReadsCodes(const std::string& name) const;  // what Read gives

  // Floats of the stored type.
  Tensor ReadStored(const std::string& name) const;
  // Stored codes as they are, else the floats frozen.
  QArray ReadCodes(const std::string& name) const;
  QArray FreezeStored(const std::string& name, const Tensor& stored) const;
  // As the loaded model holds it: floats have the parameter's type.
  ParameterValue Read(const std::string& name) const;

  // Whether several threads may Read at once: parameters that are only copied and checked, each from its own place.
  bool ReadsTogether() const;
  ThreadPool& pool() const { return pool_; }

  // State that the forward pass of frozen weights needs: no masks, nothing of gradients.
  ops::StateStore ServingState() const;

  std::unique_ptr<models::Model> TakeModel() { return std::move(model_); }
  std::unique_ptr<const quant::Plan> TakePlan() { return std::move(plan_); }

 private:
  const StoredModel& stored_;
  LoadOptions options_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  const quant::RecipeChoice* recipe_;
  std::unique_ptr<models::Model> model_;
  std::unique_ptr<const quant::Plan> plan_;
  std::map<std::string, const quant::SitePlan*> frozen_;
};

// All that a reader gives, with its model and plan, which it is left without.
LoadedModel LoadModel(ParameterReader& reader);

}  // namespace octavo::weights
