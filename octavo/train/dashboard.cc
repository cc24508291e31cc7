#include "octavo/train/dashboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "octavo/train/health_table.h"
#include "octavo/train/svg_plot.h"

namespace octavo::train {
namespace {

std::string Colour(size_t run) { return fmt::format("c{}", run % 6 + 1); }

const Series* Find(const std::map<std::string, Series>& group, const std::string& tag) {
  const auto found = group.find(tag);
  return found == group.end() || found->second.x.empty() ? nullptr : &found->second;
}

// From a step to where it lies on the chosen axis.
class Axis {
 public:
  Axis(const RunRecord& run, DashboardView::Across across) {
    if (across == DashboardView::Across::kStep) return;
    const Series* parts =
        Find(run.train, across == DashboardView::Across::kTokens ? "perf/per_device_tokens" : "perf/step_time_seconds");
    if (parts == nullptr) return;
    double sum = 0;
    for (size_t i = 0; i < parts->x.size(); ++i) {
      sum += std::isfinite(parts->y[i]) ? parts->y[i] : 0;
      steps_.push_back(parts->x[i]);
      sums_.push_back(sum);
    }
  }

  Series On(const Series& series) const {
    if (steps_.empty()) return series;
    Series moved = series;
    for (double& x : moved.x) {
      const auto after = std::upper_bound(steps_.begin(), steps_.end(), x);
      x = after == steps_.begin() ? 0 : sums_[static_cast<size_t>(after - steps_.begin()) - 1];
    }
    return moved;
  }

