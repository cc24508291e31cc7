// `./run bench quant`: the three products of a projection as a training step runs them, through the op and the
// provider, under a recipe and in float, taking turns. Everything between a tensor and its product counts: site lookup,
// quantizing, packing, multiplying, scales, allocation. Weights are prepared once per step of --shards passes, as the
// trainer does it.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>

#include "bench/common/driver.h"
#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/cli/args.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/tape.h"
#include "octavo/quant/health.h"
#include "octavo/quant/provider.h"
#include "octavo/quant/recipe.h"

namespace octavo::bench {
namespace {

// A projection [rows, input…] x [input…, output…] as a model stores its kernel.
struct Projection {
  const char* name;
  Shape kernel;
  int contracted;
  int count;  // how often a layer has it
};

std::vector<Projection> LayerOf(int64_t width, int64_t hidden) {
  const int64_t heads = width / 64;
  return {{"query", {width, heads, 64}, 1, 3},
          {"out", {heads, 64, width}, 2, 1},
          {"wi_0", {width, hidden}, 1, 2},
          {"wo", {hidden, width}, 1, 1}};
}

Tensor AnyTensor(const Shape& shape, uint64_t seed, float spread) {
  Tensor result = Tensor::Empty(shape, DType::kF32);
  uint64_t index = 0;
  for (float& value : result.MutableValues<float>()) value = spread * Normal(RngKey::FromSeed(seed), index++);
  return result;
}

enum class Product { kForward, kGradLhs, kGradRhs };
constexpr const char* kNames[] = {"forward", "grad input", "grad weight"};

// One projection under one provider (or none: float).
struct Site {
  Site(ThreadPool& pool, kernels::Workspace& workspace, const Projection& projection, int64_t rows,
       const std::vector<quant::Rule>* rules, int64_t passes, quant::HealthSink* health = nullptr)
      : context(pool, kernels::ChooseIsa().isa, workspace), contracted(projection.contracted), shards(passes) {
    kernel = {fmt::format("decoder/layers_0/mlp/{}/kernel", projection.name), AnyTensor(projection.kernel, 1, 0.03f)};
    path = fmt::format("decoder/layers_0/mlp/{}", projection.name);
    std::vector<int64_t> in = {1, rows}, out = {1, rows};
    for (int i = 0; i < projection.kernel.rank(); ++i) {
      (i < contracted ? in : out).push_back(projection.kernel[i]);
    }
    x = AnyTensor(octavo::Shape(in), 2, 1.0f);
    grad = AnyTensor(octavo::Shape(out), 3, 0.01f);
    macs = static_cast<double>(rows) * static_cast<double>(projection.kernel.size());
    if (rules == nullptr) return;
    const Tensor meta = Tensor::Meta(x.shape(), DType::kF32);
    plan = quant::MakePlan([&](ops::Context& dry) { Run(dry, ops::Activation(meta), ops::Weight(dry, kernel)); },
                           quant::RuleSet(*rules), {.allow_unused_rules = true});
    provider = std::make_unique<quant::Provider>(plan, quant::ProviderOptions{.health = health});
    context.interceptor = provider.get();
  }

  ops::Var Run(ops::Context& in, const ops::Operand& lhs, const ops::Operand& rhs) const {
    in.StartModel();
    const ops::Scope scope(in, path);
    DotDims dims;
    for (int i = 0; i < contracted; ++i) {
      dims.lhs_contract.push_back(lhs.shape().rank() - contracted + i);
      dims.rhs_contract.push_back(i);
    }
    return ops::DotGeneral(in, lhs, rhs, dims);
  }

  // The forward product, recorded for the gradients that `product` wants.
  void Forward(Product product) {
    tape = std::make_unique<ops::Tape>();
    context.tape = tape.get();
    input = product == Product::kGradRhs ? ops::Var(x) : tape->Leaf(x);
    const ops::Operand weight = product == Product::kGradLhs
                                    ? ops::Operand{kernel.tensor(), ops::Role::kWeight, &kernel, ops::kConstant}
                                    : ops::Weight(context, kernel);
    output = Run(context, ops::Activation(input), weight);
  }

  void StartStep(int64_t turn) {
    if (provider != nullptr && turn % shards == 0) provider->StartStep();
  }

