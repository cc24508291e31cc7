// A recipe that is not in use, measured beside a run (quant_shadow=…): the step is computed once more under it, from
// the same parameters and batch, and its loss and per-site health are reported. The run's own numbers are not touched.
// Running state of such a recipe moves on only with the steps that it measures.
#pragma once

#include <string>

#include "octavo/train/health_log.h"
#include "octavo/train/model_plan.h"
#include "octavo/train/stepper.h"

namespace octavo::train {

class Shadow {
 public:
  // `parts` are the run's; what the recipe changes takes the place of its own.
  Shadow(const Settings& settings, const std::string& recipe, const StepParts& parts, const TrainOptions& options);
  Shadow(const Shadow&) = delete;  // the stepper refers to the other members
  Shadow& operator=(const Shadow&) = delete;

  bool IsDue(int64_t step) const { return health_.MeasuresAll(step); }
  // One more computation of the step. Collective.
  StepResult Measure(const data::Batch& batch, int64_t step);

  const HealthLog& health() const { return health_; }
  bool has_measured() const { return last_step_ >= 0; }
  // "fp8_full   loss of step 300 2.913   saturated 0.00 %   non-finite 0   lowest SQNR 17.1 dB at … forward.lhs".
  std::string Summary() const;

 private:
  StepParts PartsOf(const StepParts& parts);

  Communicator& communicator_;
  HealthLog health_;
  quant::Plan plan_;
  quant::Provider provider_;
  ops::StateStore state_;
  Stepper stepper_;
  StepResult last_;
  int64_t last_step_ = -1;
};

}  // namespace octavo::train
