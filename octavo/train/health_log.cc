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

nlohmann::ordered_json LineOf(int64_t step, const quant::HealthKey& key, const OperandHealth& health) {
  nlohmann::ordered_json line = {{"event", "quant"},
                                 {"step", step},
                                 {"site", key.site},
                                 {"operand", key.operand},
                                 {"format", Info(health.format).name},
                                 {"elements", health.elements},
                                 {"saturated", health.SaturatedShare()},
                                 {"nonfinite", health.nonfinite}};
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

HealthLog::HealthLog(const Settings& settings)
    : mode_(quant::ParseHealthMode(settings.Text("quant_stats"))),
      period_(std::max<int64_t>(1, settings.Int("quant_stats_period"))),
      sink_(mode_, settings.Text("quant_stats_filter")) {}

void HealthLog::BeforeStep(int64_t step) {
  if (mode_ == HealthMode::kOff) return;
  full_step_ = mode_ == HealthMode::kFull || step % period_ == 0;
  sink_.SetMode(full_step_ ? HealthMode::kFull : HealthMode::kLight);
}

void HealthLog::AfterStep(Communicator& communicator) {
  records_.clear();
  if (mode_ == HealthMode::kOff) return;
  const quant::HealthRecords own = sink_.Take();
  // Every rank ran the same model, so all have the same keys in the same order.
  std::vector<OperandHealth> mine;
  for (const auto& item : own) mine.push_back(item.second);
  std::vector<OperandHealth> all(mine.size() * static_cast<size_t>(communicator.size()));
  communicator.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (size_t rank = 0; rank < static_cast<size_t>(communicator.size()); ++rank) {
    quant::HealthRecords part;
    size_t at = rank * mine.size();
    for (const auto& item : own) part.emplace(item.first, all[at++]);
    quant::Merge(records_, part);
  }
  for (const auto& item : records_) {
    elements_ += item.second.elements;
    saturated_ += item.second.saturated;
    nonfinite_ += item.second.nonfinite;
  }
}

std::vector<std::string> HealthLog::Lines(int64_t step) const {
  std::vector<std::string> lines;
  for (const auto& [key, health] : records_) {
    if (!full_step_ && health.saturated == 0 && health.nonfinite == 0) continue;
    lines.push_back(LineOf(step, key, health).dump());
  }
  return lines;
}

Scalars HealthLog::TensorBoardScalars() const {
  Scalars scalars;
  if (!full_step_) return scalars;
  for (const auto& [key, health] : records_) {
    const std::string tag = "quant/" + key.site + "/" + key.operand + "/";
    scalars.emplace_back(tag + "saturated", health.SaturatedShare());
    scalars.emplace_back(tag + "flushed", health.FlushedShare());
    if (std::isfinite(health.Sqnr())) scalars.emplace_back(tag + "sqnr_db", health.Sqnr());
    scalars.emplace_back(tag + "amax", health.amax);
  }
  return scalars;
}

std::vector<std::string> HealthLog::NewWarnings() {
  std::vector<std::string> fresh;
  for (const std::string& warning : quant::HealthWarnings(records_)) {
    if (warned_.insert(warning.substr(0, warning.find(':'))).second) fresh.push_back(warning);
  }
  return fresh;
}

std::string HealthLog::Summary() const {
  if (elements_ == 0) return "";
  return fmt::format("saturated {:.2f} %   non-finite {}",
                     100 * static_cast<double>(saturated_) / static_cast<double>(elements_), nonfinite_);
}

}  // namespace octavo::train
