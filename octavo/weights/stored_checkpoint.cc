// Octavo's own checkpoints as stored models: of runs, of parameters alone, converted.
#include <memory>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/codes.h"
#include "octavo/checkpoint/strict_json.h"
#include "octavo/models/model.h"
#include "octavo/quant/quantize.h"
#include "octavo/weights/carried.h"
#include "octavo/weights/model_json.h"
#include "octavo/weights/restore.h"
#include "octavo/weights/stored_parts.h"

namespace octavo::weights {
namespace {

namespace fs = std::filesystem;

using CheckpointPointer = std::shared_ptr<const Checkpoint>;

bool IsParameter(std::string_view name) { return !name.starts_with("opt/") && !name.starts_with("state/"); }

std::optional<DType> FloatType(const std::string& type) {
  for (const DType one : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (SafetensorsType(one) == type) return one;
  }
  return std::nullopt;
}

// One of several layers of a stack: the whole stack is checked when its first layer is read, and not again.
struct SlicedTensor {
  CheckpointPointer checkpoint;
  std::string name;
  mutable Tensor whole;

  Tensor Slice(int axis, int64_t index) const {
    if (!whole.defined()) whole = checkpoint->Load(name);
    const Tensor one = whole.Select(axis, index).Clone();
    if (index == whole.dim(axis) - 1) whole = Tensor();
    return one;
  }
};

// The parameter of a tensor that holds a part of its codes; empty for others.
std::string QuantizedOf(const Manifest& manifest, const std::string& name) {
  for (const std::string_view suffix : {kCodesSuffix, kScaleSuffix, kZeroSuffix}) {
    if (!name.ends_with(suffix)) continue;
    const std::string parameter = name.substr(0, name.size() - suffix.size());
    if (manifest.quantized.contains(parameter)) return parameter;
  }
  return "";
}

QArray ReadCodes(const Checkpoint& checkpoint, const std::string& name) {
  std::optional<Tensor> zero;
  if (checkpoint.manifest().tensors.contains(name + kZeroSuffix)) zero = checkpoint.Load(name + kZeroSuffix);
  return DecodeCodes(checkpoint.folder().string(), name, checkpoint.manifest().quantized.at(name),
                     checkpoint.Load(name + kCodesSuffix), checkpoint.Load(name + kScaleSuffix), zero);
}

// A fault of the files that the restore would call a missing or superfluous parameter is named as what it is.
void CheckNames(const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  for (const auto& item : manifest.quantized) {
    if (manifest.tensors.contains(item.first)) {
      ThrowFile("{}: '{}' is there in floats and in codes", checkpoint.folder().string(), item.first);
    }
    const std::optional<DType> scale = FloatType(manifest.tensors.at(item.first + kScaleSuffix).type);
    if (!scale) ThrowFile("{}: the scale of '{}' is not of floats", checkpoint.folder().string(), item.first);
  }
}

// Every parameter as floats, and those that are codes.
Source Floats(const CheckpointPointer& checkpoint, StoredModel& model) {
  const Manifest& manifest = checkpoint->manifest();
  CheckNames(*checkpoint);
  Source source;
  source.where = checkpoint->folder().string();
  for (const auto& item : manifest.tensors) {
    const std::string& name = item.first;
    if (!IsParameter(name)) continue;
    ++model.stored_tensors;
    const Shape shape(item.second.shape);
    if (!QuantizedOf(manifest, name).empty()) {
      model.stored_bytes += static_cast<int64_t>(TensorEntry{name, item.second.type, item.second.shape}.bytes());
      continue;
    }
    const std::optional<DType> dtype = FloatType(item.second.type);
    if (!dtype) ThrowFile("{}: parameter '{}' is {}, expected floats", source.where, name, item.second.type);
    model.stored_bytes += shape.size() * SizeOf(*dtype);
    const auto sliced = std::make_shared<SlicedTensor>(SlicedTensor{checkpoint, name, {}});
    source.tensors[name] = {shape, *dtype, [checkpoint, name] { return checkpoint->Load(name); },
                            [sliced](int axis, int64_t index) { return sliced->Slice(axis, index); }};
  }
  for (const auto& item : manifest.quantized) {
    const std::string& name = item.first;
    const std::optional<Format> format = FindFormat(item.second.format);
    if (!format) ThrowFile("{}: '{}' is of the unknown format '{}'", source.where, name, item.second.format);
    const ManifestTensor& scale = manifest.tensors.at(name + kScaleSuffix);
    const auto read = [checkpoint, name] { return ReadCodes(*checkpoint, name); };
    model.codes[name] = {*format, Shape(item.second.shape), Shape(scale.shape),
                         read,    item.second.sqnr_db,      item.second.largest_error};
    source.tensors[name] = {Shape(item.second.shape), *FloatType(scale.type),
                            [read] { return quant::Dequantize(read()); }};
  }
  return source;
}

models::ModelConfig ConfigOf(const Manifest& manifest, const std::string& where) {
  if (manifest.model.empty()) return models::ModelConfigFrom(Settings::FromText(manifest.config, where + ": config"));
  return ModelFromJson(ParseStrictJson(manifest.model, where), where + ": model");
}

quant::RecipeChoice RecipeOf(const Manifest& manifest, const std::string& where) {
  if (manifest.recipe.empty()) return {};
  if (manifest.recipe_name.empty()) {  // of a version that kept only the settings
    return quant::RestoreRecipe(Settings::FromText(manifest.config, where + ": config"), manifest.recipe,
                                where + ": recipe");
  }
  return quant::RestoreRecipe(manifest.recipe_name, manifest.recipe, manifest.recipe_options, manifest.recipe_mixed,
                              where + ": recipe");
}

// Where the run was started, if its settings say where it lies from there: "/w/out/x/checkpoints/20" of a run with
// base_output_directory=out was started in /w. Empty: not known.
fs::path StartOf(const fs::path& folder, const Settings& settings) {
  std::error_code error;
  fs::path outer = fs::weakly_canonical(folder, error).parent_path();
  if (error || outer.filename() != "checkpoints") return {};
  outer = outer.parent_path().parent_path();  // without the run's name
  const std::string given = settings.Text("base_output_directory");
  fs::path base = fs::path(given.empty() ? "out" : given).lexically_normal();
  if (!base.has_filename()) base = base.parent_path();
  if (base.is_absolute() || *base.begin() == "..") return {};
  for (; !base.empty() && base != "."; base = base.parent_path(), outer = outer.parent_path()) {
    if (base.filename() != outer.filename()) return {};
  }
  return outer;
}

// A run names its tokenizer in its settings, as a path from where it was started; what is not there any more is not
// carried.
void FindTokenizer(StoredModel& model, const std::string& where) {
  if (!model.carried.empty() || model.config_text.empty()) return;
  const Settings settings = Settings::FromText(model.config_text, where);
  const fs::path path = settings.Text("tokenizer_path");
  if (path.empty() || UseTokenizer(model, path) || path.is_absolute()) return;
  if (const fs::path start = StartOf(model.path, settings); !start.empty()) UseTokenizer(model, start / path);
}

}  // namespace

StoredModel FromCheckpoint(const fs::path& folder, const OpenOptions& options) {
  const auto checkpoint = std::make_shared<const Checkpoint>(folder);
  const Manifest& manifest = checkpoint->manifest();
  const std::string where = (folder / "manifest.json").string();
  StoredModel model;
  if (manifest.kind != "train" && manifest.kind != "params" && manifest.kind != "quantized") {
    ThrowFile("{}: kind '{}' is not known", where, manifest.kind);
  }
  model.kind = manifest.kind == "train" ? StoredKind::kTrain
                                        : (manifest.quantized.empty() ? StoredKind::kParams : StoredKind::kQuantized);
  model.path = folder;
  model.step = manifest.step;
  model.config_text = manifest.config;
  model.bits = manifest.Bits();
  model.config = ConfigOf(manifest, where);
  model.recipe = RecipeOf(manifest, where);
  for (auto& [name, value] : checkpoint->LoadAll("state/")) model.state.Set(name.substr(6), value);
  model.shards = 0;
  for (const auto& item : manifest.files) model.shards += item.first.starts_with("model-") ? 1 : 0;
  for (const auto& item : manifest.carried) {
    checkpoint->LoadCarried(item.first);  // checked here: text/ reads the file itself
    model.carried.push_back(CarriedFrom(item.first, folder / item.first));
    model.tokenizer = folder;
    if (item.first == "tokenizer.gguf") model.tokenizer = folder / item.first;
  }
  FindTokenizer(model, where + ": config");
  const Source stored = Floats(checkpoint, model);
  const models::ModelConfig& config = options.config != nullptr ? *options.config : model.config;
  const std::unique_ptr<models::Model> meta = models::MakeModel(config);
  model.floats = MatchParameters(stored, meta->parameters(),
                                 {.param_scan_axis = static_cast<int>(config.param_scan_axis),
                                  .convert_floats = model.kind != StoredKind::kTrain || options.config != nullptr});
  return model;
}

}  // namespace octavo::weights
