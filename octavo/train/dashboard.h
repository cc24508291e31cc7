// The live view of one or several runs as HTML: what `octavo dashboard` sends and its page puts in place. Plots with
// all runs overlaid, what their settings differ in, health of quantization, the latest steps. Draws with svg_plot.h
// like the report; knows nothing of HTTP.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "octavo/train/health_table.h"
#include "octavo/train/run_record.h"

namespace octavo::train {

struct DashboardView {
  enum class Across { kStep, kTokens, kTime } across = Across::kStep;
  double smoothing = 0.9;  // weight of the past, 0 to 0.99
  bool log_loss = false;
  Heat heat = Heat::kSaturated;
  std::optional<double> floor;  // the entropy of the data in nats per token, where it is known
};

std::string DashboardHtml(std::span<const RunRecord> runs, const DashboardView& view);

}  // namespace octavo::train
