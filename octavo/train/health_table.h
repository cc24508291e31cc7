// The health of a run's quantized operands as an HTML table with a heat map of site by step. Part of the report and of
// the dashboard; the colours are those of web/dashboard/plots.css.
#pragma once

#include <string>

#include "octavo/train/run_record.h"

namespace octavo::train {

// What the squares of the heat map show: shares of values that were saturated or flushed to zero, or the
// signal-to-noise ratio.
enum class Heat { kSaturated, kFlushed, kSqnr };

// The operands that look worst by `heat` come first. Empty when the run has no quant.jsonl.
std::string HealthTable(const RunRecord& record, Heat heat = Heat::kSaturated);

}  // namespace octavo::train
