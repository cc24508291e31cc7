// octavo bench: how fast a model reads a prompt and writes tokens on this machine, through the engine's runner with
// nothing left out but the sampler, and how near that is to the memory's speed. Against peers: `./run bench engine`.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/generation.h"
#include "octavo/cli/verbs.h"
#include "octavo/engine/kv_memory.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/engine/serving_model.h"
#include "octavo/kernels/limits.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

struct Samples {
  std::vector<double> values;

  double mean() const {
    double sum = 0;
    for (double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  double deviation() const {
    if (values.size() < 2) return 0;
    double sum = 0;
    for (double value : values) sum += (value - mean()) * (value - mean());
    return std::sqrt(sum / static_cast<double>(values.size() - 1));
  }
};

struct Speeds {
  Samples prompt, decode;  // tokens per second
};

std::vector<int32_t> AnyTokens(int64_t count, int64_t vocabulary) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 7919 + 1) % vocabulary);
  return tokens;
}

struct Lengths {
  int64_t prompt, tokens, streams;
  int64_t chunk;  // tokens of the prompt that are read together
};

// One prompt read, then `tokens` steps of all streams.
void Measure(engine::Runner& runner, const Lengths& lengths, Speeds* speeds) {
  const std::vector<int32_t> prompt = AnyTokens(lengths.prompt, runner.vocabulary_size());
  const std::vector<int32_t> one = AnyTokens(1, runner.vocabulary_size());
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::vector<engine::SequenceId> ids{runner.Open(prompt, 0, "", nullptr)};
  const auto start = Clock::now();
  for (int64_t at = 0; at < lengths.prompt; at += lengths.chunk) {
    const int64_t count = std::min(lengths.chunk, lengths.prompt - at);
    const engine::Work piece{ids[0], {prompt.data() + at, static_cast<size_t>(count)}};
    runner.Step({&piece, 1});
  }
  speeds->prompt.values.push_back(static_cast<double>(lengths.prompt) / since(start));
  while (std::ssize(ids) < lengths.streams) ids.push_back(runner.Fork(ids[0]));
  const auto begin = Clock::now();
  for (int64_t step = 0; step < lengths.tokens; ++step) {
    std::vector<engine::Work> work;
    for (engine::SequenceId id : ids) work.push_back({id, one});
    runner.Step(work);
  }
  speeds->decode.values.push_back(static_cast<double>(lengths.tokens * lengths.streams) / since(begin));
  for (engine::SequenceId id : ids) runner.Close(id);
}

// What one decoded token reads: every packed weight; of the embedding's rows only its own, unless it is the head too.
double BytesPerToken(const models::Model& model, int64_t bytes) {
  const models::ModelConfig& config = model.config();
  const int64_t table = config.logits_via_embedding ? 0 : config.vocab_size * config.emb_dim * SizeOf(config.dtype);
  return static_cast<double>(bytes - table);
}

