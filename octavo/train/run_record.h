// What a run left behind, read back: metrics.jsonl, quant.jsonl and the config. Used by the report and by comparisons;
// a run that is still going reads as far as it got.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace octavo::train {

struct Series {
  std::vector<double> x, y;
};

// Health of one operand of one site at one step, from quant.jsonl.
struct HealthPoint {
  int64_t step = 0;
  std::string site, operand;
  double saturated = 0, flushed = 0, sqnr_db = 0, amax = 0;  // shares of 1; sqnr is NaN when it was not taken
  double scale_min = 0, scale_max = 0;
  int64_t nonfinite = 0;
};

struct RunRecord {
  std::string name;
  std::map<std::string, Series> train;  // by tag: "learning/loss", …; x is the step
  std::map<std::string, Series> eval;   // "eval/avg_loss", …
  std::vector<HealthPoint> health;
  std::string config;                // lines that differ from the defaults
  std::vector<int64_t> checkpoints;  // the steps that were saved, ascending
};

// A folder without metrics.jsonl is a usage error.
RunRecord ReadRun(const std::filesystem::path& run);

}  // namespace octavo::train
