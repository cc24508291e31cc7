#include "octavo/train/run_state.h"

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/restore.h"

namespace octavo::train {
namespace {

namespace fs = std::filesystem;

bool IsParameter(std::string_view name) { return !name.starts_with("opt/") && !name.starts_with("state/"); }

weights::Source ParametersOf(const Checkpoint& checkpoint) {
  weights::Source source;
  source.where = checkpoint.folder().string();
  for (const auto& item : checkpoint.manifest().tensors) {
    const std::string& name = item.first;
    if (!IsParameter(name)) continue;
    const std::optional<DType> dtype = [&]() -> std::optional<DType> {
      for (const DType one : {DType::kF32, DType::kBF16, DType::kF16}) {
        if (SafetensorsType(one) == item.second.type) return one;
      }
      return std::nullopt;
    }();
    if (!dtype) ThrowFile("{}: parameter '{}' is {}, expected floats", source.where, name, item.second.type);
    source.tensors[name] = {Shape(item.second.shape), *dtype, [&checkpoint, name] { return checkpoint.Load(name); }};
  }
  return source;
}

}  // namespace

CheckpointContent ContentOf(const RunState& run, int64_t step, std::string config, const quant::RecipeChoice& recipe,
                            std::string data_state) {
  CheckpointContent content;
  content.step = step;
  content.config = std::move(config);
  content.recipe = recipe.text;
  content.recipe_name = recipe.name;
  content.recipe_mixed = recipe.mixed;
  content.recipe_options = recipe.given;
  content.data_state = std::move(data_state);
  for (const ops::Parameter* parameter : run.model.parameters()) {
    content.parameters.emplace_back(parameter->name, parameter->tensor());
  }
  content.optimizer = run.optimizer.State();
  for (const auto& [name, value] : run.state.values()) content.state.emplace_back("state/" + name, value);
  return content;
}

void RestoreParameters(const Checkpoint& checkpoint, models::Model& model) {
  weights::RestoreParameters(ParametersOf(checkpoint), model.parameters(),
                             {.param_scan_axis = static_cast<int>(model.config().param_scan_axis)});
}

void RestoreOptimizer(const Checkpoint& checkpoint, const RunState& run) {
  if (checkpoint.manifest().kind != "train") {
    throw Error(ErrorCode::kFile,
                fmt::format("{} holds parameters only; a run cannot go on from it", checkpoint.folder().string()),
                "start a run with load_parameters_path=… instead");
  }
  run.optimizer.Restore(checkpoint.LoadAll("opt/"));
  for (auto& [name, value] : checkpoint.LoadAll("state/")) run.state.Set(name.substr(6), value);
}

void LoadParameters(const fs::path& path, models::Model& model) {
  if (!fs::exists(path)) {
    throw Error(ErrorCode::kFile, fmt::format("load_parameters_path={}: no such file or folder", path.string()));
  }
  const fs::path latest = path / "checkpoints/latest";
  const weights::StoredModel stored =
      weights::OpenStored(fs::exists(latest) ? latest : path, {.config = &model.config()});
  weights::LoadFloats(stored, model);
}

std::string BitsOf(const RunState& run) {
  const CheckpointContent content = ContentOf(run, 0, "", {}, "");
  Manifest manifest;
  for (const NamedTensors* group : {&content.parameters, &content.optimizer, &content.state}) {
    for (const auto& [name, tensor] : *group) {
      const Tensor packed = tensor.Contiguous();
      const Shape& shape = packed.shape();
      manifest.tensors[name] = {"",
                                std::string(SafetensorsType(packed.dtype())),
                                {shape.begin(), shape.end()},
                                DigestHex({packed.RawData(), static_cast<size_t>(packed.bytes())})};
    }
  }
  return manifest.Bits();
}

}  // namespace octavo::train
