#include "octavo/train/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "octavo/base/check.h"
#include "octavo/base/embedded_file.h"

namespace octavo {
std::span<const EmbeddedFile> PlotPageFiles();
}  // namespace octavo

namespace octavo::train {
namespace {

// The lines are drawn in this box, which the page stretches to the size it has; labels and dots stand at percentages of
// it and keep the size of the page's text, however narrow the page is.
constexpr double kSide = 1000;

struct Range {
  double low = INFINITY, high = -INFINITY;
  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return !(low <= high); }
};

std::string NumberText(double value) {
  if (value == 0) return "0";
  const double magnitude = std::fabs(value);
  if (magnitude >= 1e5 || magnitude < 1e-3) return fmt::format("{:.2e}", value);
  return fmt::format("{:.4g}", value);
}

// A number of an axis as short as it can be told from its neighbours, a `step` away: 11k rather than 1.1e+04. `largest`
// is that of the axis, so that all numbers have one unit.
std::string TickText(double value, double largest, double step) {
  if (value == 0) return "0";
  if (largest < 1e-3) {
    const double power = std::floor(std::log10(std::fabs(value)) + 1e-9);
    return fmt::format("{:.3g}e{:.0f}", value / std::pow(10, power), power);
  }
  const std::pair<double, const char*> units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  const auto decimals = [](double s) { return std::max(0, static_cast<int>(-std::floor(std::log10(s) + 1e-9))); };
  for (const auto& [unit, suffix] : units) {
    if (largest < 1e4 || largest < unit) continue;
    return fmt::format("{:.{}f}{}", value / unit, decimals(step / unit), suffix);
  }
  return fmt::format("{:.{}f}", value, decimals(step));
}

std::vector<std::string> TickTexts(const std::vector<double>& values, bool own_units) {
  double largest = 0, step = INFINITY;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::fabs(values[i]));
    if (i > 0) step = std::min(step, values[i] - values[i - 1]);
  }
  std::vector<std::string> texts;
  for (const double value : values) {
    const double own = std::fabs(value);
    texts.push_back(own_units || values.size() == 1 ? TickText(value, own, own) : TickText(value, largest, step));
  }
  return texts;
}

// From data to the drawing.
class Frame {
 public:
  Frame(const PlotSpec& spec) : log_(spec.log_y) {
    for (const PlotLine& line : spec.lines) {
      for (size_t i = 0; i < line.series.y.size(); ++i) {
        if (log_ && line.series.y[i] <= 0) continue;
        if (!std::isfinite(line.series.y[i])) continue;
        x_.Add(line.series.x[i]);
        y_.Add(Y(line.series.y[i]));
      }
    }
    if (x_.empty()) return;
    if (x_.high == x_.low) x_.high += 1;
    const bool flat = y_.high - y_.low <= 1e-9 * std::fabs(y_.high);
    const double pad = !flat ? (y_.high - y_.low) * 0.04 : log_ || y_.high == 0.0 ? 0.1 : std::fabs(y_.high) * 0.1;
    y_.low -= pad, y_.high += pad;
  }
  bool empty() const { return x_.empty(); }
  double Column(double x) const { return (x - x_.low) / (x_.high - x_.low) * kSide; }
  double Row(double y) const { return (y_.high - Y(y)) / (y_.high - y_.low) * kSide; }
  double Y(double y) const { return log_ ? std::log10(y) : y; }
  const Range& x() const { return x_; }
  const Range& y() const { return y_; }

 private:
  bool log_;
  Range x_, y_;
};

