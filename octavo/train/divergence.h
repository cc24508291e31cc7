// What to tell somebody whose run broke: the step is computed again, exactly, and the first place where a number is
// not finite is named, with what led there and what might help. A step is a pure function of what is still there, so
// the report needs nothing that was kept in advance except the last figures of losses and health.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "octavo/data/batch.h"
#include "octavo/train/health_log.h"
#include "octavo/train/stepper.h"

namespace octavo::train {

// The figures of the last steps, for the report and to notice spikes.
class RecentSteps {
 public:
  struct Figures {
    int64_t step;
    double loss, grad_norm;
  };
  void Add(const Figures& figures);
  // How many standard deviations a loss lies above the mean of the last 200; 0 with fewer than 20 of them.
  double SigmaAbove(double loss) const;
  const std::deque<Figures>& figures() const { return figures_; }

 private:
  std::deque<Figures> figures_;
};

// Why a step must not be applied; empty when it may.
std::string WhatBroke(const StepResult& result, const TrainOptions& options);

struct DivergenceInput {
  int64_t step = 0;
  std::string reason;      // "loss is NaN"
  std::string checkpoint;  // the last good one; empty: none
  std::string recipe;      // quantization=…; empty: float
  const Settings& settings;
  const TrainOptions& options;
  HealthLog& health;
  const RecentSteps& recent;
};

// Computes the step again under observation, under another recipe and in float, and describes what was found: lines in
// the form of the start block. Collective over ranks.
std::string DivergenceReport(Stepper& stepper, const StepParts& parts, const data::Batch& batch,
                             const DivergenceInput& input);

}  // namespace octavo::train
