#include "octavo/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"

namespace octavo::optim {
namespace {

TEST(Schedule, WarmupThenCosineThenZero) {
  const Schedule schedule({.peak = 1e-3, .schedule_steps = 100});
  EXPECT_EQ(schedule.warmup_steps(), 10);
  EXPECT_EQ(schedule.At(0), 0);
  EXPECT_DOUBLE_EQ(schedule.At(5), 5e-4);
  EXPECT_DOUBLE_EQ(schedule.At(10), 1e-3);
  // len 90, so the last step, position 89, has exactly the final rate.
  EXPECT_NEAR(schedule.At(99), 1e-4, 1e-18);
  const double a = 0.5 * (std::cos(M_PI * 30 / 89) + 1);
  EXPECT_DOUBLE_EQ(schedule.At(40), 1e-3 * a + 1e-4 * (1 - a));
  EXPECT_EQ(schedule.At(100), 0);
  EXPECT_EQ(schedule.At(100000), 0);
}

TEST(Schedule, WarmupIsTruncated) {
  const Schedule schedule({.peak = 1, .schedule_steps = 19});
  EXPECT_EQ(schedule.warmup_steps(), 1);
  EXPECT_EQ(schedule.At(0), 0);
  EXPECT_EQ(schedule.At(1), 1);
  // Fewer than ten steps have no warm-up: the first one counts.
  EXPECT_EQ(Schedule({.peak = 1, .schedule_steps = 4}).At(0), 1);
  EXPECT_EQ(Schedule({.peak = 1, .schedule_steps = 1}).At(0), 1);
}

TEST(Schedule, Wsd) {
  ScheduleConfig config{.kind = ScheduleKind::kWsd, .peak = 2, .final_fraction = 0.25, .schedule_steps = 100};
  const Schedule linear(config);
  EXPECT_EQ(linear.At(5), 1);
  EXPECT_EQ(linear.At(10), 2);
  EXPECT_EQ(linear.At(89), 2);
  EXPECT_EQ(linear.At(90), 2);
  EXPECT_DOUBLE_EQ(linear.At(93), 2 + (0.5 - 2) * 3.0 / 9);
  EXPECT_DOUBLE_EQ(linear.At(99), 0.5);
  config.wsd_decay = DecayStyle::kCosine;
  const Schedule cosine(config);
  EXPECT_NEAR(cosine.At(99), 0.5, 1e-15);
  EXPECT_GT(cosine.At(92), linear.At(92));
}

TEST(Schedule, RefusesBadFractions) {
  EXPECT_THROW(Schedule({.warmup_fraction = 1.5, .schedule_steps = 10}), Error);
  EXPECT_THROW(Schedule({.peak = -1, .schedule_steps = 10}), Error);
  EXPECT_THROW(
      Schedule({.kind = ScheduleKind::kWsd, .warmup_fraction = 0.6, .wsd_decay_fraction = 0.5, .schedule_steps = 10}),
      Error);
}

}  // namespace
}  // namespace octavo::optim