  ops::Context context;
  int contracted;
  int64_t shards;
  ops::Parameter kernel;
  std::string path;
  Tensor x, grad;
  double macs = 0;
  quant::Plan plan;
  std::unique_ptr<quant::Provider> provider;
  std::unique_ptr<ops::Tape> tape;
  ops::Var input, output;
};

// Of the wall, or, alone on one thread, of the processor: then other work on the machine disturbs less.
double Seconds(bool processor) {
  timespec now;
  clock_gettime(processor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds of one product; the forward pass before a gradient is not counted.
double TimeOnce(Site& site, Product product, int64_t turn) {
  const bool processor = site.context.pool.size() == 1;
  site.StartStep(turn);
  const double start = Seconds(processor);
  site.Forward(product);
  if (product == Product::kForward) return Seconds(processor) - start;
  const double middle = Seconds(processor);
  site.tape->Run(site.context, site.output, site.grad);
  return Seconds(processor) - middle;
}

VerbSpec Spec() {
  VerbSpec spec;
  spec.name = "bench quant";
  spec.synopsis = "[--recipe NAME] [--rows N] [--rounds N]";
  spec.summary = "time the products of a training step under a recipe against float";
  spec.options = {{"recipe", "NAME", "recipe of the quantized sites (default int8)"},
                  {"aqt", "", "the recipe of that name without use_qwix_quantization"},
                  {"health", "MODE", "also the recipe with counters of its numbers: light or full"},
                  {"width", "N", "emb_dim (default 768)"},
                  {"hidden", "N", "mlp_dim (default 2048)"},
                  {"rows", "N", "rows of a pass (default: 512 and 2048)"},
                  {"shards", "N", "passes per step, for which weights are prepared once (default 4)"},
                  {"rounds", "N", "samples per product, each of --shards passes (default 7)"}};
  return spec;
}

// The least time of each pass of a step (the first one prepares the weights), summed: what else the machine does only
// adds.
struct Best {
  explicit Best(int64_t passes) : least(static_cast<size_t>(passes), 1e9) {}
  void Take(int64_t pass, double seconds) {
    double& into = least[static_cast<size_t>(pass)];
    into = std::min(into, seconds);
  }
  double PerPass() const {
    double sum = 0;
    for (double one : least) sum += one;
    return sum / static_cast<double>(least.size());
  }
  std::vector<double> least;
};

int Run(const Args& args) {
  ThreadPool pool(args.Threads());
  kernels::Workspace workspace;
  const std::string name = args.Text("recipe", "int8");
  const std::vector<quant::Rule> rules = quant::RulesOf(quant::FindRecipe(name, !args.Switch("aqt")), {});
  const int64_t shards = args.Int("shards", 4, 1, 64), rounds = args.Int("rounds", 7, 1, 1000);
  quant::HealthSink sink(quant::ParseHealthMode(args.Text("health", "off")));
  std::vector<int64_t> rows = {512, 2048};
  if (args.Has("rows")) rows = {args.Int("rows", 512, 1, 1 << 20)};
  std::printf("%-6s %-8s %-12s %12s %12s %8s\n", "rows", "site", "product", "float GMAC/s", (name + " GMAC/s").c_str(),
              "ratio");
  for (int64_t r : rows) {
    std::map<Product, std::pair<double, double>> totals;
    double watched_total = 0;
    for (const Projection& projection :
         LayerOf(args.Int("width", 768, 64, 65536), args.Int("hidden", 2048, 64, 65536))) {
      Site plain(pool, workspace, projection, r, nullptr, shards);
      Site quantized(pool, workspace, projection, r, &rules, shards);
      Site watched(pool, workspace, projection, r, &rules, shards, &sink);
      for (Product product : {Product::kForward, Product::kGradLhs, Product::kGradRhs}) {
        Best plain_times(shards), quantized_times(shards), watched_times(shards);
        for (int64_t round = 0; round < rounds; ++round) {
          for (int64_t turn = 0; turn < shards; ++turn) plain_times.Take(turn, TimeOnce(plain, product, turn));
          for (int64_t turn = 0; turn < shards; ++turn) {
            quantized_times.Take(turn, TimeOnce(quantized, product, turn));
            if (sink.mode() != quant::HealthMode::kOff) watched_times.Take(turn, TimeOnce(watched, product, turn));
          }
        }
        const double a = plain_times.PerPass(), b = quantized_times.PerPass();
        totals[product].first += a * projection.count;
        totals[product].second += b * projection.count;
        watched_total += watched_times.PerPass() * projection.count;
        std::printf("%-6lld %-8s %-12s %12.1f %12.1f %8.2f\n", static_cast<long long>(r), projection.name,
                    kNames[static_cast<int>(product)], plain.macs / a * 1e-9, plain.macs / b * 1e-9, a / b);
      }
    }
    double a = 0, b = 0;
    for (const auto& [product, times] : totals) {
      a += times.first;
      b += times.second;
      std::printf("%-6lld %-8s %-12s %12.2f %12.2f %8.2f  (ms)\n", static_cast<long long>(r), "layer",
                  kNames[static_cast<int>(product)], times.first * 1e3, times.second * 1e3, times.first / times.second);
    }
    std::printf("%-6lld %-8s %-12s %12.2f %12.2f %8.2f  (ms)\n", static_cast<long long>(r), "layer", "all", a * 1e3,
                b * 1e3, a / b);
    if (sink.mode() == quant::HealthMode::kOff) continue;
    std::printf("%-6lld %-8s %-12s %12s %12.2f %7.2f%%  (ms, cost of the counters)\n", static_cast<long long>(r),
                "layer", "watched", "", watched_total * 1e3, 100 * (watched_total / b - 1));
  }
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  return bench::RunDriver(bench::Spec(), argc, argv, bench::Run);
}
