// ./run bench convergence: does a recipe learn as well as fp32? Every recipe trains the same small model on the shipped
// text with three seeds and equal tokens; held-out losses are compared seed by seed. Because AdamW hides a gradient
// that is wrong by a constant factor, the gradients of the first steps are compared with those of fp32 as well: a
// planted fault (one layer's weight gradients twice as large) must show up in the same table. With --keep FILE finished
// runs are written there and not made again, so that the table can be made in pieces.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/common/driver.h"
#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/cli/args.h"
#include "octavo/config/settings.h"
#include "octavo/dist/communicator.h"
#include "octavo/train/trainer.h"

namespace octavo::bench {
namespace {

constexpr double kGapBar = 0.01;       // nats
constexpr double kGradientBar = 1.25;  // factor between a recipe's and fp32's norm of one weight's gradient
constexpr int kGradientSteps = 4;

struct Recipe {
  std::string name;
  std::vector<std::string> words;
  bool planted = false;  // a fault that the table must find
  bool judged = true;    // the bar applies
};

const Recipe kRecipes[] = {
    {"fp32", {}, false, false},
    {"int8", {"quantization=int8", "use_qwix_quantization=true"}},
    {"fp8", {"quantization=fp8", "use_qwix_quantization=true"}, false, false},
    {"fp8_full", {"quantization=fp8_full", "use_qwix_quantization=true"}},
    {"int8, planted", {"quantization=int8", "use_qwix_quantization=true"}, true},
};

struct Outcome {
  double loss = 0;                      // held out
  std::map<std::string, double> norms;  // of each parameter's gradient, mean over the first steps
};

double NormOf(const Tensor& gradient) {
  double sum = 0;
  if (!gradient.defined()) return 0;
  const Tensor packed = gradient.Contiguous();
  for (const float value : packed.Values<float>()) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

void Double(Tensor& gradient) {
  gradient = gradient.Clone();
  for (float& value : gradient.MutableValues<float>()) value *= 2;
}

Outcome TrainOnce(const Recipe& recipe, int seed, int64_t steps, ThreadPool& pool) {
  const TempFolder folder;
  std::vector<std::string> words = {"run_name=x",
                                    "base_output_directory=" + folder.path().string(),
                                    "dataset_type=files",
                                    std::string("data_files=") + OCTAVO_SOURCE_DIR + "/examples/data/shakespeare.txt",
                                    "tokenizer_path=bytes",
                                    "vocab_size=258",
                                    "eval_fraction=0.05",
                                    "dtype=float32",
                                    "base_emb_dim=96",
                                    "base_num_decoder_layers=3",
                                    "base_num_query_heads=4",
                                    "base_num_kv_heads=4",
                                    "head_dim=24",
                                    "base_mlp_dim=256",
                                    "max_target_length=128",
                                    "per_device_batch_size=8",
                                    "learning_rate=0.003",
                                    "remat_policy=none",
                                    "enable_checkpointing=false",
                                    "enable_tensorboard=false",
                                    "quant_stats=off",
                                    fmt::format("eval_interval={}", steps),
                                    fmt::format("steps={}", steps),
                                    fmt::format("init_weights_seed={}", seed),
                                    fmt::format("data_shuffle_seed={}", seed)};
  words.insert(words.end(), recipe.words.begin(), recipe.words.end());
  const Settings settings = Settings::Load({.words = words});
  Log log(STDERR_FILENO, {.level = LogLevel::kWarning});
  SelfCommunicator self;
  Outcome outcome;
  const auto look = [&](int64_t step, const std::vector<std::string>& names, optim::Gradients& gradients) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (recipe.planted && names[i].find("layers_1/mlp/wi_0") != std::string::npos) Double(gradients[i]);
      if (step < kGradientSteps) outcome.norms[names[i]] += NormOf(gradients[i]) / kGradientSteps;
    }
  };
  const train::TrainSummary summary = train::Train({.settings = settings,
                                                    .log = log,
                                                    .pool = pool,
                                                    .communicator = self,
                                                    .isa = kernels::ChooseIsa().isa,
                                                    .on_gradients = look});
  outcome.loss = summary.exit_code == 0 ? summary.last_eval_loss : NAN;
  return outcome;
}

// Finished runs of a file, by recipe, seed and length.
class Kept {
 public:
  explicit Kept(std::string path) : path_(std::move(path)) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_discarded()) continue;  // cut off by the end of the run that wrote it
      Outcome& outcome = outcomes_[json.at("run").get<std::string>()];
      outcome.loss = json.at("loss").is_null() ? NAN : json.at("loss").get<double>();
      outcome.norms = json.at("norms").get<std::map<std::string, double>>();
    }
  }

  Outcome Get(const Recipe& recipe, int seed, int64_t steps, ThreadPool& pool) {
    const std::string run = fmt::format("{} seed {} steps {}", recipe.name, seed, steps);
    if (const auto found = outcomes_.find(run); found != outcomes_.end()) return found->second;
    Outcome outcome = TrainOnce(recipe, seed, steps, pool);
    if (!path_.empty()) {
      std::ofstream(path_, std::ios::app)
          << nlohmann::json({{"run", run}, {"loss", outcome.loss}, {"norms", outcome.norms}}).dump() << std::endl;
    }
    return outcome;
  }

 private:
  std::string path_;
  std::map<std::string, Outcome> outcomes_;
};

