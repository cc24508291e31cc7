#include "octavo/train/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "octavo/train/health_table.h"
#include "octavo/train/svg_plot.h"

namespace octavo::train {
namespace {

using ::testing::ElementsAre;
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
  EXPECT_THAT(html, HasSubstr("<table class=overview>"));
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
  EXPECT_THAT(html, HasSubstr("class=\"cell h1\" title=\"step 0: 0.0010 %\"><span class=spoken>0.0010 %</span>"));
  EXPECT_THAT(html, HasSubstr("class=\"cell h4\" title=\"step 1: 0.1000 %\""));
  EXPECT_THAT(html, HasSubstr("class=\"cell h9\" title=\"step 2: 100.0000 %\""));
}

TEST(HealthTable, ReadsWhenAllIsWell) {
  RunRecord run;
  run.health.push_back({.step = 0, .site = "s", .operand = "lhs", .sqnr_db = 50});
  run.health.push_back({.step = 100, .site = "other", .operand = "lhs", .sqnr_db = 50});
  const std::string html = HealthTable(run);
  EXPECT_THAT(html, HasSubstr("<th scope=col class=at>step 0</th><th scope=col class=at>step 100</th>"));
  EXPECT_THAT(html, HasSubstr("<i class=cell></i> none</span>"));
  EXPECT_THAT(html, HasSubstr("<i class=\"cell h9\"></i> over 28 %"));
  EXPECT_THAT(html, HasSubstr("<th scope=row>s · lhs</th>"));
  EXPECT_THAT(html, HasSubstr("<span class=spoken>0.0000 %</span>"));
  EXPECT_THAT(html, HasSubstr("title=\"step 100: not taken\""));  // of the first operand
  EXPECT_THAT(HealthTable(run, Heat::kSqnr), HasSubstr("45 dB or more"));
}

// The ends that the legend names are those of the shades.
TEST(HealthTable, TheLegendIsTrue) {
  const auto shade = [](double share, double db, Heat heat) {
    RunRecord run;
    run.health.push_back({.step = 0, .site = "s", .operand = "lhs", .saturated = share, .sqnr_db = db});
    const std::string html = HealthTable(run, heat);
    const size_t at = html.find("<td class=\"cell") + 15;
    return html.substr(at, html.find('"', at) - at);
  };
  EXPECT_EQ(shade(0, 50, Heat::kSaturated), "");
  EXPECT_EQ(shade(3.5e-5, 50, Heat::kSaturated), " h1");
  EXPECT_EQ(shade(4e-5, 50, Heat::kSaturated), " h2");
  EXPECT_EQ(shade(0.27, 50, Heat::kSaturated), " h8");
  EXPECT_EQ(shade(0.28, 50, Heat::kSaturated), " h9");
  EXPECT_EQ(shade(0, 45, Heat::kSqnr), "");
  EXPECT_EQ(shade(0, 44.9, Heat::kSqnr), " h1");
  EXPECT_EQ(shade(0, 5, Heat::kSqnr), " h9");
  EXPECT_EQ(shade(0, 5.1, Heat::kSqnr), " h8");
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

// What has a size in pixels, text above all, is outside of what is stretched to the width of the page.
TEST(Plot, OnlyLinesAreStretched) {
  const PlotSpec spec{"Loss", "", {{"a", {{0, 10}, {1, 3}}, "c1"}, {"b", {{5}, {2}}, "c1", true}}};
  const std::string html = PlotFigure(spec);
  EXPECT_THAT(html, HasSubstr("<svg class=drawing role=img"));
  EXPECT_THAT(html, HasSubstr("<text class=\"x\" x=0.00% y=100% dy=17>0</text>"));
  EXPECT_THAT(html, HasSubstr("<circle class=\"c1\" cx=50.00% cy=50.00% r=3 />"));
  const size_t stretched = html.find("<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=none>");
  ASSERT_NE(stretched, std::string::npos);
  EXPECT_EQ(html.substr(stretched, html.find("</svg>", stretched) - stretched).find("<text"), std::string::npos);
}

TEST(Plot, TicksAreShortAndRound) {
  PlotSpec spec{"Speed", "", {{"a", {{0, 250'000}, {9'500, 12'500}}, "c1"}}, false, "tokens"};
  const std::string linear = PlotFigure(spec);
  EXPECT_THAT(linear, HasSubstr(">11.0k</text>"));
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

std::vector<std::string> YTicks(const std::string& html) {
  std::vector<std::string> found;
  for (size_t at = html.find("<text class=y"); at != std::string::npos; at = html.find("<text class=y", at + 1)) {
    const size_t begin = html.find('>', at) + 1;
    found.push_back(html.substr(begin, html.find('<', begin) - begin));
  }
  return found;
}

TEST(Plot, TicksFitTheirRange) {
  const auto ticks = [](double low, double high, bool log) {
    return YTicks(PlotFigure({"Loss", "", {{"a", {{0, 1}, {low, high}}, "c1"}}, log}));
  };
  EXPECT_THAT(ticks(2.2, 7.4, false), ElementsAre("2", "3", "4", "5", "6", "7"));
  EXPECT_THAT(ticks(2.2, 7.4, true), ElementsAre("3", "4", "5", "6", "7"));
  EXPECT_THAT(ticks(0.56, 0.71, true), ElementsAre("0.56", "0.58", "0.60", "0.62", "0.64", "0.66", "0.68", "0.70"));
  EXPECT_THAT(ticks(0, 3e-3, false), ElementsAre("0", "0.001", "0.002", "0.003"));
  EXPECT_THAT(ticks(1e-4, 5e-4, false), ElementsAre("1e-4", "2e-4", "3e-4", "4e-4", "5e-4"));
  EXPECT_THAT(ticks(123.41, 123.44, false), ElementsAre("123.41", "123.42", "123.43", "123.44"));
  EXPECT_THAT(ticks(1, 1, true), ElementsAre("0.8", "0.9", "1.0", "1.1", "1.2"));
  EXPECT_THAT(ticks(1e-6, 1e6, true), ElementsAre("1e-6", "1e-4", "0.01", "1", "100", "10k", "1M"));
  EXPECT_THAT(ticks(0.21, 1.7, true),
              ElementsAre("0.2", "0.4", "0.6", "0.8", "1.0", "1.4", "1.8"));  // 1.2 would touch 1.0
  EXPECT_GE(ticks(0, 0, false).size(), 2u);
  for (double low = 0.001; low < 1e6; low *= 1.7) {
    for (double share = 0.001; share < 20; share *= 1.3) {
      const std::vector<std::string> some = ticks(low, low * (1 + share), false);
      EXPECT_THAT(some.size(), testing::AllOf(testing::Ge(4u), testing::Le(10u))) << low << " " << share;
      EXPECT_EQ(std::set<std::string>(some.begin(), some.end()).size(), some.size()) << low << " " << share;
      const std::vector<std::string> logs = ticks(low, low * (1 + share), true);
      EXPECT_THAT(logs.size(), testing::AllOf(testing::Ge(3u), testing::Le(10u))) << low << " " << share;
      EXPECT_EQ(std::set<std::string>(logs.begin(), logs.end()).size(), logs.size()) << low << " " << share;
    }
  }
}

TEST(Plot, SaysThatItIsLogarithmic) {
  PlotSpec spec{"Gradient norm", "", {{"a", {{0, 1}, {1, 2}}, "c1"}}, true};
  EXPECT_THAT(PlotFigure(spec), HasSubstr("<b>Gradient norm, logarithmic</b>"));
  EXPECT_THAT(PlotFigure(spec), HasSubstr("aria-label=\"Gradient norm, logarithmic\""));
  spec.log_y = false;
  EXPECT_THAT(PlotFigure(spec), Not(HasSubstr("logarithmic")));
}

TEST(Dashboard, TellsTrainAndHeldOutApart) {
  RunRecord runs[] = {MakeRun("a", 50, "")};
  runs[0].eval["eval/avg_loss"] = {{10, 20}, {4.9, 4.8}};
  runs[0].checkpoints = {10, 20};
  const std::string html = DashboardHtml(runs, {});
  EXPECT_THAT(html, HasSubstr("<span class=\"key c1\"></span>a</span>"));
  EXPECT_THAT(html, HasSubstr("<span class=\"key c1 dot\"></span>a, held out</span>"));
  EXPECT_THAT(html, HasSubstr("<td>10, 20</td>"));
}

}  // namespace
}  // namespace octavo::train
