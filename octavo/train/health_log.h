// Quantization health of a run: decides how much each step measures, merges what the ranks saw, and turns it into
// lines of quant.jsonl, TensorBoard scalars, warnings, and the figures of the last line. Remembers the last steps for
// the report of one that breaks. The measuring is quant/health.h. Recipes not in use have one each (shadow.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "octavo/base/log.h"
#include "octavo/config/settings.h"
#include "octavo/dist/communicator.h"
#include "octavo/quant/health_warnings.h"
#include "octavo/train/event_file.h"
#include "octavo/train/json_lines.h"

namespace octavo::train {

class HealthLog {
 public:
  // quant_stats, quant_stats_period, quant_stats_filter. With `shadow`, the name of a recipe not in use, nothing but
  // steps that measure all.
  explicit HealthLog(const Settings& settings, std::string shadow = "");

  quant::HealthSink* sink() { return mode_ == quant::HealthMode::kOff ? nullptr : &sink_; }

  // Saturated and non-finite values are counted in every step; the rest with quant_stats=full in every step, else every
  // quant_stats_period steps on the first canonical shard alone, which rank 0 computes: a full measurement costs more
  // than a step, and a part of the batch says as much about shares and ratios.
  void BeforeStep(int64_t step, int rank);
  bool MeasuresAll(int64_t step) const;
  void MeasureAll();  // for a replay
  // After each shard of this rank: figures are added in the order of shards, whoever computed them.
  void EndShard();
  // What the step's shards saw, over all ranks. Collective.
  void AfterStep(int64_t step, Communicator& communicator);
  // The same of a replay, after MeasureAll: all figures, and no trace in what is remembered. Collective.
  quant::HealthRecords TakeReplay(Communicator& communicator);
  // Nothing is recorded until the next step: evaluation, replays.
  void Pause() {
    sink_.SetMode(quant::HealthMode::kOff);
    first_shard_only_ = false;
  }

  // Lines for quant.jsonl: every operand of a step that measured all, else only those with something to say.
  std::vector<std::string> Lines(int64_t step) const;
  Scalars TensorBoardScalars() const;  // of a step that measured all
  // Warnings that were not given before, once per site, operand and issue.
  std::vector<std::string> NewWarnings();
  const quant::HealthRecords& records() const { return records_; }  // of the last step
  // Of the last 50 steps those in which a value was clipped or not finite, oldest first.
  struct Noted {
    int64_t step;
    quant::HealthRecords records;
  };
  const std::deque<Noted>& noted() const { return noted_; }
  // The last step that measured all.
  const Noted& last_full() const { return last_full_; }
  // "saturated 0.00 %   non-finite 0" of the whole run; empty when nothing was counted.
  std::string Summary() const;
  const std::string& shadow() const { return shadow_; }

 private:
  quant::HealthRecords Collect(Communicator& communicator);
  void Remember(int64_t step);

  std::string shadow_;
  quant::HealthMode mode_;
  int64_t period_;
  quant::HealthSink sink_;
  bool full_step_ = false;
  bool first_shard_only_ = false;             // the rest of this step is counted only
  std::vector<quant::HealthRecords> shards_;  // of this rank, in the step that is being made
  quant::HealthRecords records_;              // of the last step
  std::set<std::pair<quant::HealthKey, quant::HealthIssue>> warned_;
  std::deque<Noted> noted_;
  Noted last_full_{-1, {}};
  std::map<quant::HealthKey, float> amax_before_;  // of the full step before the last, when that was recent
  int64_t elements_ = 0, saturated_ = 0, nonfinite_ = 0;
};

}  // namespace octavo::train
