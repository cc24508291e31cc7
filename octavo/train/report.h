// One self-contained HTML page about a run: loss, learning rate, throughput, gradient norm and the health of quantized
// operands. No outside host, no library; works from a file, light and dark. Made by `octavo report` and the demo.
#pragma once

#include <string>

#include "octavo/train/run_record.h"

namespace octavo::train {

std::string ReportHtml(const RunRecord& record);

}  // namespace octavo::train
