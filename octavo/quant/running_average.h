// The plain mean of everything seen so far, for static scales: ranges of activations are averaged over training steps
// and used at the end. Named state outside the gradient path: a step reads it, emits an update, and whoever owns the
// state merges it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "octavo/quant/quantize.h"

namespace octavo::quant {

struct RunningAverage {
  int32_t count = 0;
  std::map<std::string, Tensor> sums;  // f32, "sum_of_absmax" or "sum_of_min" and "sum_of_max"
};

// Counts one more range. A range of another kind or shape is an error.
RunningAverage WithUpdate(const RunningAverage& state, const CalibrationRange& range);

// The mean in `dtype`. With a count of at most `bootstrap_steps` the `fallback` is returned, or an error without one.
CalibrationRange AverageOf(const RunningAverage& state, DType dtype, const CalibrationRange* fallback = nullptr,
                           int32_t bootstrap_steps = 0);

// A range averaged over batch axes (which keep length 1), as it enters the running average: f32 sums, one rounding.
CalibrationRange MeanOverAxes(const CalibrationRange& range, std::span<const int> axes);

}  // namespace octavo::quant
