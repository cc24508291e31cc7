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
  if (!std::isfinite(value)) return "not taken";
  return heat == Heat::kSqnr ? fmt::format("{:.1f} dB", value) : fmt::format("{:.4f} %", 100 * value);
}

// What the colours mean, with the ends of Shade's scale.
std::string Legend(Heat heat) {
  const char* const kEnds[3] = {"45 dB or more", "under 45 dB", "5 dB or less"};
  const char* const kShares[3] = {"none", "under 0.004 %", "over 28 %"};
  const auto& words = heat == Heat::kSqnr ? kEnds : kShares;
  std::string html = fmt::format("<p class=shades><span class=entry><i class=cell></i> {}</span> <span class=entry>{} ",
                                 words[0], words[1]);
  for (int i = 1; i <= 9; ++i) html += fmt::format("<i class=\"cell h{}\"></i>", i);
  return html + fmt::format(" {}</span></p>", words[2]);
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
      "{} by step.</p>{}<div class=wide tabindex=0 role=region aria-label=\"Quantization health\"><table "
      "class=heat><tr><th scope=col>site · operand</th><th scope=col>saturated</th><th scope=col>flushed</th>"
      "<th scope=col>SQNR dB</th><th scope=col>amax</th><th scope=col>scale</th><th scope=col>non-finite</th>",
      std::min<size_t>(order.size(), 40), order.size(), kShown[static_cast<size_t>(heat)], Legend(heat));
  for (const int64_t step : columns) html += fmt::format("<th scope=col class=at>step {}</th>", step);
  html += "</tr>";
  for (size_t i = 0; i < std::min<size_t>(order.size(), 40); ++i) {
    const Worst& w = *order[i].second;
    html += fmt::format(
        "<tr><th scope=row>{}</th><td>{:.3f} %</td><td>{:.3f} %</td><td>{}</td><td>{:.3g}</td><td>{:.2g} … "
        "{:.2g}</td><td>{}</td>",
        EscapeHtml(order[i].first), 100 * w.saturated, 100 * w.flushed,
        std::isfinite(w.sqnr) ? fmt::format("{:.1f}", w.sqnr) : "–", w.amax,
        std::isfinite(w.scale_min) ? w.scale_min : 0, w.scale_max, w.nonfinite);
    for (const int64_t step : columns) {
      const auto at = w.by_step.find(step);
      const double value = at == w.by_step.end() ? NAN : at->second;
      html += fmt::format("<td class=\"cell{0}\" title=\"step {1}: {2}\"><span class=spoken>{2}</span></td>",
                          Shade(value, heat), step, CellText(value, heat));
    }
    html += "</tr>";
  }
  return html + "</table></div>";
}

}  // namespace octavo::train
