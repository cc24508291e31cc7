#include "octavo/train/start_block.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "octavo/base/progress.h"
#include "octavo/ops/float_dot.h"
#include "octavo/ops/site.h"
#include "octavo/train/run_log.h"

namespace octavo::train {

MemoryEstimate EstimateMemory(const models::ModelConfig& config, int64_t parameters, const TrainOptions& options) {
  const double weights = 4.0 * static_cast<double>(parameters);
  const double tokens =
      static_cast<double>(options.rows) * static_cast<double>(options.length) / static_cast<double>(options.shards);
  const auto emb = static_cast<double>(config.emb_dim), layers = static_cast<double>(config.num_decoder_layers);
  const double heads =
      static_cast<double>(config.num_query_heads + 2 * config.num_kv_heads) * static_cast<double>(config.head_dim);
  const double mlp =
      static_cast<double>(config.num_experts > 1 ? config.moe_mlp_dim * config.num_experts_per_tok : config.mlp_dim);
  // One layer: input, two norms, projections, attention's output, the MLP's branches and their product.
  const double layer =
      tokens * 4 * (6 * emb + 2 * heads + mlp * (static_cast<double>(config.mlp_activations.size()) + 2));
  const double kept =
      options.remat.everything ? layer : tokens * 4 * emb * (1 + static_cast<double>(options.remat.saved.size()));
  MemoryEstimate memory;
  memory.parameters = weights;
  memory.moments = options.optimizer.kind == optim::OptimizerKind::kSgd ? 0 : 2 * weights;
  memory.gradients = weights * (std::log2(static_cast<double>(options.shards)) + 1);
  memory.activations = kept * layers + (options.remat.everything ? 0 : 2 * layer);
  memory.logits = 2 * tokens * 4 * static_cast<double>(config.vocab_size) / options.vocab_tiling;
  return memory;
}

namespace {

// A line of /proc/meminfo in bytes; 0 when there is none.
double MemInfo(std::string_view name) {
  std::ifstream info("/proc/meminfo");
  std::string word, unit;
  for (double value = 0; info >> word >> value;) {
    if (word == name) return value * 1024;
    std::getline(info, unit);
  }
  return 0;
}

// Of this process's control group; 0 when there is none.
double MemoryLimit() {
  double limit = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit;
  return limit;
}

// What helps most, by what takes most.
std::string MemoryFix(const MemoryEstimate& memory, const TrainOptions& options) {
  const double much = memory.total() / 4;
  std::vector<std::string> ways;
  if (memory.activations > much && !(options.remat.saved.empty() && !options.remat.everything)) {
    ways.emplace_back("remat_policy=full");
  }
  if (memory.activations + memory.logits > much) {
    ways.emplace_back("a smaller per_device_batch_size or max_target_length");
  }
  if (memory.logits > much) ways.push_back(fmt::format("num_vocab_tiling={}", options.vocab_tiling * 8));
  if (memory.gradients > much && options.shards > 1 && options.accumulation == 1) {
    ways.emplace_back("gradient_shards=1");
  }
  if (memory.parameters + memory.moments > much) ways.emplace_back("a smaller model");
  if (ways.empty()) ways.emplace_back("a smaller model, batch or context");
  return fmt::format("try {}", fmt::join(ways, ", "));
}

}  // namespace

double AvailableMemory() {
  const double available = MemInfo("MemAvailable:"), limit = MemoryLimit();
  if (limit <= 0) return available;
  double used = 0;
  std::ifstream("/sys/fs/cgroup/memory.current") >> used;
  return std::min(available, std::max(0.0, limit - used));
}

double PhysicalMemory() {
  const double all = MemInfo("MemTotal:"), limit = MemoryLimit();
  return limit > 0 ? std::min(all, limit) : all;
}

// The estimate is good to about a fifth: only what is above that is refused.
constexpr double kSurely = 1.25;

std::optional<MemoryProblem> FindMemoryProblem(const MemoryEstimate& memory, const TrainOptions& options,
                                               double available, double physical) {
  const double needed = memory.total();
  const bool cannot_fit = physical > 0 && needed > kSurely * physical;
  if (!cannot_fit && (available <= 0 || needed <= available)) return std::nullopt;
  return MemoryProblem{
      cannot_fit,
      cannot_fit ? fmt::format("the run needs about {}, and this machine has {}", SizeText(needed), SizeText(physical))
                 : fmt::format("the run needs about {}, and {} are available", SizeText(needed), SizeText(available)),
      MemoryFix(memory, options)};
}

double EstimateStepSeconds(ops::Context& context, const StepFlops& flops, const quant::Plan& plan,
                           const TrainOptions& options, int64_t parameters) {
  constexpr int64_t kSide = 512;
  const Tensor a = Tensor::Zeros({kSide, kSide}, DType::kF32), b = Tensor::Zeros({kSide, kSide}, DType::kF32);
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    const double start = Progress::SteadySeconds();
    ops::FloatDot(context, "estimate", a, b, MatMulDims(a.shape()), DType::kF32);
    best = std::min(best, Progress::SteadySeconds() - start);
  }
  const double macs_per_second = static_cast<double>(kSide * kSide * kSide) / best;
  // Recomputing a whole layer is one forward pass more: 4 instead of 3.
  const double recomputed = options.remat.everything ? 1 : options.remat.saved.empty() ? 4.0 / 3 : 1.1;
  // Small operations, quantizing and edges cost about a fifth; int8 products run about half again as fast.
  const double quantized = plan.quantized_share();
  const double speed = 0.8 / ((1 - quantized) + quantized / 1.4);
  // Gradient sums, norms and the optimizer read and write every parameter about ten times.
  const double memory = 40.0 * static_cast<double>(parameters) / 10e9;
  return flops.total() * 1e12 / 2 * recomputed / (macs_per_second * speed) + memory;
}