int Run(const Args& args) {
  const GenerationWords words = ReadGenerationWords(args);
  const quant::RecipeChoice recipe = quant::ChooseRecipe(words.settings);
  const engine::ServingOptions serving = engine::ServingOptionsFrom(words.settings, recipe, words.model);
  const int64_t rounds = args.Int("rounds", 5, 1, 1000);
  const weights::StoredModel stored = weights::OpenStored(serving.path);
  const int64_t most = stored.config.max_target_length;
  const int64_t context = serving.context_length > 0 ? std::min(serving.context_length, most) : most;
  if (!serving.adapters.empty()) ThrowUsage("hf_lora_adapter_path: octavo bench runs models without adapters");
  Lengths lengths{args.Int("prompt", std::min<int64_t>(512, context / 2), 1, context),
                  args.Int("tokens", std::min<int64_t>(128, context / 2), 1, context), args.Int("streams", 1, 1, 256),
                  0};
  lengths.chunk = serving.step_tokens > 0 ? serving.step_tokens : lengths.prompt;
  if (lengths.prompt + lengths.tokens > context) {
    ThrowUsage("prompt={} and tokens={} need a context of {}, the model takes {}", lengths.prompt, lengths.tokens,
               lengths.prompt + lengths.tokens, context);
  }
  ThreadPool pool(args.Threads());
  const kernels::Isa isa = kernels::ChooseIsa().isa;
  weights::LoadOptions how;
  how.recipe = serving.recipe;
  how.must_be_quantized = serving.must_be_quantized;
  how.dtype = serving.dtype;
  how.max_target_length = lengths.prompt + lengths.tokens;
  weights::ParameterReader reader(stored, how, pool, isa);
  // One more than there are streams: their shared prompt stays until each has its copy of the last page.
  engine::RunnerOptions options;
  options.sequences = lengths.streams + 1;
  options.prefix_cache = false;
  options.kv = engine::KvFormatFor(reader.model(), reader.plan(), serving.kv);
  weights::LoadedModel loaded = weights::LoadModel(reader);
  // As ServingModel has it: floats run without a provider, weights that stay floats under a recipe are prepared once.
  std::optional<quant::Provider> provider;
  if (!loaded.recipe_name.empty()) provider.emplace(*loaded.plan).StartStep();
  const engine::RunnerParts parts{*loaded.model, provider ? &*provider : nullptr, &loaded.state, pool, isa};
  const int64_t bytes =
      provider ? engine::PackWeights(parts, *provider, serving.allow_batch_coupled).bytes : loaded.parameter_bytes;
  const auto runner = engine::MakeRunner(parts, options);
  if (!args.Switch("quiet")) {
    const std::string ignored = words.settings.IgnoredNote();
    if (!ignored.empty()) fmt::print(stderr, "note: {}\n", ignored);
    for (const std::string& note : loaded.notes) fmt::print(stderr, "note: {}\n", note);
    fmt::print(stderr, "model     {}   {}   {:.2f} GiB packed   KV {}   {} {}, {}\n", stored.name,
               loaded.recipe_name.empty() ? "float" : loaded.recipe_name, static_cast<double>(bytes) / (1 << 30),
               Info(options.kv.format).name, pool.size(), pool.size() == 1 ? "thread" : "threads", NameOf(isa));
  }
  Speeds warm, speeds;
  Measure(*runner, {std::min<int64_t>(lengths.prompt, 64), 1, lengths.streams, lengths.chunk}, &warm);
  double read = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    read = std::max(read, kernels::MeasureLimits(pool, isa, 1).read_gb_per_s);
    Measure(*runner, lengths, &speeds);
  }
  // Experts are read in part, several streams share what they read: a share would mean nothing there.
  const bool whole = lengths.streams == 1 && loaded.model->config().num_experts <= 1;
  const double share = BytesPerToken(*loaded.model, bytes) * speeds.decode.mean() / (1e9 * read);
  if (args.Switch("json")) {
    nlohmann::ordered_json line{{"event", "bench"},
                                {"model", stored.name},
                                {"recipe", loaded.recipe_name},
                                {"kv", Info(options.kv.format).name},
                                {"fingerprint", loaded.fingerprint},
                                {"isa", NameOf(isa)},
                                {"threads", pool.size()},
                                {"prompt", lengths.prompt},
                                {"tokens", lengths.tokens},
                                {"streams", lengths.streams},
                                {"prompt_tokens_per_second", speeds.prompt.values},
                                {"decode_tokens_per_second", speeds.decode.values},
                                {"read_gb_per_second", read}};
    if (whole) line["read_share"] = share;
    fmt::print("{}\n", line.dump());
    return 0;
  }
  fmt::print("pp{} {:.1f} ± {:.1f} tok/s   tg{}{} {:.1f} ± {:.1f} tok/s{}\n", lengths.prompt, speeds.prompt.mean(),
             speeds.prompt.deviation(), lengths.tokens,
             lengths.streams > 1 ? fmt::format(" x {} streams", lengths.streams) : "", speeds.decode.mean(),
             speeds.decode.deviation(),
             whole ? fmt::format("   {:.0f} % of {:.1f} GB/s read bandwidth", 100 * share, read) : "");
  return 0;
}

}  // namespace

VerbSpec BenchVerb() {
  return {.name = "bench",
          .synopsis = "MODEL [prompt=512] [tokens=128] [streams=1] [rounds=5] key=value… [--json]",
          .summary = "tokens per second of a model, reading and writing, and the share of the memory's speed",
          .details =
              "Mean and standard deviation over the rounds, on any stored model; quantization=NAME quantizes it "
              "on load. The prompt is read at once, with prefill_chunk_size=N in pieces.\n"
              "  octavo bench out/x-int8\n"
              "  octavo bench out/x/checkpoints/20 quantization=int8 streams=8 quantize_kvcache=true",
          .most_positionals = 2,
          .options = {{"prompt", "N", "tokens of the prompt (512, or half of a shorter context)"},
                      {"tokens", "N", "tokens written behind it (128, or half of a shorter context)"},
                      {"streams", "N", "sequences that decode together (1)"},
                      {"rounds", "N", "how often (5)"}},
          .run = Run,
          .takes_settings = true};
}

}  // namespace octavo
