// Line plots as SVG text that takes its colours from the page's style, so that light and dark need no second drawing.
// The report puts them into HTML; the numbers travel along for the pointer and as a table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/train/run_record.h"

namespace octavo::train {

struct PlotLine {
  std::string name;
  Series series;
  std::string style;  // CSS classes: "c1" … "c6", "faint c1", "floor"
  bool dots = false;  // points instead of a line
};

struct PlotSpec {
  std::string title, unit;
  std::vector<PlotLine> lines;
  bool log_y = false;
  std::string x_name = "step";
};

// Round numbers between two ends: the fewest that are at least `count` - 1, and two in any case.
std::vector<double> Ticks(double low, double high, int count);

// An exponential mean; what is not finite is skipped. `keep` is the weight of the past at each point; below 0: a half
// life of a 40th of the series.
Series Smoothed(const Series& series, double keep = -1);

// At most `most` points that keep every peak: the smallest and largest of each stretch.
Series Thinned(const Series& series, size_t most);

// A <figure> with the drawing, its numbers for the pointer and a table. Empty when no line has a finite point.
std::string PlotFigure(const PlotSpec& spec);

// A file that every page with plots needs: "plots.css", "plots.js".
std::string_view PlotPageFile(std::string_view name);

// Text for HTML: & < > " escaped.
std::string EscapeHtml(std::string_view text);

}  // namespace octavo::train
