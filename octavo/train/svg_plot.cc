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

constexpr double kWidth = 640, kHeight = 300, kLeft = 64, kRight = 12, kTop = 12, kBottom = 34;

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

// Of an axis, where round numbers stand: 11k rather than 1.1e+04.
std::string TickText(double value) {
  const double magnitude = std::fabs(value);
  for (const auto& [unit, suffix] : {std::pair(1e12, "T"), {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (magnitude >= 1e4 && magnitude >= unit) return fmt::format("{:.4g}{}", value / unit, suffix);
  }
  return NumberText(value);
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
    const double pad = y_.high == y_.low ? std::max(1e-9, std::fabs(y_.high) * 0.1) : (y_.high - y_.low) * 0.04;
    y_.low -= pad, y_.high += pad;
  }
  bool empty() const { return x_.empty(); }
  double Column(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  double Row(double y) const { return kTop + (y_.high - Y(y)) / (y_.high - y_.low) * (kHeight - kTop - kBottom); }
  double Y(double y) const { return log_ ? std::log10(y) : y; }
  double Back(double y) const { return log_ ? std::pow(10, y) : y; }
  const Range& x() const { return x_; }
  const Range& y() const { return y_; }

 private:
  bool log_;
  Range x_, y_;
};

// 1, 2 and 5 of each power of ten, or the powers alone where those would be many; logarithms of them.
std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  for (double power = std::floor(low); power <= high; power += 1) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = power + std::log10(factor);
      if (tick >= low && tick <= high && (factor == 1 || high - low < 2)) ticks.push_back(tick);
    }
  }
  return ticks.size() < 2 ? Ticks(low, high, 5) : ticks;
}

std::string Axes(const Frame& frame, bool log_y) {
  std::string svg;
  for (const double tick : log_y ? LogTicks(frame.y().low, frame.y().high) : Ticks(frame.y().low, frame.y().high, 5)) {
    const double row = frame.Row(frame.Back(tick));
    svg +=
        fmt::format("<line class=grid x1={} x2={} y1={:.1f} y2={:.1f} /><text x={} y={:.1f} text-anchor=end>{}</text>",
                    kLeft, kWidth - kRight, row, row, kLeft - 6, row + 4, TickText(frame.Back(tick)));
  }
  for (const double tick : Ticks(frame.x().low, frame.x().high, 6)) {
    const double column = frame.Column(tick);
    svg += fmt::format("<text x={:.1f} y={} text-anchor=middle>{}</text>", column, kHeight - 14, TickText(tick));
  }
  return svg + fmt::format("<line class=axis x1={} x2={} y1={} y2={} />", kLeft, kWidth - kRight, kHeight - kBottom,
                           kHeight - kBottom);
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
    dots += fmt::format("<circle class=\"{}\" cx={:.1f} cy={:.1f} r=3 />", line.style, column, row);
    down = true;
  }
  return line.dots ? dots : fmt::format("<path class=\"{}\" d=\"{}\" />", line.style, path);
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
      at.push_back(std::round(frame.Column(points.x[i]) * 10) / 10);
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
  const double rough = (high - low) / count, power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= power * factor) {
      step = power * factor;
      break;
    }
  }
  std::vector<double> ticks;
  for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
    ticks.push_back(std::fabs(tick) < step * 1e-9 ? 0 : tick);
  }
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
      legend += fmt::format("<span class=\"key {}\"></span>{} ", line.style, EscapeHtml(line.name));
    }
  }
  std::string numbers = Numbers(spec, frame).dump();
  return fmt::format(
      "<figure class=plot data-x=\"{}\" data-lines=\"{}\"><figcaption><b>{}</b> {}<span class=legend>{}</span>"
      "<output aria-live=off></output></figcaption>"
      "<svg viewBox=\"0 0 {} {}\" role=img aria-label=\"{}\">{}{}<line class=cursor y1={} y2={} /></svg>{}</figure>\n",
      EscapeHtml(spec.x_name), EscapeHtml(numbers), EscapeHtml(spec.title), EscapeHtml(spec.unit), legend, kWidth,
      kHeight, EscapeHtml(spec.title), Axes(frame, spec.log_y), lines, kTop, kHeight - kBottom, Table(spec));
}

}  // namespace octavo::train
