// One self-contained HTML page about a run: loss, learning rate, throughput, gradient norm and the health of quantized
// operands. No outside host, no library; works from a file, light and dark. Made by `octavo report` and the demo.
#pragma once

#include <string>
#include <string_view>

#include "octavo/train/run_record.h"

namespace octavo::train {

std::string ReportHtml(const RunRecord& record);

// Whether a file that begins with these bytes (some KiB) is such a page.
bool LooksLikeReport(std::string_view head);

}  // namespace octavo::train
