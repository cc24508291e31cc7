// A curve in a terminal: braille dots, two by four to a character, with the range at the side. For the demo and for
// people without a browser.
#pragma once

#include <string>
#include <vector>

#include "octavo/train/run_record.h"

namespace octavo::train {

struct TerminalPlotOptions {
  int columns = 64, rows = 12;      // characters of the plot itself
  std::vector<double> levels = {};  // horizontal lines: a bound to compare with
};

// UTF-8 lines. Values that are not finite are left out; an empty series gives an empty text.
std::string TerminalPlot(const Series& series, const TerminalPlotOptions& options = {});

}  // namespace octavo::train
