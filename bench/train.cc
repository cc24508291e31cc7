// ./run bench train: whole training steps of two sizes, fp32 and int8, and PyTorch where it is installed. Contenders
// take turns in processes of their own; ratios are those of medians.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>

#include "bench/common/driver.h"
#include "bench/train.h"
#include "octavo/base/error.h"
#include "octavo/cli/args.h"
#include "octavo/kernels/isa.h"

namespace octavo::bench {
namespace {

struct Bar {
  std::string what;
  double value, bar;
  bool at_most;
};

void PrintBar(const Bar& bar) {
  const bool met = bar.at_most ? bar.value <= bar.bar : bar.value >= bar.bar;
  fmt::print("  {:<58} {:>6.2f}   bar {} {:.2f}   {}\n", bar.what, bar.value, bar.at_most ? "≤" : "≥", bar.bar,
             met ? "met" : "MISSED");
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// All rounds of one contender.
struct Total {
  std::vector<double> seconds;
  TrainMeasurement last;
  double step() const { return Median(seconds); }
};

double QuantizedSeconds(const TrainMeasurement& run, const std::vector<std::string>& sites) {
  double total = 0;
  for (const std::string& site : sites) {
    const auto found = run.site_seconds.find(site);
    if (found != run.site_seconds.end()) total += found->second;
  }
  return total;
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

struct RaceOptions {
  std::vector<std::string> contenders;  // recipes of ours, and PyTorch's modes
  int rounds, steps, threads;
};

std::map<std::string, Total> Race(const std::string& size, const RaceOptions& options) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string n = std::to_string(options.steps), t = std::to_string(options.threads);
  std::vector<std::vector<std::string>> commands;
  for (const std::string& contender : options.contenders) {
    if (contender.starts_with("eager") || contender.starts_with("compile")) {
      commands.push_back({"python3", std::string(OCTAVO_SOURCE_DIR) + "/tools/train_pytorch", contender, size, n, t});
    } else {
      commands.push_back({self, "--one", contender, "--size", size, "--steps", n, "--threads", t});
    }
  }
  std::map<std::string, Total> totals;
  for (int round = 0; round < options.rounds; ++round) {
    for (const std::vector<std::string>& command : commands) {
      const TrainMeasurement m = Measure(command);
      if (!m.skipped.empty()) {
        if (round == 0) fmt::print("  {:<16} skipped: {}\n", m.contender, m.skipped);
        continue;
      }
      // As it goes: a run that is cut short still says something.
      fmt::print("  round {}   {:<16} {:.3f} s a step\n", round + 1, m.contender, Median(m.seconds));
      std::fflush(stdout);
      Total& total = totals[m.contender];
      total.seconds.insert(total.seconds.end(), m.seconds.begin(), m.seconds.end());
      total.last = m;
    }
  }
  return totals;
}

void Report(const std::string& name, const std::map<std::string, Total>& totals, bool profile) {
  const TrainSize& size = TrainSizeByName(name);
  const double tokens = size.rows * size.length;
  for (const auto& [contender, total] : totals) {
    fmt::print("  {:<16} {:>8.3f} s a step   {:>7.0f} tok/s   peak {:>5.2f} GiB   loss {:.3f}", contender, total.step(),
               tokens / total.step(), total.last.peak_bytes / (1 << 30), total.last.loss);
    if (total.last.attributed_share > 0) {
      fmt::print("   outside matmul and attention {:.1f} %, profile covers {:.0f} %", 100 * total.last.outside_share,
                 100 * total.last.attributed_share);
    }
    fmt::print("\n");
  }
  if (!totals.contains("octavo fp32") || !totals.contains("octavo int8")) return;
  const Total &fp32 = totals.at("octavo fp32"), &int8 = totals.at("octavo int8");
  const bool m = name == "M";
  PrintBar({"int8 ÷ fp32", fp32.step() / int8.step(), m ? 1.28 : 1.12, false});
  if (m) {
    const std::vector<std::string>& sites = int8.last.quantized_sites;
    PrintBar({"quantized matmuls alone, int8 ÷ fp32",
              QuantizedSeconds(fp32.last, sites) / std::max(1e-9, QuantizedSeconds(int8.last, sites)), 1.5, false});
    PrintBar({"int8: % of time outside matmul and attention", 100 * int8.last.outside_share, 20, true});
    PrintBar({"fp32: % of time outside matmul and attention", 100 * fp32.last.outside_share, 20, true});
  }
  for (const bool avx2 : {false, true}) {
    const Total* torch = nullptr;  // the better of eager and compile
    for (const auto& item : totals) {
      if (!item.first.starts_with("PyTorch") || item.first.ends_with("-avx2") != avx2) continue;
      if (torch == nullptr || item.second.step() < torch->step()) torch = &item.second;
    }
    if (torch == nullptr) continue;
    const std::string peer = avx2 ? "PyTorch fp32 held to AVX2" : "PyTorch fp32";
    PrintBar({"fp32 ÷ " + peer, torch->step() / fp32.step(), 1.1, false});
    if (m) PrintBar({"int8 ÷ " + peer, torch->step() / int8.step(), 1.4, false});
    if (!avx2) PrintBar({"peak memory of fp32 ÷ PyTorch's", fp32.last.peak_bytes / torch->last.peak_bytes, 0.8, true});
  }
  if (profile) fmt::print("\nfp32, size {}:\n{}\nint8, size {}:\n{}", name, fp32.last.profile, name, int8.last.profile);
}

int Run(const Args& args) {
  const int steps = static_cast<int>(args.Int("steps", 0, 1, 1000)),
            threads = static_cast<int>(args.Int("threads", 2, 1, 256));
  const std::string sizes = args.Text("size", "S,M");
  if (args.Has("one")) return RunOneTraining(sizes, args.Text("one", ""), std::max(1, steps), threads);
  if (args.Has("stats")) {
    return RunStatsCost(args.Text("size", "S"), Split(args.Text("stats", "")), steps > 0 ? steps : 60, threads);
  }
  const int rounds = static_cast<int>(args.Int("rounds", 2, 1, 100));
  fmt::print("whole training steps, {} threads, {}\n", threads, kernels::NameOf(kernels::ChooseIsa().isa));
  for (const std::string& name : {std::string("S"), std::string("M")}) {
    if (sizes.find(name) == std::string::npos) continue;
    const TrainSize& size = TrainSizeByName(name);
    fmt::print("\nsize {}: emb {}, {} layers, {} heads, mlp {}, vocabulary {}, {} × {} tokens\n", name, size.emb,
               size.layers, size.heads, size.mlp, size.vocab, size.rows, size.length);
    std::fflush(stdout);
    const std::string ours = "fp32,int8", all = ours + ",eager,compile,eager-avx2";
    const RaceOptions options{Split(args.Text("contenders", args.Switch("no_peer") ? ours : all)), rounds,
                              steps > 0     ? steps
                              : name == "S" ? 6
                                            : 2,
                              threads};
    Report(name, Race(name, options), args.Switch("profile"));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using octavo::OptionSpec;
  const octavo::VerbSpec verb{
      .name = "bench train",
      .synopsis = "[--size S,M] [--rounds N] [--steps N] [--profile] [--no-peer] [--contenders LIST] [--stats RECIPES]",
      .summary = "whole training steps",
      .details = "",
      .options = {OptionSpec{"size", "S,M", "which sizes"}, OptionSpec{"rounds", "N", "turns of every contender"},
                  OptionSpec{"steps", "N", "timed steps of a turn"},
                  OptionSpec{"profile", "", "the tables by site too"}, OptionSpec{"no_peer", "", "without PyTorch"},
                  OptionSpec{"contenders", "LIST", "of fp32 int8 and other recipes, eager compile eager-avx2 …"},
                  OptionSpec{"stats", "RECIPES", "instead: what quant_stats=light costs under each"},
                  OptionSpec{"one", "RECIPE", "one contender, as JSON"}}};
  return octavo::bench::RunDriver(verb, argc, argv, octavo::bench::Run);
}
