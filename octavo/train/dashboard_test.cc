#include "octavo/train/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/train/health_table.h"
#include "octavo/train/svg_plot.h"

namespace octavo::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunRecord MakeRun(const std::string& name, int steps, const std::string& config) {
  RunRecord run;
  run.name = name;
  run.config = config;
  for (int i = 0; i < steps; ++i) {
    const auto add = [&](const char* tag, double value) {
      run.train[tag].x.push_back(i);
      run.train[tag].y.push_back(value);
    };
    add("learning/loss", 5 - 0.01 * i);
    add("perf/step_time_seconds", 0.5);
    add("perf/per_device_tokens", 100);
    add("perf/per_device_tokens_per_sec", 200);
  }
  return run;
}

TEST(Dashboard, OverlaysRunsAndShowsWhatDiffers) {
  const RunRecord runs[] = {
      MakeRun("<a>", 50, "steps: 100  # command line\nlearning_rate: 0.1  # file.yml\nseed: 1  # command line\n"),
      MakeRun("b", 30, "steps: 100  # command line\nquantization: int8  # command line\nseed: 1  # command line\n")};
  const std::string html = DashboardHtml(runs, {});
  EXPECT_THAT(html, HasSubstr("&lt;a&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<a>")));
  EXPECT_THAT(html, HasSubstr("<td>50 of 100</td><td>4.5100</td>"));
  EXPECT_THAT(html, HasSubstr("<td>25 s</td>"));  // 50 steps of 0.5 s are left
  EXPECT_THAT(html, HasSubstr("<th scope=row>quantization</th><td>default</td><td>int8</td>"));
  EXPECT_THAT(html, HasSubstr("<th scope=row>learning_rate</th><td>0.1</td><td>default</td>"));
  EXPECT_THAT(html, Not(HasSubstr("<th scope=row>seed</th>")));
  EXPECT_THAT(html, Not(HasSubstr("style=")));  // the page's policy refuses styles of elements
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("step      49"));
}

TEST(Dashboard, TheAxisMayBeTokensOrTime) {
  const RunRecord runs[] = {MakeRun("a", 50, "")};
  DashboardView view;
  view.smoothing = 0;
  view.across = DashboardView::Across::kTokens;
  std::string html = DashboardHtml(runs, view);
  EXPECT_THAT(html, HasSubstr("data-x=\"tokens\""));
  EXPECT_THAT(html, HasSubstr("5000.0"));  // 50 steps of 100 tokens
  view.across = DashboardView::Across::kTime;
  view.floor = 1.25;
  html = DashboardHtml(runs, view);
  EXPECT_THAT(html, HasSubstr("data-x=\"seconds\""));
  EXPECT_THAT(html, HasSubstr("entropy of the data"));
  EXPECT_THAT(html, HasSubstr("path class=\"floor\""));
}

TEST(Dashboard, ALongRunStaysSmall) {
  const RunRecord runs[] = {MakeRun("long", 100'000, "")};
  EXPECT_LT(DashboardHtml(runs, {}).size(), 1'000'000u);
}

TEST(Dashboard, EmptyRunsAreNoCrash) {
  RunRecord runs[1];
  runs[0].name = "new";
  EXPECT_THAT(DashboardHtml(runs, {}), HasSubstr("new"));
}

TEST(HealthTable, ShadesByShare) {
  RunRecord run;
  for (const double share : {1e-5, 1e-3, 1.0}) {
    HealthPoint point;
    point.step = static_cast<int64_t>(run.health.size());
    point.site = "s";
    point.operand = "lhs";
    point.saturated = share;
    run.health.push_back(point);
  }
  const std::string html = HealthTable(run);
  EXPECT_THAT(html, HasSubstr("class=\"cell h1\" title=\"step 0: 0.0010 %\""));
  EXPECT_THAT(html, HasSubstr("class=\"cell h4\" title=\"step 1: 0.1000 %\""));
  EXPECT_THAT(html, HasSubstr("class=\"cell h9\" title=\"step 2: 100.0000 %\""));
}

TEST(HealthTable, TheSquaresMayShowWhatWasFlushedOrTheSignal) {
  RunRecord run;
  for (const double db : {50.0, 44.0, 20.5, -3.0}) {
    HealthPoint point;
    point.step = static_cast<int64_t>(run.health.size());
    point.site = "s";
    point.operand = "lhs";
    point.flushed = point.step == 2 ? 0.25 : 0;
    point.sqnr_db = db;
    run.health.push_back(point);
  }
  run.health.push_back({.step = 3, .site = "worse", .operand = "rhs", .flushed = 0.5, .sqnr_db = NAN});
  const std::string signal = HealthTable(run, Heat::kSqnr);
  EXPECT_THAT(signal, HasSubstr("class=\"cell\" title=\"step 0: 50.0 dB\""));
  EXPECT_THAT(signal, HasSubstr("class=\"cell h1\" title=\"step 1: 44.0 dB\""));
  EXPECT_THAT(signal, HasSubstr("class=\"cell h5\" title=\"step 2: 20.5 dB\""));
  EXPECT_THAT(signal, HasSubstr("class=\"cell h9\" title=\"step 3: -3.0 dB\""));
  EXPECT_THAT(signal, HasSubstr("class=\"cell\" title=\"step 3: not taken\""));
  EXPECT_LT(signal.find("s · lhs"), signal.find("worse · rhs"));
  const std::string flushed = HealthTable(run, Heat::kFlushed);
  EXPECT_THAT(flushed, HasSubstr("class=\"cell h8\" title=\"step 2: 25.0000 %\""));
  EXPECT_GT(flushed.find("s · lhs"), flushed.find("worse · rhs"));
}

TEST(Plot, TicksAreShortAndRound) {
  PlotSpec spec{"Speed", "", {{"a", {{0, 250'000}, {9'500, 12'500}}, "c1"}}, false, "tokens"};
  const std::string linear = PlotFigure(spec);
  EXPECT_THAT(linear, HasSubstr(">11k</text>"));
  EXPECT_THAT(linear, HasSubstr(">200k</text>"));
  EXPECT_THAT(linear, Not(HasSubstr("e+04</text>")));
  spec.lines[0].series.y = {0.9, 30};
  spec.log_y = true;
  const std::string log = PlotFigure(spec);
  for (const char* tick : {">1</text>", ">2</text>", ">5</text>", ">10</text>", ">20</text>"}) {
    EXPECT_THAT(log, HasSubstr(tick));
  }
  EXPECT_THAT(log, Not(HasSubstr("3.162")));
}

}  // namespace
}  // namespace octavo::train