struct Interval {
  double mean, half;  // of a 95 % interval
};

Interval IntervalOf(const std::vector<double>& values) {
  constexpr double kStudent[] = {0, 0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  const size_t n = values.size();
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(n);
  for (const double value : values) squares += (value - mean) * (value - mean);
  if (n < 2) return {mean, 0};
  const double sigma = std::sqrt(squares / static_cast<double>(n - 1));
  return {mean, kStudent[std::min<size_t>(n, 10)] * sigma / std::sqrt(static_cast<double>(n))};
}

// The weight whose gradient differs most in size from fp32's.
std::pair<std::string, double> WorstGradient(const Outcome& outcome, const Outcome& fp32) {
  std::pair<std::string, double> worst{"", 1};
  for (const auto& [name, norm] : outcome.norms) {
    const double other = fp32.norms.at(name);
    if (norm <= 0 || other <= 0) continue;
    if (std::fabs(std::log(norm / other)) > std::fabs(std::log(worst.second))) worst = {name, norm / other};
  }
  return worst;
}

int Run(const Args& args) {
  const int64_t steps = args.Int("steps", 200, kGradientSteps, 1'000'000), seeds = args.Int("seeds", 3, 1, 10);
  ThreadPool pool(args.Threads());
  fmt::print(
      "held-out loss after {} steps of 8 × 128 bytes, {} seeds, mean ± 95 % interval; gap to fp32 seed by seed\n",
      steps, seeds);
  Kept kept(args.Text("keep", ""));
  std::map<std::string, std::vector<Outcome>> outcomes;
  bool good = true;
  for (const Recipe& recipe : kRecipes) {
    std::vector<double> losses, gaps;
    std::pair<std::string, double> worst{"", 1};
    for (int64_t seed = 0; seed < seeds; ++seed) {
      outcomes[recipe.name].push_back(kept.Get(recipe, static_cast<int>(seed), steps, pool));
      const Outcome &own = outcomes[recipe.name].back(), &fp32 = outcomes["fp32"][static_cast<size_t>(seed)];
      losses.push_back(own.loss);
      gaps.push_back(own.loss - fp32.loss);
      const auto one = WorstGradient(own, fp32);
      if (std::fabs(std::log(one.second)) > std::fabs(std::log(worst.second))) worst = one;
    }
    const Interval loss = IntervalOf(losses), gap = IntervalOf(gaps);
    const bool gradient_wrong = worst.second > kGradientBar || worst.second < 1 / kGradientBar;
    const bool behind = !(gap.mean <= kGapBar);
    std::string verdict = gradient_wrong
                              ? fmt::format("WRONG: gradient of {} is {:.2f} × fp32's", worst.first, worst.second)
                          : behind ? fmt::format("BEHIND by more than {} nats", kGapBar)
                                   : "ok";
    if (recipe.planted) {
      good &= gradient_wrong;
      verdict += gradient_wrong ? "   (planted, found)" : "   (planted, NOT FOUND)";
    } else if (recipe.judged) {
      good &= !gradient_wrong && !behind;
    }
    fmt::print("  {:<14} {:.4f} ± {:.4f}   gap {:+.4f} ± {:.4f}   largest gradient ratio {:.3f}   {}\n", recipe.name,
               loss.mean, loss.half, gap.mean, gap.half, worst.second, verdict);
    std::fflush(stdout);
  }
  return good ? 0 : static_cast<int>(ErrorCode::kCheck);
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using octavo::OptionSpec;
  const octavo::VerbSpec verb{
      .name = "bench convergence",
      .synopsis = "[--steps N] [--seeds N] [--keep FILE]",
      .summary = "held-out loss of recipes against fp32",
      .details = "",
      .options = {OptionSpec{"steps", "N", "training steps"}, OptionSpec{"seeds", "N", "runs of each recipe"},
                  OptionSpec{"keep", "FILE", "finished runs are kept here and not made again"}}};
  return octavo::bench::RunDriver(verb, argc, argv, octavo::bench::Run);
}
