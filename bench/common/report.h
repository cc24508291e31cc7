// The table of a benchmark: one row per contender and shape, then means and worst shapes per contender. As text or,
// with
// --json, one object per line.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/common/harness.h"
#include "bench/common/shapes.h"
#include "octavo/kernels/limits.h"

namespace octavo::bench {

class Report {
 public:
  Report(bool json, const kernels::MachineLimits& limits) : json_(json), limits_(limits) {}

  void Header(const std::string& versions);
  // The limits change while a virtual machine runs: those of the rows that follow.
  void SetLimits(const kernels::MachineLimits& limits) { limits_ = limits; }
  void Add(const Shape& shape, const std::vector<Contender>& contenders, const std::vector<Timing>& timings);
  void Finish();

 private:
  // Ratios to the best fp32 of the same shape, and shares of the read bandwidth, for the summary.
  struct Score {
    double log_sum = 0, worst = 1e300, share_sum = 0, worst_share = 1e300;
    std::string worst_shape, worst_share_shape;
    int shapes = 0;
  };

  bool json_;
  kernels::MachineLimits limits_;
  std::map<std::string, Score> scores_;
};

}  // namespace octavo::bench