// Round numbers between two powers of ten. Less than a decade: as on an axis that is not logarithmic; few decades: 1, 2
// and 5 of each; more: powers alone, or some of them.
std::vector<double> LogTicks(double low, double high) {
  std::vector<double> all, ticks;
  if (high - low < 1) {
    all = Ticks(std::pow(10, low), std::pow(10, high), 5);
  } else {
    const double stride = std::ceil((high - low) / 8);
    for (double power = std::floor(low / stride) * stride; power <= high; power += stride) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = power + std::log10(factor);
        if (tick >= low && tick <= high && (factor == 1 || high - low < 3)) all.push_back(factor * std::pow(10, power));
      }
    }
  }
  for (const double tick : all) {  // those that have room for their text
    if (ticks.empty() || std::log10(tick / ticks.back()) >= 0.09 * (high - low)) ticks.push_back(tick);
  }
  return ticks;
}

std::string Percent(double place) { return fmt::format("{:.2f}%", 100 * place / kSide); }

std::string Axes(const Frame& frame, const PlotSpec& spec) {
  std::string svg;
  const double low = frame.y().low, high = frame.y().high;
  const std::vector<double> rows = spec.log_y ? LogTicks(low, high) : Ticks(low, high, 5);
  std::vector<std::string> texts = TickTexts(rows, spec.log_y && high - low >= 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    svg += fmt::format("<line class=grid x2=100% y1={0} y2={0} /><text class=y x=-6 y={0} dy=4>{1}</text>",
                       Percent(frame.Row(rows[i])), texts[i]);
  }
  const std::vector<double> columns = Ticks(frame.x().low, frame.x().high, 5);
  texts = TickTexts(columns, false);
  for (size_t i = 0; i < columns.size(); ++i) {
    svg += fmt::format("<text class=\"x{}\" x={} y=100% dy=17>{}</text>",
                       columns.size() > 5 && i % 2 == 1 ? " odd" : "", Percent(frame.Column(columns[i])), texts[i]);
  }
  return svg + "<line class=axis x2=100% y1=100% y2=100% />";
}

std::string Draw(const PlotLine& line, const Frame& frame, bool log_y) {
  const Series points = Thinned(line.series, 1200);
  std::string path, dots;
  bool down = false;
  for (size_t i = 0; i < points.y.size(); ++i) {
    if (!std::isfinite(points.y[i]) || (log_y && points.y[i] <= 0)) {
      down = false;
      continue;
    }
    const double column = frame.Column(points.x[i]), row = frame.Row(points.y[i]);
    path += fmt::format("{}{:.1f} {:.1f}", down ? "L" : "M", column, row);
    dots += fmt::format("<circle class=\"{}\" cx={} cy={} r=3 />", line.style, Percent(column), Percent(row));
    down = true;
  }
  if (line.dots) return dots;
  return fmt::format("<svg viewBox=\"0 0 {0} {0}\" preserveAspectRatio=none><path class=\"{1}\" d=\"{2}\" /></svg>",
                     kSide, line.style, path);
}

// The numbers behind the drawing, thinned, for the pointer and the table.
nlohmann::json Numbers(const PlotSpec& spec, const Frame& frame) {
  nlohmann::json lines = nlohmann::json::array();
  for (const PlotLine& line : spec.lines) {
    if (line.style.starts_with("faint")) continue;
    const Series points = Thinned(line.series, 400);
    nlohmann::json x = nlohmann::json::array(), y = nlohmann::json::array(), at = nlohmann::json::array();
    for (size_t i = 0; i < points.y.size(); ++i) {
      if (!std::isfinite(points.y[i])) continue;
      x.push_back(points.x[i]);
      y.push_back(NumberText(points.y[i]));
      at.push_back(std::round(frame.Column(points.x[i])) / kSide);
    }
    lines.push_back({{"name", line.name}, {"x", x}, {"y", y}, {"at", at}});
  }
  return lines;
}

