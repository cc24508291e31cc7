// The health of a run's quantized operands as an HTML table with a heat map of site by step. Part of the report and of
// the dashboard; the colours are those of web/dashboard/plots.css.
#pragma once

#include <string>

#include "octavo/train/run_record.h"

namespace octavo::train {

// Empty when the run has no quant.jsonl.
std::string HealthTable(const RunRecord& record);

}  // namespace octavo::train
