// octavo convert: any model in, a quantized checkpoint (or a folder or file for other tools) out.
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/settings.h"
#include "octavo/convert/convert.h"
#include "octavo/eval/sample_text.h"
#include "octavo/kernels/isa.h"
#include "octavo/quant/recipe_choice.h"
#include "octavo/text/tokenizer.h"
#include "octavo/weights/carried.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostText = uint64_t{64} << 20;

struct Paths {
  fs::path source, target;
};

// SRC and DST, or MaxText's names for them.
Paths PathsOf(const Args& args, const Settings& settings) {
  std::vector<std::string> words = args.positionals();
  const std::string load = settings.Text("load_parameters_path");
  std::string save = settings.Text("save_quantized_params_path");
  if (words.size() + (load.empty() ? 0 : 1) + (save.empty() ? 0 : 1) > 2) {
    throw Error(
        ErrorCode::kUsage,
        load.empty()
            ? fmt::format("octavo convert: DST is given twice: {} and save_quantized_params_path={}", words[1], save)
            : fmt::format("octavo convert: SRC is given twice: {} and load_parameters_path={}", words[0], load),
        "give SRC DST, or load_parameters_path=SRC save_quantized_params_path=DST");
  }
  if (save.empty()) save = settings.Text("base_output_directory");
  if (words.size() < 2 && !load.empty()) words.insert(words.begin(), load);
  if (words.size() < 2 && !save.empty()) words.push_back(save);
  if (words.size() == 2) return {words[0], words[1]};
  throw Error(ErrorCode::kUsage,
              words.empty() ? "octavo convert: SRC and DST are missing" : "octavo convert: DST is missing",
              "usage: octavo convert SRC DST [quantization=NAME | recipe=FILE]; or load_parameters_path=SRC "
              "save_quantized_params_path=DST");
}

// Files that do not say which model they hold: its keys must be given.
bool IsBareTree(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path.extension() == ".safetensors";
  return !fs::exists(path / "config.json", error) && !fs::exists(path / "manifest.json", error) &&
         !fs::exists(path / "checkpoints", error);
}

// tokenizer_path=… goes along in place of the source's own. It is opened here: a target must not carry what no one
// reads.
void TakeTokenizer(weights::StoredModel& source, const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  if (path != "bytes" && !fs::exists(path, error)) {
    throw Error(ErrorCode::kFile, fmt::format("tokenizer_path={}: no such file or folder", path),
                "give a tokenizer file, or a folder that holds one");
  }
  const auto tokenizer = text::LoadTokenizer(path);
  if (path != "bytes" && tokenizer->vocabulary_size() > source.config.vocab_size) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{} has {} tokens, the model {}", path, tokenizer->vocabulary_size(), source.config.vocab_size),
        "this is the tokenizer of another model; tokenizer_path=…");
  }
  if (!weights::UseTokenizer(source, path)) ThrowFile("{}: no tokenizer file", path);
}

weights::StoredModel OpenSource(const fs::path& path, const Settings& settings) {
  weights::OpenOptions options;
  models::ModelConfig config;
  if (IsBareTree(path) && (settings.IsAskedFor("model_name") || settings.IsAskedFor("base_emb_dim"))) {
    config = models::ModelConfigFrom(settings);
    options.config = &config;
  }
  weights::StoredModel source = weights::OpenStored(path, options);
  if (settings.IsAskedFor("dtype")) source.config.dtype = models::ModelConfigFrom(settings).dtype;
  if (settings.IsAskedFor("tokenizer_path")) TakeTokenizer(source, settings.Text("tokenizer_path"));
  return source;
}

convert::TargetFormat FormatOf(const Args& args) {
  const std::string name = args.Text("format", "octavo");
  if (name == "octavo") return convert::TargetFormat::kOctavo;
  if (name == "hf") return convert::TargetFormat::kHf;
  if (name == "gguf") return convert::TargetFormat::kGguf;
  ThrowUsage("format='{}': expected octavo, hf or gguf", name);
}

std::optional<double> BudgetOf(const Args& args) {
  if (!args.Has("max_kl")) return std::nullopt;
  const std::string text = args.Text("max_kl", "");
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0)) ThrowUsage("max_kl='{}': expected a number from 0", text);
  return value;
}

// The text that KL is measured on. A model without a tokenizer gets the bytes of the built-in text as its tokens:
// enough to see what a conversion changed.
std::vector<int32_t> TokensOf(const weights::StoredModel& source, const std::string& data, Log& log) {
  const std::string text = data.empty() ? std::string(eval::SampleText()) : ReadSmallFile(data, kMostText);
  const std::string tokenizer = source.tokenizer.string();
  if (!tokenizer.empty()) {
    const auto loaded = tokenizer == "bytes" ? text::MakeByteTokenizer() : text::LoadTokenizer(tokenizer);
    return loaded->Encode(text);
  }
  if (!data.empty()) {
    throw Error(ErrorCode::kFile,
                fmt::format("no tokenizer.json, tokenizer.model or tiktoken file beside {}", source.path.string()),
                "tokenizer_path=…");
  }
  log.Info("note      the model brings no tokenizer; the bytes of the built-in text are taken as tokens");
  std::vector<int32_t> ids;
  for (const char byte : text) {
    ids.push_back(static_cast<int32_t>(static_cast<uint8_t>(byte) % source.config.vocab_size));
  }
  return ids;
}

