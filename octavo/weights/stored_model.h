// The one door to every model on disk: an Octavo checkpoint (of a run, parameters only, or converted), a model folder
// of the Hugging Face form, a GGUF file, a llama2.c file, safetensors with a MaxText tree. Opening reads headers only
// and insists that names, shapes and types are those of the model; values are read one parameter at a time. Used by
// trainer, converter, engine and tools; load_model.h makes a runnable model of it. Tokenizers and templates are only
// located here: text/ opens them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "octavo/models/model_config.h"
#include "octavo/ops/state.h"
#include "octavo/quant/recipe_choice.h"
#include "octavo/tensor/qarray.h"
#include "octavo/weights/source.h"

namespace octavo::weights {

enum class StoredKind : uint8_t {
  kTrain,      // a checkpoint of a run: float masters, optimizer, state
  kParams,     // a checkpoint of parameters alone, in floats
  kQuantized,  // a converted checkpoint: codes where its recipe quantizes
  kHf,
  kGguf,
  kLlama2c,
  kMaxText,  // safetensors files with the names of a MaxText tree; needs a configuration from outside
};
std::string_view NameOf(StoredKind kind);  // "octavo train", "hf safetensors", "gguf" …
constexpr bool IsOctavo(StoredKind kind) { return kind <= StoredKind::kQuantized; }

// The codes of one parameter, in its own axes.
struct StoredCodes {
  Format format = Format::kInt8;
  Shape shape;
  Shape scale_shape;             // empty rank for foreign files, where it is known only after reading
  std::function<QArray()> read;  // digest checked
  // Against the floats that the codes were made from, as the converter measured it; foreign codes are their own source.
  double sqnr_db = 999, largest_error = 0;
};

// A file that belongs to the model and goes along when it is converted: tokenizer.json, chat_template.jinja …
struct CarriedFile {
  std::string name;                   // in the target
  std::filesystem::path path;         // empty when it is a part of another file
  std::function<std::string()> read;  // its bytes
};

struct StoredModel {
  StoredKind kind = StoredKind::kParams;
  std::filesystem::path path;  // what was opened: a link or a folder of links is resolved
  std::string name;            // for printed lines: "Qwen3-0.6B"
  models::ModelConfig config;

  // Every parameter by our name, unrolled, in our layout, as floats of the stored type. What is stored as codes is
  // dequantized when it is read (f32, or the type of its scales). The digest of what is read is checked where the
  // format has one.
  Source floats;
  // Those parameters that are stored as codes which ours can hold to the bit.
  std::map<std::string, StoredCodes> codes;
  // Codes of foreign files that ours cannot hold: parameter and reason. They are read as floats.
  std::map<std::string, std::string> decoded;

  // How the model computes. For checkpoints of a run the recipe it is trained under, for converted ones that of its
  // codes, for foreign quantized files one that says what they hold (weights only). No name: floats.
  quant::RecipeChoice recipe;
  ops::StateStore state;  // of the recipe: delayed scales, running averages

  std::vector<CarriedFile> carried;
  // What text/ opens: the folder of the model, a tokenizer or GGUF file, or the word "bytes" (MakeByteTokenizer).
  // Empty: the model brings none.
  std::filesystem::path tokenizer;

  int64_t step = 0;          // of checkpoints
  std::string config_text;   // effective YAML of the run, where there is one
  std::string bits;          // Octavo: one digest of all parameters; foreign files: empty, they have no digests
  int64_t stored_bytes = 0;  // of all parameters as they are stored
  int64_t stored_tensors = 0;
  int64_t shards = 1;
  std::vector<std::string> notes;  // what was understood but left out: a printed line each

  bool quantized() const { return !codes.empty(); }
};

struct OpenOptions {
  // The model that the files are said to hold. Needed for MaxText trees; for others they are checked against it and it
  // is used in place of their own (the trainer: load_parameters_path).
  const models::ModelConfig* config = nullptr;
  bool verify = true;  // digests of values when they are read
};

// Errors are those of docs (user-experience): not there, a run folder, a pickle, Orbax, a shard that is missing, and
// one file error that lists every tensor that is missing, superfluous or of another shape or type.
StoredModel OpenStored(const std::filesystem::path& path, const OpenOptions& options = {});

// The one GGUF or llama2.c file of a folder that is no model in another form, else the path as it is. Several: a usage
// error that names them; so are the checkpoints of a run, and a step of Orbax is a file error.
std::filesystem::path ModelFileIn(const std::filesystem::path& path);

// A parameter in floats or in codes, as it is stored or as it is to be written.
using ParameterValue = std::variant<Tensor, QArray>;

}  // namespace octavo::weights
