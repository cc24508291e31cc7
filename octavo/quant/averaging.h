// Static activation ranges: the mean of the ranges of all batches seen, as named state. A step uses the mean that
// includes its own batch and observes its range; between steps the observation is added (AdvanceState).
#pragma once

#include <string_view>
#include <vector>

#include "octavo/ops/context.h"
#include "octavo/ops/state.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {

// Count and sums of a simple moving average: state "<site>/<op><n>_<side>/count" and ".../sum_of_absmax" (min, max).
// Ranges are first averaged over `batch_axes`, keeping the axes. Without a state the range is that of this batch.
CalibrationRange RunningRange(ops::Context& context, const ops::Site& site, std::string_view side,
                              const CalibrationRange& range, const std::vector<int>& batch_axes);

// Adds what was observed to count and sums. `prefix` is what RunningRange named.
void AdvanceAverage(const std::string& prefix, const ops::UpdateSink& observed, ops::StateStore& state);

// "<path>/<op_id>_<side>"
std::string AveragePrefix(const ops::Site& site, std::string_view side);

}  // namespace octavo::quant