std::string RoughDuration(double seconds) {
  constexpr double kHour = 3600, kDay = 24 * kHour, kYear = 365.25 * kDay;
  if (seconds < 0.9995) return fmt::format("{} ms", std::max<int64_t>(1, std::lround(seconds * 1000)));
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  if (seconds < 119.5) return fmt::format("{:.0f} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 2 * kDay) return fmt::format("{:.1f} hours", seconds / kHour);
  if (seconds < kYear) return fmt::format("{:.1f} days", seconds / kDay);
  return fmt::format("{:.1f} years", seconds / kYear);
}

std::string EstimateText(double step_seconds, int64_t steps) {
  const double all = step_seconds * static_cast<double>(steps);
  std::string text = fmt::format("{} per step, {} for {} step{}", RoughDuration(step_seconds), RoughDuration(all),
                                 steps, steps == 1 ? "" : "s");
  if (all > 12 * 3600) text += "; to try it out add steps=20 per_device_batch_size=1 max_target_length=128";
  return text;
}

PlanSummary SummarizePlan(const quant::Plan& plan) {
  const std::string lines = quant::CoverageLine(plan);
  const size_t end = lines.find('\n');
  PlanSummary summary{lines.substr(10, end - 10), ""};
  std::vector<std::string> left;
  for (const quant::SitePlan& site : plan.sites) {
    // The scales of norms have sites too; nobody asks for them here.
    if (site.treatment || 1000 * site.macs < plan.macs()) continue;
    std::string path = ops::ScannedPath(site.site.path);
    if (std::find(left.begin(), left.end(), path) == left.end()) left.push_back(std::move(path));
  }
  if (left.empty() || plan.rules.empty()) return summary;
  const size_t shown = std::min<size_t>(left.size(), 6);
  summary.left_in_float =
      fmt::format("float: {}{}", fmt::join(left.begin(), left.begin() + static_cast<int>(shown), ", "),
                  shown < left.size() ? fmt::format(" and {} more", left.size() - shown) : "");
  return summary;
}

std::string_view ProcessorName() {
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "arm64";
#else
  return "cpu";
#endif
}

std::string CountText(int64_t count) {
  const auto value = static_cast<double>(count);
  if (value < 1e4) return fmt::format("{}", count);
  if (value < 999.5e3) return fmt::format("{:.3g} k", value / 1e3);
  if (value < 999.5e6) return fmt::format("{:.3g} M", value / 1e6);
  return fmt::format("{:.3g} B", value / 1e9);
}

}  // namespace octavo::train
