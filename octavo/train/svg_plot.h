// Line plots as SVG text that takes its colours from the page's style, so that light and dark need no second drawing.
// The report puts them into HTML; the numbers travel along for the pointer and as a table.
#pragma once

#include <string>
#include <vector>

#include "octavo/train/run_record.h"

namespace octavo::train {

struct PlotLine {
  std::string name;
  Series series;
  std::string style;  // CSS class: "c1" … "c4", "faint"
  bool dots = false;  // points instead of a line
};

struct PlotSpec {
  std::string title, unit;
  std::vector<PlotLine> lines;
  bool log_y = false;
};

// Round numbers between two ends, about `count` of them.
std::vector<double> Ticks(double low, double high, int count);

// An exponential mean with the half life of a 40th of the series; what is not finite is skipped.
Series Smoothed(const Series& series);

// At most `most` points that keep every peak: the smallest and largest of each stretch.
Series Thinned(const Series& series, size_t most);

// A <figure> with the drawing, its numbers for the pointer and a table. Empty when no line has a finite point.
std::string PlotFigure(const PlotSpec& spec);

// Text for HTML: & < > " escaped.
std::string EscapeHtml(std::string_view text);

}  // namespace octavo::train
