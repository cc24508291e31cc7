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

// How bad a share is, as one of nine shades: from 1 in 10^5 to all.
std::string Shade(double share) {
  if (!(share > 0)) return "";
  return fmt::format(" h{}", std::clamp(static_cast<int>(1 + 9.0 / 5 * (std::log10(share) + 5)), 1, 9));
}

struct Worst {
  double saturated = 0, flushed = 0, sqnr = INFINITY, amax = 0, scale_min = INFINITY, scale_max = 0;
  int64_t nonfinite = 0;
  std::map<int64_t, double> by_step;  // saturated
};

}  // namespace

std::string HealthTable(const RunRecord& record) {
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
    worst.by_step[point.step] = std::fmax(worst.by_step[point.step], point.saturated);
    steps.insert(point.step);
  }
  std::vector<std::pair<std::string, const Worst*>> order;
  for (const auto& [name, worst] : sites) order.emplace_back(name, &worst);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second->saturated != b.second->saturated ? a.second->saturated > b.second->saturated
                                                      : a.second->sqnr < b.second->sqnr;
  });
  std::vector<int64_t> columns(steps.begin(), steps.end());
  while (columns.size() > 16) {  // every second step until they fit
    std::vector<int64_t> fewer;
    for (size_t i = 0; i < columns.size(); i += 2) fewer.push_back(columns[i]);
    columns = std::move(fewer);
  }
  std::string html = fmt::format(
      "<h2>Quantization health</h2><p>Worst of all steps for the {} of {} operands that look worst; the squares are "
      "the "
      "saturated share by step.</p><div class=wide tabindex=0 role=region aria-label=\"Quantization health\"><table "
      "class=heat><tr><th>site · operand</th><th>saturated</th>"
      "<th>flushed</th><th>SQNR dB</th><th>amax</th><th>scale</th><th>non-finite</th>",
      std::min<size_t>(order.size(), 40), order.size());
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
      const double share = at == w.by_step.end() ? 0 : at->second;
      html += fmt::format("<td class=\"cell{}\" title=\"step {}: {:.4f} %\"></td>", Shade(share), step, 100 * share);
    }
    html += "</tr>";
  }
  return html + "</table></div>";
}

}  // namespace octavo::train
