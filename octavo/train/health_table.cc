#include "octavo/train/health_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "octavo/train/svg_plot.h"

namespace octavo::train {
namespace {

// How bad a value is, as one of nine shades: a share from 1 in 10^5 to all, a signal from 45 dB down to 0.
std::string Shade(double value, Heat heat) {
  const bool bad = heat == Heat::kSqnr ? value < 45 : value > 0;
  if (!bad) return "";
  const double level = heat == Heat::kSqnr ? (45 - value) / 5 : 9.0 / 5 * (std::log10(value) + 5);
  return fmt::format(" h{}", static_cast<int>(std::clamp(1 + level, 1.0, 9.0)));
}

std::string CellText(double value, Heat heat) {
  if (heat != Heat::kSqnr) return fmt::format("{:.4f} %", 100 * value);
  return std::isfinite(value) ? fmt::format("{:.1f} dB", value) : "not taken";
}

struct Worst {
  double saturated = 0, flushed = 0, sqnr = INFINITY, amax = 0, scale_min = INFINITY, scale_max = 0;
  int64_t nonfinite = 0;
  std::map<int64_t, double> by_step;  // of what the squares show

  // The larger, the worse.
  std::pair<double, double> Rank(Heat heat) const {
    const double share = heat == Heat::kSaturated ? saturated : heat == Heat::kFlushed ? flushed : 0;
    return {share, -sqnr};
  }
};

}  // namespace

std::string HealthTable(const RunRecord& record, Heat heat) {
  if (record.health.empty()) return "";
  std::map<std::string, Worst> sites;
  std::set<int64_t> steps;
  for (const HealthPoint& point : record.health) {
    Worst& worst = sites[point.site + " · " + point.operand];
    worst.saturated = std::fmax(worst.saturated, point.saturated);
    worst.flushed = std::fmax(worst.flushed, point.flushed);
    worst.sqnr = std::fmin(worst.sqnr, point.sqnr_db);
    worst.amax = std::fmax(worst.amax, point.amax);
    worst.scale_min = std::fmin(worst.scale_min, point.scale_min);
    worst.scale_max = std::fmax(worst.scale_max, point.scale_max);
    worst.nonfinite += point.nonfinite;
    if (heat == Heat::kSqnr) {
      double& cell = worst.by_step.try_emplace(point.step, INFINITY).first->second;
      cell = std::fmin(cell, point.sqnr_db);
    } else {
      double& cell = worst.by_step[point.step];
      cell = std::fmax(cell, heat == Heat::kSaturated ? point.saturated : point.flushed);
    }
    steps.insert(point.step);
  }
  std::vector<std::pair<std::string, const Worst*>> order;
  for (const auto& [name, worst] : sites) order.emplace_back(name, &worst);
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return a.second->Rank(heat) > b.second->Rank(heat); });
  std::vector<int64_t> columns(steps.begin(), steps.end());
  while (columns.size() > 16) {  // every second step until they fit
    std::vector<int64_t> fewer;
    for (size_t i = 0; i < columns.size(); i += 2) fewer.push_back(columns[i]);
    columns = std::move(fewer);
  }
  constexpr const char* kShown[] = {"the saturated share", "the share that was flushed to zero",
                                    "the signal-to-noise ratio, darker where it is lower,"};
  std::string html = fmt::format(
      "<h2>Quantization health</h2><p>Worst of all steps for the {} of {} operands that look worst; the squares are "
      "{} by step.</p><div class=wide tabindex=0 role=region aria-label=\"Quantization health\"><table "
      "class=heat><tr><th>site · operand</th><th>saturated</th>"
      "<th>flushed</th><th>SQNR dB</th><th>amax</th><th>scale</th><th>non-finite</th>",
      std::min<size_t>(order.size(), 40), order.size(), kShown[static_cast<size_t>(heat)]);
  for (const int64_t step : columns) html += fmt::format("<th>{}</th>", step);
  html += "</tr>";
  for (size_t i = 0; i < std::min<size_t>(order.size(), 40); ++i) {
    const Worst& w = *order[i].second;
    html += fmt::format(
        "<tr><td>{}</td><td>{:.3f} %</td><td>{:.3f} %</td><td>{}</td><td>{:.3g}</td><td>{:.2g} … "
        "{:.2g}</td><td>{}</td>",
        EscapeHtml(order[i].first), 100 * w.saturated, 100 * w.flushed,
        std::isfinite(w.sqnr) ? fmt::format("{:.1f}", w.sqnr) : "–", w.amax,
        std::isfinite(w.scale_min) ? w.scale_min : 0, w.scale_max, w.nonfinite);
    for (const int64_t step : columns) {
      const auto at = w.by_step.find(step);
      const double none = heat == Heat::kSqnr ? INFINITY : 0;
      const double value = at == w.by_step.end() ? none : at->second;
      html += fmt::format("<td class=\"cell{}\" title=\"step {}: {}\"></td>", Shade(value, heat), step,
                          CellText(value, heat));
    }
    html += "</tr>";
  }
  return html + "</table></div>";
}

}  // namespace octavo::train
