#include "octavo/train/terminal_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace octavo::train {
namespace {

// Dots of one braille character: bit of (row, column).
constexpr int kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

std::string Braille(int bits) {
  const int code = 0x2800 + bits;  // three bytes of UTF-8
  return {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

class Canvas {
 public:
  Canvas(int columns, int rows) : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns * rows)) {}
  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }
  void Dot(int x, int y) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    cells_[static_cast<size_t>(y / 4 * columns_ + x / 2)] |= kBits[y % 4][x % 2];
  }
  std::string Row(int row) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) text += Braille(cells_[static_cast<size_t>(row * columns_ + c)]);
    return text;
  }

 private:
  int columns_, rows_;
  std::vector<int> cells_;
};

}  // namespace

std::string TerminalPlot(const Series& series, const TerminalPlotOptions& options) {
  double low = INFINITY, high = -INFINITY, first = INFINITY, last = -INFINITY;
  for (size_t i = 0; i < series.y.size(); ++i) {
    if (!std::isfinite(series.y[i])) continue;
    low = std::min(low, series.y[i]), high = std::max(high, series.y[i]);
    first = std::min(first, series.x[i]), last = std::max(last, series.x[i]);
  }
  if (!(low <= high)) return "";
  for (const double level : options.levels) low = std::min(low, level), high = std::max(high, level);
  if (high == low) high = low + 1;
  Canvas canvas(options.columns, options.rows);
  const auto row_of = [&](double y) {
    return static_cast<int>(std::lround((high - y) / (high - low) * (canvas.height() - 1)));
  };
  const auto column_of = [&](double x) {
    return last > first ? static_cast<int>(std::lround((x - first) / (last - first) * (canvas.width() - 1))) : 0;
  };
  for (const double level : options.levels) {
    for (int x = 0; x < canvas.width(); x += 4) canvas.Dot(x, row_of(level));
  }
  int before_x = -1, before_y = 0;
  for (size_t i = 0; i < series.y.size(); ++i) {
    if (!std::isfinite(series.y[i])) continue;
    const int x = column_of(series.x[i]), y = row_of(series.y[i]);
    // A line from the point before: one dot per step along the longer side.
    const int steps = before_x < 0 ? 0 : std::max(std::abs(x - before_x), std::abs(y - before_y));
    for (int s = 1; s < steps; ++s)
      canvas.Dot(before_x + (x - before_x) * s / steps, before_y + (y - before_y) * s / steps);
    canvas.Dot(x, y);
    before_x = x, before_y = y;
  }
  std::string text;
  for (int row = 0; row < options.rows; ++row) {
    const double value = high - (high - low) * row / std::max(1, options.rows - 1);
    text += fmt::format("{:>8.3f} ┤{}\n", value, canvas.Row(row));
  }
  const std::string from = fmt::format("{:.0f}", first), to = fmt::format("{:.0f}", last);
  return text + fmt::format("{:>8}  {}{:>{}}\n", "step", from, to,
                            std::max<size_t>(1, static_cast<size_t>(options.columns) - from.size()));
}

}  // namespace octavo::train