void PrintJson(const convert::ConvertSummary& summary, const fs::path& target) {
  nlohmann::json line = {{"event", "converted"},
                         {"path", target.string()},
                         {"parameters", summary.parameters},
                         {"quantized", summary.quantized},
                         {"bytes", summary.bytes},
                         {"planned_bytes", summary.planned_bytes},
                         {"peak_bytes", summary.peak_bytes},
                         {"seconds", summary.write_seconds},
                         {"carried", summary.carried},
                         {"bits", summary.bits}};
  if (summary.kl) line["kl"] = *summary.kl, line["kl_error"] = *summary.kl_error;
  fmt::print("{}\n", line.dump());
}

int RunConvert(const Args& args) {
  Log log(STDERR_FILENO, ChooseLogOptions(STDERR_FILENO, ColorChoice::kAuto, args.Switch("quiet")));
  const Settings settings = Settings::Load({.words = args.settings(), .environment = ProcessEnvironment()});
  settings.RequireLocalPaths();
  const Paths paths = PathsOf(args, settings);
  const weights::StoredModel source = OpenSource(paths.source, settings);
  const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
  ThreadPool pool(args.Threads());
  convert::ConvertRequest request{
      .source = source, .target = paths.target, .log = log, .pool = pool, .isa = kernels::ChooseIsa().isa};
  request.format = FormatOf(args);
  if (!recipe.empty()) request.recipe = &recipe;
  request.parameters_only = args.Switch("parameters_only");
  request.dequantize = args.Switch("dequantize");
  if (settings.IsAskedFor("weight_dtype")) request.dtype = models::ModelConfigFrom(settings).weight_dtype;
  request.tree.scanned = settings.IsAskedFor("scan_layers") && settings.Bool("scan_layers");
  request.tree.param_scan_axis = static_cast<int>(settings.Int("param_scan_axis"));
  request.tree.collection = args.Text("tree", "");
  if (!request.tree.collection.empty()) request.tree.collection += '/';
  request.replace = args.Switch("force");
  request.dry_run = args.Switch("dry_run");
  request.max_kl = BudgetOf(args);
  const std::string data = args.Text("data", "");
  if (request.max_kl || !data.empty()) request.tokens = [&] { return TokensOf(source, data, log); };
  const convert::ConvertSummary summary = convert::Convert(request);
  if (args.Switch("json")) PrintJson(summary, paths.target);
  return 0;
}

}  // namespace

VerbSpec ConvertVerb() {
  return {
      .name = "convert",
      .synopsis = "SRC DST [quantization=NAME | recipe=FILE] [max_kl=X] [format=octavo|hf|gguf] [--dry-run]",
      .summary = "quantize a model, or write it for another tool",
      .details =
          "SRC: a checkpoint, a model folder of the Hugging Face form, a .gguf file, a llama2.c .bin file, or "
          "safetensors\n"
          "files with MaxText's names (then say which model: model_name=…). Without a recipe SRC's own is used: what "
          "was\n"
          "trained in int8 is stored as the int8 codes that the trainer's forward pass used. DST appears when it is\n"
          "complete and was read back; it carries tokenizer, template and generation config and needs nothing of SRC.\n"
          "  octavo convert out/x/checkpoints/20 out/x-int8\n"
          "  octavo convert models/Qwen3-0.6B qwen-w4a8 quantization=w4a8 max_kl=0.05\n"
          "  octavo convert load_parameters_path=SRC save_quantized_params_path=DST quantization=int8\n"
          "  octavo convert out/x/checkpoints/20 out/x-params --parameters-only scan_layers=true tree=params/params\n"
          "Exit 3: KL to the source is over max_kl; nothing was written.",
      .most_positionals = 2,
      .options = {{"format", "octavo|hf|gguf", "what DST is (default octavo)"},
                  {"max_kl", "X", "the largest KL to SRC per token, in nats; over it nothing is published"},
                  {"data", "FILE", "text to measure KL on (default: built-in text, when max_kl is given)"},
                  {"parameters_only", "", "keep floats: a run's parameters without optimizer, under the same recipe"},
                  {"dequantize", "", "make floats of SRC's codes; no recipe stays"},
                  {"tree", "params|params/params", "MaxText's collection before every name (floats only)"},
                  {"dry_run", "", "print what would be written"},
                  {"force", "", "replace DST; it is kept until the new one is complete"}},
      .run = RunConvert,
      .takes_settings = true};
}

}  // namespace octavo
