#include "octavo/train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/train/svg_plot.h"
#include "octavo/train/terminal_plot.h"

namespace octavo::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Ticks, AreRound) {
  EXPECT_THAT(Ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(Ticks(3.1, 3.3, 2), ElementsAre(testing::DoubleNear(3.1, 1e-12), testing::DoubleNear(3.2, 1e-12),
                                              testing::DoubleNear(3.3, 1e-12)));
  EXPECT_THAT(Ticks(5, 5, 4), ElementsAre(5));
}

TEST(Thinned, KeepsThePeaks) {
  Series series;
  for (int i = 0; i < 10000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 7777 ? 100 : i == 1234 ? -100 : std::sin(i));
  }
  const Series thin = Thinned(series, 200);
  EXPECT_LE(thin.y.size(), 200u);
  EXPECT_EQ(*std::max_element(thin.y.begin(), thin.y.end()), 100);
  EXPECT_EQ(*std::min_element(thin.y.begin(), thin.y.end()), -100);
}

TEST(TerminalPlot, DrawsFromHighToLow) {
  const std::string plot = TerminalPlot({{0, 1, 2, 3}, {4, 3, 2, std::nan("")}}, {.columns = 4, .rows = 2});
  EXPECT_EQ(plot, "   4.000 ┤⠑⢄⠀⠀\n   2.000 ┤⠀⠀⠑⢄\n    step  0  2\n");
  EXPECT_EQ(TerminalPlot({}), "");
}

TEST(Report, HoldsThePlotsAndNothingFromElsewhere) {
  const TempFolder folder;
  {
    std::ofstream metrics(folder / "metrics.jsonl");
    for (int i = 0; i < 100; ++i) {
      metrics << "{\"event\":\"step\",\"step\":" << i << ",\"learning/loss\":" << 5 - i * 0.01
              << ",\"learning/current_learning_rate\":0.001,\"perf/per_device_tokens_per_sec\":1000,"
                 "\"learning/raw_grad_norm\":1.5}\n";
    }
    metrics << "{\"event\":\"step\",\"step\":100,\"learning/loss\":\"NaN\"}\n";
    metrics << "{\"event\":\"eval\",\"step\":50,\"eval/avg_loss\":4.2}\n{\"event\":\"st";
    std::ofstream(folder / "quant.jsonl")
        << R"({"step":10,"site":"decoder/layers_0/mlp/<wo>","operand":"lhs","saturated":0.01,"flushed":0,"sqnr_db":31.5,"nonfinite":0})"
        << "\n";
    std::ofstream(folder / "config.yml") << "steps: 7  # command line\nvocab_size: 10\n";
  }
  const RunRecord record = ReadRun(folder.path());
  EXPECT_EQ(record.train.at("learning/loss").y.size(), 101u);
  EXPECT_EQ(record.eval.at("eval/avg_loss").y.size(), 1u);
  EXPECT_EQ(record.config, "steps: 7  # command line\n");
  const std::string page = ReportHtml(record);
  for (const char* part :
       {"<b>Loss</b>", "held out", "<b>Learning rate</b>", "<b>Throughput</b>", "Quantization health",
        "decoder/layers_0/mlp/&lt;wo&gt; · lhs", "1.000 %", "31.5", "prefers-color-scheme:dark"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_TRUE(LooksLikeReport(std::string_view(page).substr(0, 4096)));
  EXPECT_FALSE(LooksLikeReport("<!doctype html>\n<html><title>My page</title>"));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  EXPECT_THAT(page, Not(HasSubstr("<wo>")));
}

TEST(Report, WantsARun) {
  const TempFolder folder;
  EXPECT_THROW(ReadRun(folder.path()), Error);
}

}  // namespace
}  // namespace octavo::train
