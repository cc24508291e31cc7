#include "octavo/weights/stored_model.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/checkpoint/checkpoint_store.h"
#include "octavo/checkpoint/llama2c.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/models/model.h"
#include "octavo/weights/carried.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/gguf.h"
#include "octavo/weights/llama2c.h"
#include "octavo/weights/restore.h"
#include "octavo/weights/stored_parts.h"

namespace octavo::weights {
namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string StepsHint(const fs::path& folder, int64_t last) {
  return fmt::format("use {} or {}", (folder / std::to_string(last)).string(), (folder / "latest").string());
}

[[noreturn]] void FailRun(const fs::path& run) {
  const CheckpointStore store(run / "checkpoints", {});
  const std::vector<int64_t> steps = store.Steps();
  if (steps.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("{} is a run; it has no checkpoint yet", run.string()),
                "train it further, or give a checkpoint");
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("{} is a run; its checkpoints are {}", run.string(), fmt::join(steps, ", ")),
              StepsHint(store.folder(), steps.back()));
}

[[noreturn]] void FailOrbax(const fs::path& folder) {
  throw Error(ErrorCode::kFile,
              fmt::format("{} is an Orbax OCDBT checkpoint, which Octavo does not read", folder.string()),
              "export it: python3 -m maxtext.checkpoint_conversion.to_huggingface …, or save with "
              "checkpoint_storage_use_ocdbt=False");
}

[[noreturn]] void FailPickle(const fs::path& file) {
  throw Error(ErrorCode::kFile,
              fmt::format("{} is a pickle; Octavo never runs code from a model file", file.filename().string()),
              "use the .safetensors file of the same model");
}

bool IsRun(const fs::path& folder) { return IsFolder(folder / "checkpoints") && Exists(folder / "config.yml"); }

bool IsOrbax(const fs::path& folder) {
  return Exists(folder / "manifest.ocdbt") || Exists(folder / "_CHECKPOINT_METADATA") || Exists(folder / "_METADATA");
}

// A folder one above what was meant: the checkpoints of a run, a step of Orbax.
void RefuseFoldersAround(const fs::path& folder) {
  if (IsOrbax(folder / "items")) FailOrbax(folder / "items");
  const CheckpointStore store(folder, {});
  const std::vector<int64_t> steps = store.Steps();
  if (steps.empty() || !IsCheckpoint(store.PathOf(steps.back()))) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("{} is a folder of checkpoints; its checkpoints are {}", folder.string(), fmt::join(steps, ", ")),
      StepsHint(folder, steps.back()));
}

std::vector<fs::path> SafetensorsIn(const fs::path& path) {
  if (!IsFolder(path)) return {path};
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool IsModelFile(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  if (path.extension() == ".gguf") return true;
  return path.extension() == ".bin" && LooksLikeLlama2c(MappedFile(path).bytes());
}

StoredModel OpenMaxText(const fs::path& path, const OpenOptions& options) {
  if (options.config == nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} holds safetensors files without config.json or manifest.json", path.string()),
                "say which model it is: model_name=…, or the keys of its configuration");
  }
  const std::vector<fs::path> files = SafetensorsIn(path);
  StoredModel model;
  model.kind = StoredKind::kMaxText;
  model.path = path;
  model.config = *options.config;
  if (IsFolder(path)) {
    UseTokenizer(model, path);
  } else {
    UseTokenizerBeside(model);
  }
  model.shards = static_cast<int64_t>(files.size());
  const Source tree = OpenSafetensors(files);
  model.stored_tensors = static_cast<int64_t>(tree.tensors.size());
  const std::unique_ptr<models::Model> meta = models::MakeModel(model.config);
  model.floats =
      MatchParameters(tree, meta->parameters(),
                      {.param_scan_axis = static_cast<int>(model.config.param_scan_axis), .convert_floats = true});
  return model;
}

StoredModel OpenFile(const fs::path& path, const OpenOptions& options) {
  if (path.extension() == ".safetensors") return OpenMaxText(path, options);
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() >= 4 && std::string_view(reinterpret_cast<const char*>(bytes.data()), 4) == "GGUF") {
    return FromForeign(OpenGguf(path), StoredKind::kGguf, path);
  }
  if (LooksLikePickle(bytes)) FailPickle(path);
  if (path.extension() == ".bin") return FromForeign(OpenLlama2c(path), StoredKind::kLlama2c, path);
  throw Error(ErrorCode::kFile, fmt::format("{} is no model that Octavo knows", path.string()),
              "expected a checkpoint, a model folder, a .gguf file, a .safetensors file or a llama2.c .bin file");
}

