#include "octavo/train/step_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace octavo::train {
namespace {

// A line of the reference's own log; the loss is what lies behind its rounded figures.
TEST(StepMetrics, LineIsTheReferences) {
  StepMetrics m;
  m.step = 0;
  m.seconds = 64 / 19.2;
  m.tokens = 64;
  m.total_weights = 64;
  m.loss = m.lm_loss = std::log(1673323.375f);
  EXPECT_EQ(StepLine(m).substr(0, StepLine(m).find("perplexity")),
            "completed step: 0, seconds: 3.333, TFLOP/s/device: 0.000, Tokens/s/device: 19.200, total_weights: 64, "
            "loss: 14.330, lm_loss: 14.330, ");
  EXPECT_NEAR(Perplexity(m.lm_loss), 1673323.375, 2);
}

TEST(StepMetrics, OptionalPartsAndWhatIsNoNumber) {
  StepMetrics m;
  m.step = 7;
  m.seconds = 2;
  m.tflops = 0.5;
  m.tokens = 100;
  m.total_weights = 99;
  m.lm_loss = 100;
  m.loss = std::numeric_limits<double>::quiet_NaN();
  m.moe_lb_loss = 0.0123456;
  EXPECT_EQ(StepLine(m),
            "completed step: 7, seconds: 2.000, TFLOP/s/device: 0.250, Tokens/s/device: 50.000, total_weights: 99, "
            "loss: nan, lm_loss: 100.000, perplexity: inf, moe_lb_loss: 0.012346");
  const nlohmann::json line = nlohmann::json::parse(JsonLine(m));
  EXPECT_EQ(line["event"], "step");
  EXPECT_EQ(line["learning/loss"], "NaN");
  EXPECT_EQ(line["learning/perplexity"], "Infinity");
  EXPECT_EQ(line["perf/per_device_tokens_per_sec"], 50.0);
}

TEST(StepMetrics, EvalLine) {
  EvalMetrics m;
  m.step = 20;
  m.loss = 3;
  m.total_weights = 65536;
  EXPECT_EQ(EvalLine(m),
            "Completed eval after train step 20, loss=3.000, perplexity=20.086, total_weights=65536.0, "
            "avg_z_loss=0.000");
  EXPECT_EQ(nlohmann::json::parse(JsonLine(m))["eval/avg_loss"], 3.0);
}

}  // namespace
}  // namespace octavo::train
