#include "octavo/weights/parameter_reader.h"

#include <algorithm>
#include <set>

#include "octavo/base/error.h"
#include "octavo/quant/provider.h"
#include "octavo/weights/convert_floats.h"

namespace octavo::weights {
namespace {

constexpr int64_t kPlanLength = 8;  // tokens of the dry run; the forward plan does not depend on it

Tensor As(const Tensor& value, DType dtype) {
  return value.dtype() == dtype ? value.Contiguous() : ConvertFloats(value, dtype);
}

// The recipe that the model will run under; null: floats.
const quant::RecipeChoice* RecipeFor(const StoredModel& stored, const LoadOptions& options) {
  if (options.recipe == nullptr) return options.dequantize || stored.recipe.empty() ? nullptr : &stored.recipe;
  const quant::RecipeChoice& given = *options.recipe;
  if (stored.quantized() && !options.dequantize) {
    const quant::RecipeChoice& own = stored.recipe;
    if (given.text != own.text || given.given != own.given || given.mixed != own.mixed) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} is quantized by {}; it cannot run under {}", stored.path.string(), own.name,
                              given.empty() ? "no recipe" : given.name),
                  "leave the recipe out, or convert the model it was made from");
    }
  }
  return given.empty() ? nullptr : &given;
}

models::ModelConfig ConfigFor(const StoredModel& stored, const LoadOptions& options) {
  models::ModelConfig config = stored.config;
  if (options.dtype) config.dtype = *options.dtype;
  if (options.max_target_length > 0) config.max_target_length = options.max_target_length;
  // Parameters in the type of the computation, so that no use has to convert them; never narrower than stored.
  const bool narrow = std::all_of(stored.floats.tensors.begin(), stored.floats.tensors.end(),
                                  [](const auto& item) { return item.second.dtype == DType::kBF16; });
  config.weight_dtype = narrow && config.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  return config;
}

// Averages over batches, and AQT's tiles, are no part of a frozen site's way: such weights stay floats and are
// quantized at each use, as the trainer does.
bool StaysFloat(const quant::SitePlan& site) {
  if (!site.treatment) return false;
  const auto* qwix = std::get_if<quant::QwixTreatment>(&*site.treatment);
  const auto* aqt = std::get_if<quant::AqtTreatment>(&*site.treatment);
  return (qwix != nullptr && qwix->static_activation) || (aqt != nullptr && aqt->tile > 0);
}

bool ServesState(const std::string& name) {
  const size_t slash = name.rfind('/');
  const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
  return !last.starts_with("sparsity_") && !last.starts_with("kernel_") && !last.starts_with("output_grad_");
}

}  // namespace

quant::Plan ForwardPlan(models::Model& model, const quant::RuleSet& rules) {
  const auto dry_run = [&](ops::Context& context) {
    const Tensor tokens = Tensor::Meta({1, kPlanLength}, DType::kI32);
    const ops::Var hidden = models::Forward(context, model, tokens, ops::RowsOfShape(1, kPlanLength));
    model.Logits(context, hidden);
  };
  quant::PlanOptions options;
  options.model_name = model.config().model_name;
  options.backward = false;
  return quant::MakePlan(dry_run, rules, options);
}

std::map<std::string, const quant::SitePlan*> FrozenParameters(const models::Model& model, const quant::Plan& plan) {
  std::map<std::string, const quant::SitePlan*> frozen;
  std::set<std::string> refused;
  for (const quant::SitePlan& site : plan.sites) {
    if (site.weight.empty()) continue;
    const ops::Parameter* parameter = model.parameter_set().Find(site.weight);
    // The table of the embedding is looked up in floats, and a tied head uses it turned around.
    const Shape& used = site.weight_is_lhs ? site.lhs : site.rhs;
    const bool plain =
        parameter != nullptr && parameter->shape() == used && !site.weight.starts_with("token_embedder/");
    const bool twice = !frozen.emplace(site.weight, &site).second;
    if (!plain || twice || !quant::FreezesWeight(site) || StaysFloat(site)) refused.insert(site.weight);
  }
  for (const std::string& name : refused) frozen.erase(name);
  return frozen;
}

QArray FreezeFor(const quant::SitePlan& site, const Tensor& weight, const ops::StateStore& state, ThreadPool& pool,
                 kernels::Isa isa) {
  kernels::Workspace workspace;
  quant::Run run{pool, isa, workspace};
  run.arithmetic.site = site.site.path;
  return quant::Freeze(run, site, As(weight, site.weight_dtype), &state);
}

ParameterReader::ParameterReader(const StoredModel& stored, const LoadOptions& options, ThreadPool& pool,
                                 kernels::Isa isa)
    : stored_(stored), options_(options), pool_(pool), isa_(isa), recipe_(RecipeFor(stored, options)) {
  if (options.must_be_quantized && !stored.quantized()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is not quantized but checkpoint_is_quantized=true", stored.path.string()),
                "drop the flag to quantize on load (same bits), or convert first");
  }
  model_ = models::MakeModel(ConfigFor(stored, options));
  const quant::RuleSet none{{}};
  plan_ = std::make_unique<const quant::Plan>(ForwardPlan(*model_, recipe_ == nullptr ? none : recipe_->rules));
  frozen_ = FrozenParameters(*model_, *plan_);
  for (const auto& item : stored.codes) {
    if (options.dequantize || frozen_.contains(item.first)) continue;
    throw Error(ErrorCode::kFile,
                fmt::format("{}: '{}' is stored as codes, but its recipe quantizes no such weight",
                            stored.path.string(), item.first),
                "the recipe in the checkpoint belongs to another model");
  }
}

const quant::SitePlan* ParameterReader::SiteOf(const std::string& name) const {
  const auto found = frozen_.find(name);
  return found == frozen_.end() ? nullptr : found->second;
}

bool ParameterReader::IsStoredAsCodes(const std::string& name) const {
  return !options_.dequantize && stored_.codes.contains(name);
}

bool ParameterReader::ReadsCodes(const std::string& name) const {
  return IsStoredAsCodes(name) || (HoldsCodes(name) && options_.holding == Holding::kCodes);
}

Tensor ParameterReader::ReadStored(const std::string& name) const { return stored_.floats.tensors.at(name).read(); }

QArray ParameterReader::FreezeStored(const std::string& name, const Tensor& stored) const {
  const DType dtype = model_->config().weight_dtype;
  return FreezeFor(*SiteOf(name), As(stored, dtype), stored_.state, pool_, isa_);
}

QArray ParameterReader::ReadCodes(const std::string& name) const {
  if (IsStoredAsCodes(name)) return stored_.codes.at(name).read();
  return FreezeStored(name, ReadStored(name));
}

ParameterValue ParameterReader::Read(const std::string& name) const {
  if (ReadsCodes(name)) return ReadCodes(name);
  return As(ReadStored(name), model_->config().weight_dtype);
}

bool ParameterReader::ReadsTogether() const {
  return IsOctavo(stored_.kind) && std::ranges::all_of(model_->parameters(), [&](const ops::Parameter* parameter) {
           const SourceTensor& stored = stored_.floats.tensors.at(parameter->name);
           return stored.stack.empty() && (!ReadsCodes(parameter->name) || IsStoredAsCodes(parameter->name));
         });
}

ops::StateStore ParameterReader::ServingState() const {
  ops::StateStore kept;
  if (recipe_ == nullptr) return kept;
  for (const auto& item : stored_.state.values()) {
    if (options_.holding == Holding::kFloats || ServesState(item.first)) kept.Set(item.first, item.second);
  }
  return kept;
}

}  // namespace octavo::weights
