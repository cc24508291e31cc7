#include "octavo/base/progress.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace octavo {
namespace {

TEST(Progress, ABarOnATerminal) {
  std::string out;
  double now = 100;
  Log log([&](std::string_view text) { out += text; }, {.status_line = true});
  {
    Progress progress(log, "read", 40, "tensors", [&] { return now; });
    EXPECT_EQ(out, "\r\x1b[Kread  [                    ]  0/40 tensors  0 %");
    out.clear();
    now += 0.05;
    progress.Update(1);  // too soon to redraw
    EXPECT_EQ(out, "");
    now += 9.95;
    progress.Update(10);
    EXPECT_EQ(out, "\r\x1b[Kread  [#####               ]  10/40 tensors  25 %  30 s left");
    out.clear();
    now += 30;
    progress.Update(40);
    progress.Finish();
    progress.Finish();
    EXPECT_EQ(out, "\r\x1b[Kread  [####################]  40/40 tensors  100 %\r\x1b[Kread  40 tensors  40 s\n");
    out.clear();
  }
  EXPECT_EQ(out, "");
}

TEST(Progress, ALineEveryTenSecondsInAFile) {
  std::string out;
  double now = 0;
  Log log([&](std::string_view text) { out += text; }, {});
  Progress progress(log, "train", 1000, "", [&] { return now; });
  for (int i = 1; i <= 250; ++i) {
    now = i * 0.1;
    progress.Update(i);
  }
  EXPECT_EQ(out, "train  100/1000  10 %  1 min 30 s left\ntrain  200/1000  20 %  1 min 20 s left\n");
}

TEST(Progress, NothingWhenQuiet) {
  std::string out;
  double now = 0;
  Log log([&](std::string_view text) { out += text; }, {.level = LogLevel::kWarning});
  {
    Progress progress(log, "train", 10, "", [&] { return now; });
    now = 100;
    progress.Update(5);
    progress.Finish();
  }
  EXPECT_EQ(out, "");
}

TEST(Progress, AnExceptionTakesTheBarAway) {
  std::string out;
  Log log([&](std::string_view text) { out += text; }, {.status_line = true});
  {
    Progress progress(log, "x", 0, "", [] { return 0.0; });
  }
  EXPECT_EQ(out, "\r\x1b[Kx  0  0 ms\r\x1b[K");
}

TEST(Progress, MoreThanTheTotalIsFull) {
  std::string out;
  double now = 0;
  Log log([&](std::string_view text) { out += text; }, {});
  Progress progress(log, "x", 4, "", [&] { return now; });
  now = 20;
  progress.Update(5);
  EXPECT_EQ(out, "x  5/4  100 %\n");
}

TEST(Progress, Durations) {
  EXPECT_EQ(DurationText(0), "0 ms");
  EXPECT_EQ(DurationText(0.85), "850 ms");
  EXPECT_EQ(DurationText(0.9999), "1 s");
  EXPECT_EQ(DurationText(59.4), "59 s");
  EXPECT_EQ(DurationText(59.6), "1 min 00 s");
  EXPECT_EQ(DurationText(185), "3 min 05 s");
  EXPECT_EQ(DurationText(3599.7), "1 h 00 min");
  EXPECT_EQ(DurationText(7440), "2 h 04 min");
  EXPECT_EQ(DurationText(-1), "?");
  EXPECT_EQ(DurationText(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_EQ(DurationText(std::numeric_limits<double>::infinity()), "?");
}

}  // namespace
}  // namespace octavo
