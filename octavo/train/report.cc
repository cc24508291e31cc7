#include "octavo/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/train/health_table.h"
#include "octavo/train/svg_plot.h"
#include "octavo/version.h"

namespace octavo::train {
namespace {

const Series* Find(const std::map<std::string, Series>& group, const char* tag) {
  const auto found = group.find(tag);
  return found == group.end() || found->second.x.empty() ? nullptr : &found->second;
}

std::string Plot(const RunRecord& record, const char* tag, std::string title, std::string unit, bool smooth,
                 bool log_y = false) {
  const Series* series = Find(record.train, tag);
  if (series == nullptr) return "";
  PlotSpec spec{std::move(title), std::move(unit), {}, log_y};
  if (smooth && series->y.size() > 40) {
    spec.lines.push_back({"each step", *series, "faint c1"});
    spec.lines.push_back({"smoothed", Smoothed(*series), "c1"});
  } else {
    spec.lines.push_back({"each step", *series, "c1"});
  }
  return PlotFigure(spec);
}

std::string LossPlot(const RunRecord& record) {
  const Series* loss = Find(record.train, "learning/loss");
  if (loss == nullptr) return "";
  PlotSpec spec{"Loss", "nats per token", {}, false};
  const bool smooth = loss->y.size() > 40;
  if (smooth) spec.lines.push_back({"each step", *loss, "faint c1"});
  spec.lines.push_back({smooth ? "training, smoothed" : "training", smooth ? Smoothed(*loss) : *loss, "c1"});
  if (const Series* eval = Find(record.eval, "eval/avg_loss")) {
    spec.lines.push_back({"held out", *eval, "c2"});
    spec.lines.push_back({"", *eval, "c2", true});
  }
  return PlotFigure(spec);
}

std::string Fact(std::string_view name, std::string_view value) {
  return fmt::format("<span>{} <b>{}</b></span>", name, EscapeHtml(value));
}

double Median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<int>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::string Facts(const RunRecord& record) {
  std::string facts;
  if (const Series* loss = Find(record.train, "learning/loss")) {
    facts += Fact("steps", fmt::format("{:.0f}", loss->x.back() + 1));
    facts += Fact("loss", fmt::format("{:.3f} → {:.3f}", loss->y.front(), loss->y.back()));
  }
  if (const Series* eval = Find(record.eval, "eval/avg_loss")) {
    facts += Fact("held-out loss", fmt::format("{:.3f}", eval->y.back()));
  }
  if (const Series* speed = Find(record.train, "perf/per_device_tokens_per_sec")) {
    facts += Fact("tokens/s (median)", fmt::format("{:.0f}", Median(speed->y)));
  }
  if (const Series* time = Find(record.train, "perf/step_time_seconds")) {
    facts += Fact("step time (median)", fmt::format("{:.3f} s", Median(time->y)));
  }
  return facts;
}

}  // namespace

bool LooksLikeReport(std::string_view head) {
  return head.starts_with("<!doctype html>") && head.find(" – Octavo</title>") != std::string_view::npos;
}

std::string ReportHtml(const RunRecord& record) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
      "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; script-src "
      "'unsafe-inline'\"><title>{0} – Octavo</title><style>{1}</style></head><body><main><h1>{0}</h1><div "
      "class=facts>{2}</div>"
      "<div class=plots>\n",
      EscapeHtml(record.name), PlotPageFile("plots.css"), Facts(record));
  page += LossPlot(record);
  page += Plot(record, "learning/current_learning_rate", "Learning rate", "", false);
  page += Plot(record, "perf/per_device_tokens_per_sec", "Throughput", "tokens per second", true);
  page += Plot(record, "learning/raw_grad_norm", "Gradient norm", "before clipping", true, true);
  page += Plot(record, "learning/moe_lb_loss", "Load-balance loss", "", true);
  page += Plot(record, "learning/param_norm", "Parameter norm", "", false);
  page += "</div>" + HealthTable(record);
  if (!record.config.empty())
    page += fmt::format("<h2>Settings that are not defaults</h2><pre tabindex=0>{}</pre>", EscapeHtml(record.config));
  return page + fmt::format("<p class=facts>Octavo {}</p></main><script>{}</script></body></html>\n", OCTAVO_VERSION,
                            PlotPageFile("plots.js"));
}

}  // namespace octavo::train