 private:
  std::vector<double> steps_, sums_;
};

struct PlotPlan {
  const char *tag, *title, *unit;
  bool smooth, log_y;
};

std::string Figure(std::span<const RunRecord> runs, const DashboardView& view, const PlotPlan& plan) {
  constexpr const char* kNames[] = {"step", "tokens", "seconds"};
  PlotSpec spec{plan.title, plan.unit, {}, plan.log_y, kNames[static_cast<size_t>(view.across)]};
  const bool loss = std::string_view(plan.tag) == "learning/loss";
  double first = INFINITY, last = -INFINITY;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Series* series = Find(runs[i].train, plan.tag);
    if (series == nullptr) continue;
    const Axis axis(runs[i], view.across);
    const Series placed = axis.On(*series);
    first = std::min(first, placed.x.front());
    last = std::max(last, placed.x.back());
    const bool smooth = plan.smooth && view.smoothing > 0 && series->y.size() > 2;
    if (smooth) spec.lines.push_back({"", placed, "faint " + Colour(i)});
    spec.lines.push_back({runs[i].name, smooth ? Smoothed(placed, view.smoothing) : placed, Colour(i)});
    const Series* eval = loss ? Find(runs[i].eval, "eval/avg_loss") : nullptr;
    if (eval != nullptr) spec.lines.push_back({runs[i].name + ", held out", axis.On(*eval), Colour(i), true});
  }
  if (loss && view.floor && last > first) {
    spec.lines.push_back({"entropy of the data", {{first, last}, {*view.floor, *view.floor}}, "floor"});
  }
  return PlotFigure(spec);
}

// "key: value  # source" to key and value.
std::map<std::string, std::string> Config(const RunRecord& run) {
  std::map<std::string, std::string> values;
  for (size_t at = 0; at < run.config.size();) {
    const size_t end = std::min(run.config.find('\n', at), run.config.size());
    const std::string line = run.config.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(": ");
    const size_t note = line.rfind("  # ");
    if (colon == std::string::npos || note == std::string::npos || note < colon + 2) continue;
    values[line.substr(0, colon)] = line.substr(colon + 2, note - colon - 2);
  }
  return values;
}

std::string Differences(std::span<const RunRecord> runs) {
  if (runs.size() < 2) return "";
  std::vector<std::map<std::string, std::string>> configs;
  std::set<std::string> keys;
  for (const RunRecord& run : runs) {
    configs.push_back(Config(run));
    for (const auto& entry : configs.back()) keys.insert(entry.first);
  }
  std::string rows;
  for (const std::string& key : keys) {
    const auto value = [&](size_t i) {
      const auto found = configs[i].find(key);
      return found == configs[i].end() ? std::string("default") : found->second;
    };
    bool same = true;
    for (size_t i = 1; i < runs.size(); ++i) same = same && value(i) == value(0);
    if (same || key == "run_name") continue;
    rows += fmt::format("<tr><th scope=row>{}</th>", EscapeHtml(key));
    for (size_t i = 0; i < runs.size(); ++i) rows += fmt::format("<td>{}</td>", EscapeHtml(value(i)));
    rows += "</tr>";
  }
  if (rows.empty()) return "<h2>Settings</h2><p>The runs have the same settings.</p>";
  std::string head = "<tr><th scope=col>key</th>";
  for (const RunRecord& run : runs) head += fmt::format("<th scope=col>{}</th>", EscapeHtml(run.name));
  return "<h2>What their settings differ in</h2><div class=wide tabindex=0 role=region aria-label=\"Settings that "
         "differ\"><table class=left>" +
         head + "</tr>" + rows + "</table></div>";
}

double LastFinite(const Series* series) {
  if (series == nullptr) return NAN;
  for (size_t i = series->y.size(); i > 0; --i) {
    if (std::isfinite(series->y[i - 1])) return series->y[i - 1];
  }
  return NAN;
}

std::string Number(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "–";
}

double MedianOfLast(const Series* series, size_t count) {
  if (series == nullptr) return NAN;
  std::vector<double> values;
  for (size_t i = series->y.size(); i > 0 && values.size() < count; --i) {
    if (std::isfinite(series->y[i - 1])) values.push_back(series->y[i - 1]);
  }
  if (values.empty()) return NAN;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::string Duration(double seconds) {
  if (!std::isfinite(seconds)) return "–";
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string Overview(std::span<const RunRecord> runs) {
  std::string html =
      "<div class=wide tabindex=0 role=region aria-label=Overview><table class=overview><tr><th scope=col>run</th><th "
      "scope=col>"
      "steps</th><th scope=col>loss</th><th scope=col>held out</th><th scope=col>tokens/s</th><th scope=col>step"
      "</th><th scope=col>left</th><th scope=col>checkpoints</th></tr>";
  for (size_t i = 0; i < runs.size(); ++i) {
    const Series* loss = Find(runs[i].train, "learning/loss");
    const double done = loss == nullptr ? 0 : loss->x.back() + 1;
    const double step = MedianOfLast(Find(runs[i].train, "perf/step_time_seconds"), 50);
    const auto config = Config(runs[i]);
    double steps = NAN;
    if (const auto found = config.find("steps"); found != config.end()) {
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), steps);
    }
    std::string saved;
    for (const int64_t checkpoint : runs[i].checkpoints)
      saved += (saved.empty() ? "" : ", ") + std::to_string(checkpoint);
    if (saved.size() > 40) saved = "… " + saved.substr(saved.find(' ', saved.size() - 40) + 1);
    html += fmt::format(
        "<tr><td><span class=\"key {}\"></span>{}</td><td>{:.0f}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} s</td>"
        "<td>{}</td><td>{}</td></tr>",
        Colour(i), EscapeHtml(runs[i].name), done, std::isfinite(steps) ? fmt::format(" of {:.0f}", steps) : "",
        Number(LastFinite(loss), "{:.4f}"), Number(LastFinite(Find(runs[i].eval, "eval/avg_loss")), "{:.4f}"),
        Number(MedianOfLast(Find(runs[i].train, "perf/per_device_tokens_per_sec"), 50), "{:.0f}"),
        Number(step, "{:.3f}"),
        steps > done           ? Duration((steps - done) * step)
        : std::isfinite(steps) ? "done"
                               : "–",
        saved.empty() ? "–" : saved);
  }
  return html + "</table></div>";
}

std::string LogTail(const RunRecord& run) {
  const Series* loss = Find(run.train, "learning/loss");
  if (loss == nullptr) return "";
  const Series* time = Find(run.train, "perf/step_time_seconds");
  const Series* speed = Find(run.train, "perf/per_device_tokens_per_sec");
  std::string text;
  for (size_t i = loss->x.size() > 12 ? loss->x.size() - 12 : 0; i < loss->x.size(); ++i) {
    const auto at = [&](const Series* series) {
      return series != nullptr && i < series->y.size() ? series->y[i] : NAN;
    };
    text += fmt::format("step {:>7.0f}   {:>8} s   {:>8} tokens/s   loss {}\n", loss->x[i], Number(at(time), "{:.3f}"),
                        Number(at(speed), "{:.0f}"), Number(loss->y[i], "{:.4f}"));
  }
  return fmt::format("<h2>Latest steps of {0}</h2><pre tabindex=0 aria-label=\"Latest steps of {0}\">{1}</pre>",
                     EscapeHtml(run.name), text);
}

}  // namespace

std::string DashboardHtml(std::span<const RunRecord> runs, const DashboardView& view) {
  const PlotPlan plans[] = {
      {"learning/loss", "Loss", "nats per token", true, view.log_loss},
      {"learning/current_learning_rate", "Learning rate", "", false, false},
      {"learning/raw_grad_norm", "Gradient norm", "before clipping", true, true},
      {"perf/per_device_tokens_per_sec", "Throughput", "tokens per second", true, false},
      {"perf/step_time_seconds", "Step time", "seconds", true, false},
      {"perf/memory_bytes", "Memory", "bytes", false, false},
      {"learning/param_norm", "Parameter norm", "", false, false},
      {"learning/moe_lb_loss", "Load-balance loss", "", true, false},
  };
  std::string html = Overview(runs) + "<h2>Curves</h2><div class=plots>";
  for (const PlotPlan& plan : plans) html += Figure(runs, view, plan);
  html += "</div>" + Differences(runs);
  for (const RunRecord& run : runs) {
    std::string health = HealthTable(run, view.heat);
    if (health.empty()) continue;
    if (runs.size() > 1) health = fmt::format("<h2>{}</h2>", EscapeHtml(run.name)) + health;
    html += health;
  }
  for (const RunRecord& run : runs) html += LogTail(run);
  return html;
}

}  // namespace octavo::train
