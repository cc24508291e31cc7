#include "octavo/optim/schedule.h"

#include <cmath>
#include <numbers>

#include "octavo/base/error.h"

namespace octavo::optim {
namespace {

void CheckFraction(const char* key, double value) {
  if (!(value >= 0 && value <= 1)) ThrowUsage("{}={}: expected a number from 0 to 1", key, value);
}

// From `from` at position 0 to `to` at the last of `length` positions.
double Decay(DecayStyle style, double from, double to, int64_t position, int64_t length) {
  const double share = length > 1 ? static_cast<double>(position) / static_cast<double>(length - 1) : 0;
  if (style == DecayStyle::kLinear) return from + (to - from) * share;
  const double a = 0.5 * (std::cos(std::numbers::pi * share) + 1);
  return from * a + to * (1 - a);
}

}  // namespace

Schedule::Schedule(const ScheduleConfig& config) : config_(config) {
  CheckFraction("warmup_steps_fraction", config.warmup_fraction);
  CheckFraction("wsd_decay_steps_fraction", config.wsd_decay_fraction);
  if (!(config.peak >= 0) || !std::isfinite(config.peak)) {
    ThrowUsage("learning_rate={}: expected a number that is not negative", config.peak);
  }
  const double steps = static_cast<double>(config.schedule_steps);
  warmup_ = static_cast<int64_t>(steps * config.warmup_fraction);
  if (config.kind == ScheduleKind::kCosine) {
    decay_ = config.schedule_steps - warmup_;
    return;
  }
  if (config.warmup_fraction + config.wsd_decay_fraction > 1) {
    ThrowUsage("warmup_steps_fraction={} and wsd_decay_steps_fraction={} add up to more than 1", config.warmup_fraction,
               config.wsd_decay_fraction);
  }
  decay_ = static_cast<int64_t>(steps * config.wsd_decay_fraction);
}

double Schedule::At(int64_t step) const {
  if (step >= config_.schedule_steps) return 0;
  if (step < warmup_) return config_.peak * (static_cast<double>(step) / static_cast<double>(warmup_));
  const int64_t decay_begin = config_.schedule_steps - decay_;
  if (step < decay_begin) return config_.peak;
  const DecayStyle style = config_.kind == ScheduleKind::kCosine ? DecayStyle::kCosine : config_.wsd_decay;
  return Decay(style, config_.peak, config_.peak * config_.final_fraction, step - decay_begin, decay_);
}

}  // namespace octavo::optim
