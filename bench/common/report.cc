#include "bench/common/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace octavo::bench {
namespace {

using Json = nlohmann::ordered_json;

void PrintLine(const Json& object) { fmt::print("{}\n", object.dump()); }

}  // namespace

void Report::Header(const std::string& versions) {
  if (json_) {
    PrintLine({{"type", "limits"},
               {"versions", versions},
               {"fma_gmacs", limits_.fma_gmacs},
               {"madd_gmacs", limits_.madd_gmacs},
               {"read_gb_per_s", limits_.read_gb_per_s}});
    return;
  }
  fmt::print("{}\n", versions);
  fmt::print(
      "limits at the start (measured again for each shape): FMA {:.1f} GMAC/s, int8 sums {:.1f} GMAC/s, reads {:.1f} "
      "GB/s\n",
      limits_.fma_gmacs, limits_.madd_gmacs, limits_.read_gb_per_s);
  fmt::print("spread: between the quartiles; share: of the limit of the arithmetic, of the read bandwidth\n\n");
  fmt::print("{:<22} {:>17} {:>2}  {:<22} {:>10} {:>6} {:>7} {:>6} {:>5} {:>5} {:>7}  {}\n", "shape", "M x N x K", "",
             "who", "median ms", "spread", "GMAC/s", "GB/s", "share", "reads", "x fp32", "check");
}

void Report::Add(const Shape& shape, const std::vector<Contender>& contenders, const std::vector<Timing>& timings) {
  double best = 1e300;
  for (size_t i = 0; i < contenders.size(); ++i) {
    if (contenders[i].baseline) best = std::min(best, timings[i].median);
  }
  for (size_t i = 0; i < contenders.size(); ++i) {
    const Contender& c = contenders[i];
    const Timing& t = timings[i];
    const double gmacs = c.macs / t.median * 1e-9, gb = c.bytes / t.median * 1e-9;
    const double share = gmacs / (c.limit == Limit::kFma ? limits_.fma_gmacs : limits_.madd_gmacs);
    const double reads = gb / limits_.read_gb_per_s, ratio = best / t.median;
    Score& score = scores_[fmt::format("{} {:<8} {}", shape.decode() ? "decode" : "train ", c.family, c.name)];
    score.log_sum += std::log(ratio);
    score.share_sum += reads;
    score.shapes += 1;
    if (ratio < score.worst) score.worst = ratio, score.worst_shape = shape.name + "/" + shape.form;
    if (reads < score.worst_share) score.worst_share = reads, score.worst_share_shape = shape.name;
    if (json_) {
      PrintLine({{"type", "row"},
                 {"shape", shape.name},
                 {"group", shape.group},
                 {"form", shape.form},
                 {"m", shape.m},
                 {"n", shape.n},
                 {"k", shape.k},
                 {"family", c.family},
                 {"who", c.name},
                 {"median_ms", t.median * 1e3},
                 {"least_ms", t.least * 1e3},
                 {"spread", t.spread},
                 {"gmacs", gmacs},
                 {"gb_per_s", gb},
                 {"limit_gmacs", c.limit == Limit::kFma ? limits_.fma_gmacs : limits_.madd_gmacs},
                 {"limit_gb_per_s", limits_.read_gb_per_s},
                 {"share_of_limit", share},
                 {"share_of_reads", reads},
                 {"ratio_to_best_f32", ratio},
                 {"right", t.verdict.right},
                 {"wrong_share", t.verdict.wrong_share},
                 {"check", t.verdict.text}});
    } else {
      fmt::print(
          "{:<22} {:>17} {:>2}  {:<22} {:>10.3f} {:>5.1f}% {:>7.1f} {:>6.1f} {:>4.0f}% {:>4.0f}% {:>7.3f}  {}\n",
          shape.name, fmt::format("{}x{}x{}", shape.m, shape.n, shape.k), shape.form, c.family + " " + c.name,
          t.median * 1e3, t.spread * 100, gmacs, gb, share * 100, reads * 100, ratio,
          t.verdict.right ? t.verdict.text : fmt::format("WRONG: {:.1f}% of outputs", t.verdict.wrong_share * 100));
    }
  }
  std::fflush(stdout);
}

void Report::Finish() {
  if (!json_) {
    fmt::print("\n{:<40} {:>6} {:>10} {:>8}  {:<28} {:>8}\n", "geometric means against the best fp32", "shapes", "mean",
               "worst", "at", "of reads");
  }
  for (const auto& [name, score] : scores_) {
    const double mean = std::exp(score.log_sum / score.shapes), share = score.share_sum / score.shapes;
    if (json_) {
      PrintLine({{"type", "summary"},
                 {"who", name},
                 {"shapes", score.shapes},
                 {"mean_ratio", mean},
                 {"worst_ratio", score.worst},
                 {"worst_shape", score.worst_shape},
                 {"mean_share_of_reads", share},
                 {"worst_share_of_reads", score.worst_share}});
    } else {
      fmt::print("{:<40} {:>6} {:>10.3f} {:>8.3f}  {:<28} {:>7.0f}%\n", name, score.shapes, mean, score.worst,
                 score.worst_shape, share * 100);
    }
  }
}

}  // namespace octavo::bench