// What scores are multiplied by outside of the kernels.
double ScoreScale(const models::ModelConfig& config) {
  return config.query_pre_attn_scalar != 0 ? config.query_pre_attn_scalar : 1;
}

// Models from elsewhere divide scores by sqrt(head_dim), MaxText's llama has that in the query kernels.
void MoveScoreScale(StoredModel& model, double factor) {
  if (factor == 1) return;
  for (auto& item : model.floats.tensors) {
    if (item.first.find("/query/") == std::string::npos) continue;
    SourceTensor& tensor = item.second;
    tensor.dtype = DType::kF32;
    tensor.read = [read = tensor.read, factor] {
      Tensor values = ConvertFloats(read(), DType::kF32).Clone();
      for (float& value : values.MutableValues<float>()) value = static_cast<float>(value * factor);
      return values;
    };
    model.codes.erase(item.first);
  }
}

// The parameters against the model that the caller has, which may compute in another way but has the same tensors.
void UseConfig(StoredModel& model, const models::ModelConfig& config) {
  MoveScoreScale(model, ScoreScale(model.config) / ScoreScale(config));
  model.config = config;
  const std::unique_ptr<models::Model> meta = models::MakeModel(config);
  model.floats = MatchParameters(model.floats, meta->parameters(), {.convert_floats = true});
}

StoredModel Open(const fs::path& path, const OpenOptions& options) {
  if (!Exists(path)) throw Error(ErrorCode::kFile, fmt::format("{}: no such file or folder", path.string()));
  if (!IsFolder(path)) return OpenFile(path, options);
  if (Exists(path / "config.json")) return FromForeign(OpenHf(path), StoredKind::kHf, path);
  if (IsCheckpoint(path)) return FromCheckpoint(path, options);
  if (IsRun(path)) FailRun(path);
  if (IsOrbax(path)) FailOrbax(path);
  if (SafetensorsIn(path).empty()) ShardedSafetensors{path};  // says what it holds instead
  return OpenMaxText(path, options);
}

}  // namespace

fs::path ModelFileIn(const fs::path& path) {
  std::error_code error;
  if (!IsFolder(path) || Exists(path / "config.json") || IsCheckpoint(path) || IsRun(path) || IsOrbax(path) ||
      !SafetensorsIn(path).empty()) {
    return path;
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (IsModelFile(it->path())) files.push_back(it->path());
  }
  if (files.empty()) {
    RefuseFoldersAround(path);
    return path;
  }
  if (files.size() == 1) return files[0];
  std::sort(files.begin(), files.end());
  std::vector<std::string> names;
  for (const fs::path& file : files) names.push_back(file.filename().string());
  throw Error(ErrorCode::kUsage,
              fmt::format("{} holds {} models: {}", path.string(), names.size(), fmt::join(names, ", ")),
              fmt::format("name one of them: {}", files[0].string()));
}

std::string_view NameOf(StoredKind kind) {
  constexpr std::string_view kNames[] = {"octavo train", "octavo",   "octavo quantized",   "hf safetensors",
                                         "gguf",         "llama2.c", "maxtext safetensors"};
  return kNames[static_cast<size_t>(kind)];
}

StoredModel OpenStored(const fs::path& path, const OpenOptions& options) {
  // "out/x/checkpoints/latest" is printed and kept as what it points to.
  std::error_code error;
  fs::path real = path;
  if (!real.has_filename()) real = real.parent_path();
  if (fs::is_symlink(real, error)) {
    const fs::path target = fs::read_symlink(real, error);
    if (!error) real = target.is_absolute() ? target : real.parent_path() / target;
  }
  real = ModelFileIn(real);
  StoredModel model = Open(real, options);
  if (options.config != nullptr && model.kind != StoredKind::kMaxText) UseConfig(model, *options.config);
  const fs::path shown = real.filename() == "checkpoints" ? real.parent_path() : real;
  model.name = shown.filename().string();
  if (model.stored_bytes == 0) {
    for (const auto& item : model.floats.tensors)
      model.stored_bytes += item.second.shape.size() * SizeOf(item.second.dtype);
  }
  return model;
}

}  // namespace octavo::weights
