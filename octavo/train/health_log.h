// Quantization health of a run: decides how much each step measures, merges what the ranks saw, and turns it into
// lines of quant.jsonl, TensorBoard scalars, one warning per site, and the figures of the last line. The measuring is
// quant/health.h.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "octavo/base/log.h"
#include "octavo/config/settings.h"
#include "octavo/dist/communicator.h"
#include "octavo/quant/health.h"
#include "octavo/train/event_file.h"
#include "octavo/train/json_lines.h"

namespace octavo::train {

class HealthLog {
 public:
  // quant_stats, quant_stats_period, quant_stats_filter.
  explicit HealthLog(const Settings& settings);

  quant::HealthSink* sink() { return mode_ == quant::HealthMode::kOff ? nullptr : &sink_; }

  // Saturated and non-finite values are counted in every step; the rest every quant_stats_period steps, or in every
  // step with quant_stats=full.
  void BeforeStep(int64_t step);
  // What the step's shards saw, over all ranks. Collective.
  void AfterStep(Communicator& communicator);
  // Nothing is recorded until the next step: evaluation, replays.
  void Pause() { sink_.SetMode(quant::HealthMode::kOff); }

  // Lines for quant.jsonl: every operand of a step that measured all, else only those with something to say.
  std::vector<std::string> Lines(int64_t step) const;
  Scalars TensorBoardScalars() const;  // of a step that measured all
  // Warnings that were not given before.
  std::vector<std::string> NewWarnings();
  // "saturated 0.00 %   non-finite 0" of the whole run; empty when nothing was counted.
  std::string Summary() const;

 private:
  quant::HealthMode mode_;
  int64_t period_;
  quant::HealthSink sink_;
  bool full_step_ = false;
  quant::HealthRecords records_;  // of the last step
  std::set<std::string> warned_;
  int64_t elements_ = 0, saturated_ = 0, nonfinite_ = 0;
};

}  // namespace octavo::train
