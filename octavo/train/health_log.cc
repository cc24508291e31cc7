#include "octavo/train/health_log.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "octavo/base/check.h"

namespace octavo::train {
namespace {

using quant::HealthMode;
using quant::OperandHealth;
static_assert(std::is_trivially_copyable_v<OperandHealth>, "ranks send it as bytes");

constexpr int64_t kRing = 50;     // steps that are remembered
constexpr int64_t kRecent = 100;  // growth of magnitudes is told when it took no more steps

nlohmann::ordered_json LineOf(int64_t step, const std::string& shadow, const quant::HealthKey& key,
                              const OperandHealth& health) {
  nlohmann::ordered_json line = {{"event", shadow.empty() ? "quant" : "quant_shadow"},
                                 {"step", step},
                                 {"site", key.site},
                                 {"operand", key.operand},
                                 {"format", Info(health.format).name},
                                 {"elements", health.elements},
                                 {"saturated", health.SaturatedShare()},
                                 {"nonfinite", health.nonfinite}};
  if (!shadow.empty()) line["recipe"] = shadow;
  if (health.measured == 0) return line;
  line["flushed"] = health.FlushedShare();
  if (std::isfinite(health.Sqnr())) line["sqnr_db"] = health.Sqnr();
  line["amax"] = health.amax;
  line["smallest"] = health.smallest;
  line["scale_min"] = health.scale_min;
  line["scale_max"] = health.scale_max;
  return line;
}

}  // namespace

HealthLog::HealthLog(const Settings& settings, std::string shadow)
    : shadow_(std::move(shadow)),
      mode_(shadow_.empty() ? quant::ParseHealthMode(settings.Text("quant_stats")) : HealthMode::kLight),
      period_(std::max<int64_t>(1, settings.Int("quant_stats_period"))),
      sink_(mode_, settings.Text("quant_stats_filter")) {}

void HealthLog::MeasureAll() {
  if (mode_ != HealthMode::kOff) sink_.SetMode(HealthMode::kFull);
  first_shard_only_ = false;
}

bool HealthLog::MeasuresAll(int64_t step) const { return mode_ == HealthMode::kFull || step % period_ == 0; }

void HealthLog::BeforeStep(int64_t step, int rank) {
  if (mode_ == HealthMode::kOff) return;
  full_step_ = MeasuresAll(step);
  first_shard_only_ = full_step_ && mode_ != HealthMode::kFull;
  const bool measures = full_step_ && (!first_shard_only_ || rank == 0);
  sink_.SetMode(measures ? HealthMode::kFull : HealthMode::kLight);
}

void HealthLog::EndShard() {
  if (sink_.mode() != HealthMode::kOff) shards_.push_back(sink_.Take());
  if (first_shard_only_) sink_.SetMode(HealthMode::kLight);
}

quant::HealthRecords HealthLog::Collect(Communicator& communicator) {
  const std::vector<quant::HealthRecords> own = std::exchange(shards_, {});
  // Every rank ran the same model on as many shards, so all have the same keys in the same order.
  std::vector<OperandHealth> mine;
  for (const quant::HealthRecords& shard : own) {
    for (const auto& item : shard) mine.push_back(item.second);
  }
  std::vector<OperandHealth> all(mine.size() * static_cast<size_t>(communicator.size()));
  communicator.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  quant::HealthRecords merged;
  size_t at = 0;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    for (const quant::HealthRecords& shard : own) {
      for (const auto& item : shard) {
        const OperandHealth& one = all[at++];
        if (rank == 0 || !one.once) merged[item.first].Merge(one);
      }
    }
  }
  return merged;
}

void HealthLog::AfterStep(int64_t step, Communicator& communicator) {
  records_.clear();
  if (mode_ == HealthMode::kOff) return;
  records_ = Collect(communicator);
  for (const auto& item : records_) {
    elements_ += item.second.elements;
    saturated_ += item.second.saturated;
    nonfinite_ += item.second.nonfinite;
  }
  Remember(step);
}

quant::HealthRecords HealthLog::TakeReplay(Communicator& communicator) {
  Pause();
  return mode_ == HealthMode::kOff ? quant::HealthRecords{} : Collect(communicator);
}

void HealthLog::Remember(int64_t step) {
  Noted noted{step, {}};
  for (const auto& item : records_) {
    if (item.second.saturated > 0 || item.second.nonfinite > 0) noted.records.insert(item);
  }
  if (!noted.records.empty()) noted_.push_back(std::move(noted));
  while (!noted_.empty() && noted_.front().step <= step - kRing) noted_.pop_front();
  if (!full_step_) return;
  amax_before_.clear();
  if (last_full_.step >= 0 && step - last_full_.step <= kRecent) {
    for (const auto& item : last_full_.records) amax_before_[item.first] = item.second.amax;
  }
  last_full_ = {step, records_};
}

std::vector<std::string> HealthLog::Lines(int64_t step) const {
  std::vector<std::string> lines;
  for (const auto& [key, health] : records_) {
    if (!full_step_ && health.saturated == 0 && health.nonfinite == 0) continue;
    lines.push_back(LineOf(step, shadow_, key, health).dump());
  }
  return lines;
}

Scalars HealthLog::TensorBoardScalars() const {
  Scalars scalars;
  if (!full_step_) return scalars;
  for (const auto& [key, health] : records_) {
    const std::string root = shadow_.empty() ? "quant/" : "quant_shadow/" + shadow_ + "/";
    const std::string tag = root + key.site + "/" + key.operand + "/";
    scalars.emplace_back(tag + "saturated", health.SaturatedShare());
    scalars.emplace_back(tag + "flushed", health.FlushedShare());
    if (std::isfinite(health.Sqnr())) scalars.emplace_back(tag + "sqnr_db", health.Sqnr());
    scalars.emplace_back(tag + "amax", health.amax);
  }
  return scalars;
}

std::vector<std::string> HealthLog::NewWarnings() {
  std::vector<quant::HealthWarning> fresh;
  const std::map<quant::HealthKey, float> none;
  for (const quant::HealthWarning& warning : quant::FindHealthWarnings(records_, full_step_ ? amax_before_ : none)) {
    if (warned_.emplace(warning.key, warning.issue).second) fresh.push_back(warning);
  }
  return quant::WarningLines(fresh);
}

std::string HealthLog::Summary() const {
  if (elements_ == 0) return "";
  return fmt::format("saturated {:.2f} %   non-finite {}",
                     100 * static_cast<double>(saturated_) / static_cast<double>(elements_), nonfinite_);
}

}  // namespace octavo::train
