// `./run bench engine`: prefill and decode of a random llama through the engine's runner, everything included, beside
// the read bandwidth of the machine in the same run. The codes are random: speed does not depend on them. The head is
// quantized like the rest.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "octavo/base/error.h"
#include "octavo/cli/args.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/kernels/limits.h"
#include "octavo/models/model.h"
#include "octavo/quant/provider.h"
#include "octavo/weights/load_model.h"

namespace octavo::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

models::ModelConfig ConfigOf(int64_t layers) {
  models::ModelConfig config;
  config.model_name = "random llama";
  config.emb_dim = 2048;
  config.num_decoder_layers = layers;
  config.num_query_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.mlp_dim = 5632;
  config.vocab_size = 32000;
  config.max_target_length = 1024;
  return config;
}

// Every weight, the head included.
std::vector<quant::Rule> RulesOf(const std::string& name) {
  quant::Rule rule;
  rule.only_weights = true;
  quant::QwixTreatment qwix;
  if (name == "int8") {
    qwix.weight = qwix.activation = Format::kInt8;
    rule.treatment = qwix;
  } else if (name == "int8w") {
    qwix.weight = Format::kInt8;
    rule.treatment = qwix;
  } else if (name == "int4w") {
    qwix.weight = Format::kInt4;
    rule.treatment = qwix;
  } else if (name == "w4a8") {
    rule.treatment = quant::GroupedTreatment{.group = 0};
  } else if (name != "float") {
    ThrowUsage("recipe {}: int8, int8w, int4w, w4a8 or float", name);
  }
  return {rule};
}

// Numbers of about the size of trained weights.
Tensor AnyWeight(const Shape& shape, uint64_t seed) {
  Tensor result = Tensor::Empty(shape, DType::kF32);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& value : result.MutableValues<float>()) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = (static_cast<float>(state >> 40) - 8388608.0f) * (0.05f / 8388608.0f);
  }
  return result;
}

struct Served {
  Served(const std::string& recipe, int64_t layers, ThreadPool& threads)
      : pool(threads), isa(kernels::ChooseIsa().isa), rules(RulesOf(recipe)) {
    model = models::MakeModel(ConfigOf(layers));
    plan = weights::ForwardPlan(*model, rules);
    const auto sites = weights::FrozenParameters(*model, plan);
    uint64_t seed = 0;
    for (ops::Parameter* parameter : model->parameters()) {
      const Tensor weight = AnyWeight(parameter->shape(), ++seed);
      parameters += weight.size();
      parameter->value = weight;
      const auto site = sites.find(parameter->name);
      if (site != sites.end()) parameter->value = weights::FreezeFor(*site->second, weight, {}, pool, isa);
    }
    provider.emplace(plan);
    const engine::RunnerParts parts{*model, &*provider, nullptr, pool, isa};
    const auto start = Clock::now();
    packed = engine::PackWeights(parts, *provider);
    pack_seconds = Since(start);
    runner = engine::MakeRunner(parts, {.sequences = 9, .prefix_cache = false});
  }

  double Prefill(int64_t tokens) {
    const std::vector<int32_t> prompt(static_cast<size_t>(tokens), 7);
    const engine::SequenceId id = runner->Open(prompt, 0, "", nullptr);
    const engine::Work work{id, prompt};
    const auto start = Clock::now();
    runner->Step({&work, 1});
    const double seconds = Since(start);
    runner->Close(id);
    return seconds;
  }

  // Median seconds of one step of `streams` sequences with 128 tokens behind them.
  double Decode(int streams, int steps) {
    std::vector<engine::SequenceId> ids;
    const std::vector<int32_t> prompt(128, 7), one = {9};
    for (int i = 0; i < streams; ++i) {
      ids.push_back(runner->Open(prompt, 0, "", nullptr));
      const engine::Work work{ids.back(), prompt};
      runner->Step({&work, 1});
    }
    std::vector<double> seconds;
    for (int step = 0; step < steps; ++step) {
      std::vector<engine::Work> work;
      for (engine::SequenceId id : ids) work.push_back({id, one});
      const auto start = Clock::now();
      runner->Step(work);
      seconds.push_back(Since(start));
    }
    for (engine::SequenceId id : ids) runner->Close(id);
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }

  ThreadPool& pool;
  kernels::Isa isa;
  quant::RuleSet rules;
  std::unique_ptr<models::Model> model;
  quant::Plan plan;
  std::optional<quant::Provider> provider;
  std::unique_ptr<engine::Runner> runner;
  engine::PackedModel packed;
  double pack_seconds = 0;
  int64_t parameters = 0;
};

int Main(const Args& args) {
  ThreadPool pool(static_cast<int>(args.Int("threads", 2, 1, 64)));
  const int64_t layers = args.Int("layers", 16, 1, 64);
  const int steps = static_cast<int>(args.Int("steps", 16, 1, 1000));
  const std::string recipes = args.Text("recipes", "int8,w4a8") + ",";
  for (size_t at = 0; at < recipes.size();) {
    const size_t end = recipes.find(',', at);
    const std::string name = recipes.substr(at, end - at);
    at = end + 1;
    Served served(name, layers, pool);
    const double bandwidth = 1e9 * kernels::MeasureLimits(pool, kernels::ChooseIsa().isa, 2).read_gb_per_s;
    served.Prefill(64);
    const double prefill = std::min(served.Prefill(512), served.Prefill(512));
    const double one = served.Decode(1, steps), eight = served.Decode(8, steps);
    // The table of the embedding is looked up, not read.
    const double table = 4.0 * 32000 * 2048;
    const double read = static_cast<double>(served.packed.bytes) - table;
    std::printf(
        "%-6s %.3f B parameters  %.2f GiB  packed in %.2f s   prefill 512: %.1f tok/s   decode 1: %.2f tok/s, "
        "%.0f %% of %.1f GB/s   decode 8: %.2f tok/s\n",
        name.c_str(), static_cast<double>(served.parameters) / 1e9,
        static_cast<double>(served.packed.bytes) / (1 << 30), served.pack_seconds, 512 / prefill, 1 / one,
        100 * read / one / bandwidth, bandwidth / 1e9, 8 / eight);
  }
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  const octavo::VerbSpec spec{
      .name = "bench_engine",
      .synopsis = "[recipes=int8,w4a8] [layers=16] [steps=16] [threads=2]",
      .summary = "prefill and decode of a random llama",
      .details = "",
      .options = {{"recipes", "A,B", "int8, int8w, int4w, w4a8, float"},
                  {"layers", "N", "decoder layers"},
                  {"steps", "N", "decode steps"}},
  };
  try {
    std::vector<std::string_view> words(argv + 1, argv + argc);
    return octavo::bench::Main(octavo::Args::Parse(spec, words));
  } catch (const octavo::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  }
}
