// The learning rate of each step: linear warm-up, then a cosine, or a stable part with a decay at the end (WSD), then
// zero. A pure function of the step, so a resumed run needs nothing stored. Used by the trainer.
#pragma once

#include <cstdint>

namespace octavo::optim {

enum class ScheduleKind : uint8_t { kCosine, kWsd };
enum class DecayStyle : uint8_t { kLinear, kCosine };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 3e-5;               // learning_rate
  double final_fraction = 0.1;      // learning_rate_final_fraction, of the peak
  double warmup_fraction = 0.1;     // warmup_steps_fraction, of schedule_steps
  double wsd_decay_fraction = 0.1;  // wsd_decay_steps_fraction, of schedule_steps
  DecayStyle wsd_decay = DecayStyle::kLinear;
  int64_t schedule_steps = 0;  // learning_rate_schedule_steps with -1 resolved to steps
};

class Schedule {
 public:
  // Fractions outside [0, 1], or WSD fractions that add up to more than 1, are usage errors.
  explicit Schedule(const ScheduleConfig& config);

  // The rate of step `step`, counted from 0. Step 0 of a warm-up has rate 0; the last step of a decay has the final
  // rate; steps past the schedule have rate 0.
  double At(int64_t step) const;

  int64_t warmup_steps() const { return warmup_; }
  int64_t decay_steps() const { return decay_; }

 private:
  ScheduleConfig config_;
  int64_t warmup_ = 0, decay_ = 0;
};

}  // namespace octavo::optim
