// What a run prints before its first step: machine, config, model, memory, plan, data, and the price in time. Nobody
// should wait for a run that was never going to end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "octavo/models/model.h"
#include "octavo/ops/context.h"
#include "octavo/quant/plan.h"
#include "octavo/train/flops.h"
#include "octavo/train/options.h"

namespace octavo::train {

// Bytes that training holds at its peak, by kind. Activations are those of one shard under the remat policy; an
// estimate, good to about a fifth.
struct MemoryEstimate {
  double parameters = 0, moments = 0, gradients = 0, activations = 0, logits = 0;
  double total() const { return parameters + moments + gradients + activations + logits; }
};
MemoryEstimate EstimateMemory(const models::ModelConfig& config, int64_t parameters, const TrainOptions& options);

// Memory that can still be had on this machine, and all that it has, in bytes; 0 when it cannot be told.
double AvailableMemory();
double PhysicalMemory();

// What is wrong with the memory that a run needs, said before it is taken: an error when the machine surely does not
// have it, a warning when it may not be enough. Nothing when it fits or when `available` and `physical` are not known.
struct MemoryProblem {
  bool cannot_fit = false;
  std::string text, fix;
};
std::optional<MemoryProblem> FindMemoryProblem(const MemoryEstimate& memory, const TrainOptions& options,
                                               double available, double physical);

// Seconds of a step: its multiply-adds by the speed of a short f32 product measured here, with what int8 saves and
// recomputing costs. Good to a factor of about 1.5.
double EstimateStepSeconds(ops::Context& context, const StepFlops& flops, const quant::Plan& plan,
                           const TrainOptions& options, int64_t parameters);

// "1.9 s per step, 38 s for 20 steps", and when that is more than hours, how to try the run out.
std::string EstimateText(double step_seconds, int64_t steps);

// "850 ms", "11 min", "3.1 years".
std::string RoughDuration(double seconds);

// "int8 fwd, int8 bwd   42 of 44 matmuls   98.7 % of FLOPs", and a second line with what stays in float, layers merged.
struct PlanSummary {
  std::string coverage, left_in_float;
};
PlanSummary SummarizePlan(const quant::Plan& plan);

// "x86-64", as the first line says.
std::string_view ProcessorName();
// "21.4 M", "1.24 B".
std::string CountText(int64_t count);

}  // namespace octavo::train