std::string Table(const PlotSpec& spec) {
  std::string rows;
  for (const PlotLine& line : spec.lines) {
    if (line.style.starts_with("faint") || line.name.empty()) continue;
    const Series points = Thinned(line.series, 24);
    for (size_t i = 0; i < points.y.size(); ++i) {
      rows += fmt::format("<tr><td>{}</td><td>{:.6g}</td><td>{}</td></tr>", EscapeHtml(line.name), points.x[i],
                          std::isfinite(points.y[i]) ? NumberText(points.y[i]) : "not finite");
    }
  }
  return fmt::format(
      "<details data-id=\"{0}\"><summary>Numbers of {0}</summary><table><tr><th scope=col>line</th><th "
      "scope=col>{1}</th><th "
      "scope=col>value</th></tr>{2}</table></details>",
      EscapeHtml(spec.title), EscapeHtml(spec.x_name), rows);
}

}  // namespace

std::string_view PlotPageFile(std::string_view name) {
  for (const EmbeddedFile& file : PlotPageFiles()) {
    if (file.name == name) return file.text;
  }
  OCTAVO_CHECK(false);
  return {};
}

std::string EscapeHtml(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::vector<double> Ticks(double low, double high, int count) {
  if (!(high > low)) return {low};
  const double top = std::pow(10, std::ceil(std::log10(high - low)));
  const size_t least = static_cast<size_t>(std::max(2, count - 1));
  std::vector<double> ticks;
  for (const double part : {1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01}) {
    const double step = top * part, slack = 1e-9;
    ticks.clear();
    for (double i = std::ceil(low / step - slack); i * step <= high + step * slack; ++i) ticks.push_back(i * step);
    if (ticks.size() >= least) break;
  }
  for (double& tick : ticks) tick += 0.0;  // no -0
  return ticks;
}

Series Smoothed(const Series& series, double keep) {
  if (keep < 0) keep = std::pow(0.5, 1 / std::max(1.0, static_cast<double>(series.y.size()) / 40));
  Series smooth;
  double mean = 0, weight = 0;
  for (size_t i = 0; i < series.y.size(); ++i) {
    if (!std::isfinite(series.y[i])) continue;
    mean = keep * mean + (1 - keep) * series.y[i];
    weight = keep * weight + (1 - keep);
    smooth.x.push_back(series.x[i]);
    smooth.y.push_back(mean / weight);
  }
  return smooth;
}

Series Thinned(const Series& series, size_t most) {
  const size_t count = series.y.size();
  if (count <= most || most < 4) return series;
  Series thin;
  const size_t stretches = most / 2;
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = s * count / stretches, end = (s + 1) * count / stretches;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!(series.y[i] >= series.y[low])) low = i;
      if (!(series.y[i] <= series.y[high])) high = i;
    }
    for (const size_t i : {std::min(low, high), std::max(low, high)}) {
      if (!thin.x.empty() && thin.x.back() == series.x[i]) continue;
      thin.x.push_back(series.x[i]);
      thin.y.push_back(series.y[i]);
    }
  }
  return thin;
}

std::string PlotFigure(const PlotSpec& spec) {
  const Frame frame(spec);
  if (frame.empty()) return "";
  std::string lines, legend;
  for (const PlotLine& line : spec.lines) {
    lines += Draw(line, frame, spec.log_y);
    if (!line.style.starts_with("faint") && !line.name.empty()) {
      legend += fmt::format("<span class=entry><span class=\"key {}{}\"></span>{}</span> ", line.style,
                            line.dots ? " dot" : "", EscapeHtml(line.name));
    }
  }
  const std::string numbers = Numbers(spec, frame).dump();
  const std::string title = EscapeHtml(spec.title + (spec.log_y ? ", logarithmic" : ""));
  return fmt::format(
      "<figure class=plot data-x=\"{}\" data-lines=\"{}\"><figcaption><b>{}</b> {}<span class=legend>{}</span>"
      "<output aria-live=off></output></figcaption>"
      "<svg class=drawing role=img aria-label=\"{}\">{}{}<line class=cursor y2=100% /></svg>{}</figure>\n",
      EscapeHtml(spec.x_name), EscapeHtml(numbers), title, EscapeHtml(spec.unit), legend, title, Axes(frame, spec),
      lines, Table(spec));
}

}  // namespace octavo::train
