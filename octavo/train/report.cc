#include "octavo/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "octavo/train/svg_plot.h"
#include "octavo/version.h"

namespace octavo::train {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--grid:#d8dee4;--card:#f6f8fa;
--c1:#0a5fd1;--c2:#b3261e;--c3:#0b7a43;--c4:#8a4b08}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#9aa4af;--grid:#2b323b;--card:#161b22;
--c1:#79b8ff;--c2:#ff9b94;--c3:#7ee2a8;--c4:#f2c078}}
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1360px;padding:1rem}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.4rem 0 .4rem}
.facts{display:flex;flex-wrap:wrap;gap:.4rem 1.6rem;color:var(--dim);margin:.3rem 0 1rem}.facts b{color:var(--fg)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1rem}
figure{background:var(--card);border:1px solid var(--grid);border-radius:8px;margin:0;padding:.7rem}
figcaption{display:flex;flex-wrap:wrap;gap:.2rem .8rem;color:var(--dim)}figcaption b{color:var(--fg)}
output{margin-left:auto;font-variant-numeric:tabular-nums;color:var(--fg)}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:12px}
.grid{stroke:var(--grid)}.axis{stroke:var(--dim)}.cursor{stroke:var(--dim);stroke-dasharray:3 3;visibility:hidden}
path{fill:none;stroke-width:2}path.faint{stroke:var(--c1);opacity:.3;stroke-width:1}
path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}path.c4{stroke:var(--c4)}
circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}circle.c3{fill:var(--c3)}
.key{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin:0 .3em 0 .6em;vertical-align:-1px}
.key.c1{background:var(--c1)}.key.c2{background:var(--c2)}.key.c3{background:var(--c3)}.key.c4{background:var(--c4)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15rem .6rem;text-align:right;border-bottom:1px solid var(--grid)}
td:first-child,th:first-child{text-align:left}details{margin-top:.4rem}summary{cursor:pointer;color:var(--dim)}
summary:focus-visible{outline:2px solid var(--c1)}pre{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:.7rem;overflow:auto}
.wide{overflow-x:auto}.heat td{text-align:center;min-width:2.2rem}.heat td:first-child{text-align:left;white-space:nowrap}
)";

// Follows the pointer: the nearest step's numbers in the caption. The page works without it.
constexpr std::string_view kScript = R"(
for(const f of document.querySelectorAll('.plot')){const s=f.querySelector('svg'),o=f.querySelector('output'),
c=f.querySelector('.cursor'),l=JSON.parse(f.dataset.lines);
s.addEventListener('pointermove',e=>{const r=s.getBoundingClientRect(),p=(e.clientX-r.left)/r.width*640;let t='',x0;
for(const q of l){let b=0;for(let i=1;i<q.at.length;i++)if(Math.abs(q.at[i]-p)<Math.abs(q.at[b]-p))b=i;
if(!q.at.length)continue;x0??=q.at[b];t+=(t?'   ':'step '+q.x[b]+'   ')+q.name+' '+q.y[b];}
o.textContent=t;if(x0!==undefined){c.setAttribute('x1',x0);c.setAttribute('x2',x0);c.style.visibility='visible'}});
s.addEventListener('pointerleave',()=>{o.textContent='';c.style.visibility='hidden'});}
)";

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
    spec.lines.push_back({"each step", *series, "faint"});
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
  if (smooth) spec.lines.push_back({"each step", *loss, "faint"});
  spec.lines.push_back({smooth ? "training, smoothed" : "training", smooth ? Smoothed(*loss) : *loss, "c1"});
  if (const Series* eval = Find(record.eval, "eval/avg_loss")) {
    spec.lines.push_back({"held out", *eval, "c2"});
    spec.lines.push_back({"held out", *eval, "c2", true});
    spec.lines.back().name = "";
  }
  std::string figure = PlotFigure(spec);
  // The dots repeat a line that the legend has already.
  const std::string twice = "<span class=\"key c2\"></span> ";
  if (const size_t at = figure.find(twice); at != std::string::npos) figure.erase(at, twice.size());
  return figure;
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

// How bad a share is, as a colour over the page's own.
std::string Shade(double share) {
  if (!(share > 0)) return "";
  const double strength = std::clamp(0.15 + 0.17 * (std::log10(share) + 4), 0.08, 0.85);
  return fmt::format(" style=\"background:rgb(214 60 50/{:.2f})\"", strength);
}

struct Worst {
  double saturated = 0, flushed = 0, sqnr = INFINITY, amax = 0, scale_min = INFINITY, scale_max = 0;
  int64_t nonfinite = 0;
  std::map<int64_t, double> by_step;  // saturated
};

std::string Health(const RunRecord& record) {
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
      "saturated share by step.</p><div class=wide><table class=heat><tr><th>site · operand</th><th>saturated</th>"
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
      html += fmt::format("<td{} title=\"step {}: {:.4f} %\"></td>", Shade(share), step, 100 * share);
    }
    html += "</tr>";
  }
  return html + "</table></div>";
}

}  // namespace

std::string ReportHtml(const RunRecord& record) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
      "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; script-src "
      "'unsafe-inline'\"><title>{0} – Octavo</title><style>{1}</style></head><body><main><h1>{0}</h1><div "
      "class=facts>{2}</div>"
      "<div class=plots>\n",
      EscapeHtml(record.name), kStyle, Facts(record));
  page += LossPlot(record);
  page += Plot(record, "learning/current_learning_rate", "Learning rate", "", false);
  page += Plot(record, "perf/per_device_tokens_per_sec", "Throughput", "tokens per second", true);
  page += Plot(record, "learning/raw_grad_norm", "Gradient norm", "before clipping", true, true);
  page += Plot(record, "learning/moe_lb_loss", "Load-balance loss", "", true);
  page += Plot(record, "learning/param_norm", "Parameter norm", "", false);
  page += "</div>" + Health(record);
  if (!record.config.empty())
    page += fmt::format("<h2>Settings that are not defaults</h2><pre>{}</pre>", EscapeHtml(record.config));
  return page +
         fmt::format("<p class=facts>Octavo {}</p></main><script>{}</script></body></html>\n", OCTAVO_VERSION, kScript);
}

}  // namespace octavo::train
