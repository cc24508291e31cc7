#include "octavo/cli/evaluated_model.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "octavo/base/error.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/eval/sample_text.h"
#include "octavo/kernels/isa.h"

namespace octavo {
namespace {

constexpr int64_t kLongestWindow = 2048;  // unless a longer one is asked for
constexpr uint64_t kMostText = uint64_t{1} << 30;

// The token that begins a text, if the tokenizer puts one there.
std::optional<int32_t> FirstToken(const text::Tokenizer& tokenizer) {
  const std::vector<int32_t> plain = tokenizer.Encode("a"), full = tokenizer.Encode("a", {.add_special = true});
  if (full.size() > plain.size() && !plain.empty() && full.front() != plain.front()) return full.front();
  return std::nullopt;
}

}  // namespace

EvaluatedModel LoadEvaluated(const std::string& path, bool floats, const Args& args, ThreadPool& pool) {
  EvaluatedModel model;
  model.stored = weights::OpenStored(path);
  weights::LoadOptions options;
  options.dequantize = floats;
  model.loaded = weights::LoadModel(model.stored, options, pool, kernels::ChooseIsa().isa);
  if (!model.loaded.recipe_name.empty()) {
    model.provider = std::make_unique<quant::Provider>(*model.loaded.plan);
    model.provider->StartStep();  // each weight is prepared once
  }
  const std::string given = args.Text("tokenizer_path", "");
  const std::string from = given.empty() ? model.stored.tokenizer.string() : given;
  if (!from.empty()) model.tokenizer = text::LoadTokenizer(from);
  model.subject = {.model = model.loaded.model.get(),
                   .provider = model.provider.get(),
                   .state = &model.loaded.state,
                   .coupled_head = model.loaded.plan != nullptr && eval::HasCoupledHead(*model.loaded.plan)};
  if (!args.Switch("quiet")) {
    fmt::print(stderr, "model     {}   {}   {}\n", path, NameOf(model.stored.kind),
               model.loaded.recipe_name.empty() ? "floats" : model.loaded.recipe_name);
    for (const std::string& note : model.loaded.notes) fmt::print(stderr, "note      {}\n", note);
  }
  return model;
}

const text::Tokenizer& TokenizerOf(const EvaluatedModel& model) {
  if (model.tokenizer != nullptr) return *model.tokenizer;
  throw Error(ErrorCode::kFile,
              fmt::format("no tokenizer.json, tokenizer.model or tiktoken file beside {}", model.stored.path.string()),
              "tokenizer_path=FILE, or tokenizer_path=bytes for a model of bytes");
}

EvaluatedText ReadEvaluatedText(const EvaluatedModel& model, const text::Tokenizer& tokenizer, bool sample,
                                const Args& args) {
  EvaluatedText text;
  const int64_t longest = model.stored.config.max_target_length;
  text.windows.length = args.Int("max_target_length", std::min(longest, kLongestWindow), 1, longest);
  text.windows.bos = FirstToken(tokenizer);
  text.windows.most = args.Int("windows", 0, 0, INT64_MAX);
  if (sample) {
    text.tokens = tokenizer.Encode(eval::SampleText());
    // The sample is short: a few windows of it say more than a single one.
    if (!args.Has("max_target_length")) text.windows.length = std::min<int64_t>(text.windows.length, 256);
  } else {
    text.tokens = tokenizer.Encode(ReadSmallFile(args.Text("data", ""), kMostText));
  }
  return text;
}

std::optional<double> NumberOption(const Args& args, std::string_view name) {
  if (!args.Has(name)) return std::nullopt;
  const std::string text = args.Text(name, "");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || std::isinf(value)) {
    ThrowUsage("{}='{}': expected a number from 0", name, text);
  }
  return value;
}

std::vector<OptionSpec> EvaluationOptions(std::vector<OptionSpec> more) {
  std::vector<OptionSpec> all = {{"data", "FILE", "the text"},
                                 {"max_target_length", "N", "tokens of a window (the model's length, at most 2048)"},
                                 {"windows", "N", "the first N windows only"},
                                 {"tokenizer_path", "PATH", "a tokenizer instead of the model's own"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace octavo
