// octavo verify: the logits of prompts in every way a server may compute them, as hashes.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/verbs.h"
#include "octavo/engine/kv_memory.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/engine/serving_model.h"
#include "octavo/engine/verify.h"
#include "octavo/quant/lora.h"

namespace octavo {
namespace {

// A model opened as a server opens it, or as the trainer holds it.
struct Opened {
  Opened(const weights::StoredModel& stored, const weights::LoadOptions& how, ThreadPool& pool, kernels::Isa isa)
      : loaded(weights::LoadModel(stored, how, pool, isa)) {
    if (!loaded.recipe_name.empty()) provider.emplace(*loaded.plan);
  }
  ops::Interceptor* interceptor() { return provider ? &*provider : nullptr; }

  weights::LoadedModel loaded;
  std::optional<quant::Provider> provider;
};

// The float model that MODEL came from: masters of the same parameters.
weights::StoredModel OpenSource(const std::string& path, const weights::StoredModel& stored) {
  weights::StoredModel source = weights::OpenStored(path);
  const std::string hint = fmt::format("give the checkpoint that {} was converted from", stored.path.string());
  if (source.quantized()) {
    throw Error(ErrorCode::kUsage, fmt::format("source={} is quantized itself: it holds no float masters", path), hint);
  }
  const auto ours = models::MakeModel(stored.config), theirs = models::MakeModel(source.config);
  for (const ops::Parameter* parameter : ours->parameters()) {
    const ops::Parameter* other = theirs->parameter_set().Find(parameter->name);
    if (other != nullptr && other->shape() == parameter->shape()) continue;
    const std::string found = other == nullptr ? "missing" : fmt::format("{}", other->shape());
    throw Error(ErrorCode::kUsage,
                fmt::format("source={}: '{}' is {} there, {} in {}", path, parameter->name, found, parameter->shape(),
                            stored.path.string()),
                hint);
  }
  return source;
}

// How many tokens, as far as the context goes.
void ReadLengths(const Args& args, int64_t context, engine::VerifyOptions* options) {
  options->prompts = static_cast<int>(args.Int("prompts", 8, 1, 64));
  const int64_t most = context - options->prompts + 1;
  options->tokens = args.Int("tokens", std::max<int64_t>(2, std::min<int64_t>(72, most)), 2, 1 << 20);
  if (options->tokens <= most) return;
  ThrowUsage("prompts={} from tokens={} on, each a token longer, need a context of {}, the model takes {}",
             options->prompts, options->tokens, options->tokens + options->prompts - 1, context);
}

void PrintRows(const engine::VerifyReport& report) {
  for (const engine::VerifyRow& row : report.rows) {
    nlohmann::ordered_json line{{"event", "row"}, {"what", row.what}, {"hashes", row.hashes}};
    if (std::ranges::any_of(row.from, [](int64_t from) { return from > 0; })) line["from_tokens"] = row.from;
    fmt::print("{}\n", line.dump());
  }
  const nlohmann::ordered_json verdict{
      {"event", "verdict"}, {"equal", report.equal()}, {"different", report.different}};
  fmt::print("{}\n", verdict.dump());
}

int RunVerify(const Args& args) {
  const Settings settings = Settings::Load({.words = args.settings(), .environment = ProcessEnvironment()});
  settings.RequireSupported();
  const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
  const engine::ServingOptions serving = engine::ServingOptionsFrom(settings, recipe, args.positionals()[0]);
  if (!serving.adapters.empty()) {
    throw Error(ErrorCode::kUsage, "hf_lora_adapter_path: octavo verify computes the model without adapters",
                "drop the key");
  }
  const weights::StoredModel stored = weights::OpenStored(serving.path);
  std::optional<weights::StoredModel> source;
  if (args.Has("source")) source = OpenSource(args.Text("source", ""), stored);
  engine::VerifyOptions options{.isa = kernels::ChooseIsa().isa};
  const int64_t positions = stored.config.max_target_length;
  ReadLengths(args, serving.context_length > 0 ? std::min(serving.context_length, positions) : positions, &options);

  // As engine::ServingModel loads it.
  ThreadPool pool(args.Threads());
  weights::LoadOptions how{
      .recipe = serving.recipe, .must_be_quantized = serving.must_be_quantized, .dtype = serving.dtype};
  how.max_target_length = options.tokens + options.prompts - 1;
  Opened served(stored, how, pool, options.isa);
  options.kv = engine::KvFormatFor(*served.loaded.model, *served.loaded.plan, serving.kv);
  quant::LoraProvider lora(served.interceptor());
  if (served.provider) {
    served.provider->StartStep();
    engine::PackWeights({*served.loaded.model, &lora, &served.loaded.state, pool, options.isa}, *served.provider,
                        serving.allow_batch_coupled);
  }
  // The trainer's form: float masters under the same recipe. A converted file holds none; source= says where they are.
  std::optional<Opened> trained;
  if (source || !stored.quantized()) {
    how.holding = weights::Holding::kFloats;
    how.must_be_quantized = false;
    if (how.recipe == nullptr) how.recipe = &stored.recipe;
    trained.emplace(source ? *source : stored, how, pool, options.isa);
  }
  const bool json = args.Switch("json"), quiet = args.Switch("quiet");
  const std::string recipe_name = served.loaded.recipe_name.empty() ? "float" : served.loaded.recipe_name;
  const std::string_view dtype = NameOf(served.loaded.model->config().dtype);
  if (json) {
    const nlohmann::ordered_json line{{"event", "verify"},
                                      {"model", stored.name},
                                      {"recipe", recipe_name},
                                      {"dtype", dtype},
                                      {"kv", engine::KvFormatName(options.kv)},
                                      {"prompts", options.prompts},
                                      {"tokens", options.tokens},
                                      {"trainer", trained.has_value()}};
    fmt::print("{}\n", line.dump());
  } else if (!quiet) {
    fmt::print(stderr, "verify    {}   {} in {}   keys and values {}   {} prompts of {} … {} tokens\n", stored.name,
               recipe_name, dtype, engine::KvFormatName(options.kv), options.prompts, options.tokens,
               options.tokens + options.prompts - 1);
  }
  if (!quiet) {
    const std::string ignored = settings.IgnoredNote();
    if (!ignored.empty()) fmt::print(stderr, "note: {}\n", ignored);
    for (const std::string& note : served.loaded.notes) fmt::print(stderr, "note: {}\n", note);
    if (!trained) {
      fmt::print(stderr, "note: no float masters in this file: the trainer's form is left out (source=PATH)\n");
    }
  }
  const engine::VerifyModel left{*served.loaded.model, &lora, &served.loaded.state};
  std::optional<engine::VerifyModel> right;
  if (trained)
    right.emplace(engine::VerifyModel{*trained->loaded.model, trained->interceptor(), &trained->loaded.state});
  const engine::VerifyReport report = engine::Verify(left, right ? &*right : nullptr, options);
  if (json) {
    PrintRows(report);
  } else {
    fmt::print("{}", engine::VerifyTable(report, options));
  }
  return report.equal() ? 0 : static_cast<int>(ErrorCode::kCheck);
}

}  // namespace

VerbSpec VerifyVerb() {
  return {
      .name = "verify",
      .synopsis = "MODEL [source=PATH] [prompts=8] [tokens=72] key=value… [--json]",
      .summary = "the same logits, bit for bit, whatever the threads, batch, chunks, slots and cache",
      .details =
          "Runs prompts over 1, 2 and 3 threads, batches of 1, 3 and 8, prefill in pieces of 1, 7, 64 and all, in "
          "other slots,\nwith the prefix cache missing and hitting, after preemption, and through the trainer's "
          "forward pass, and prints a\nhash of the logits for each. Exit 3 when any differs. Keys mean what they mean "
          "to octavo serve: dtype,\nquantization, quantize_kvcache, allow_batch_coupled …\n"
          "  octavo verify out/x/checkpoints/20 quantization=int8\n"
          "  octavo verify out/x-int8 source=out/x/checkpoints/20\n"
          "  octavo verify out/x-int8 quantize_kvcache=true kv_quant_dtype=int4 kv_quant_axis=dkv",
      .least_positionals = 1,
      .most_positionals = 1,
      .options = {{"source", "PATH", "the float model that MODEL was converted from, for the trainer's forward pass"},
                  {"prompts", "N", "how many prompts (8)"},
                  {"tokens", "N",
                   "tokens of the first prompt, each further one has one more (72, or what the context allows)"}},
      .run = RunVerify,
      .takes_settings = true};
}

}  // namespace octavo
