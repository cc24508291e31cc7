#include "octavo/engine/wait_estimate.h"

#include <gtest/gtest.h>

namespace octavo::engine {
namespace {

Clock::time_point At(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

TEST(WaitEstimate, ANightWithoutRequestsIsNobodysService) {
  WaitEstimate wait;
  EXPECT_EQ(wait.Seconds(100), 1);  // nothing is known yet
  wait.Idle(At(1000));
  wait.Ended(1, At(1002));
  EXPECT_NEAR(wait.Seconds(0), 2, 1e-9);
  EXPECT_NEAR(wait.Seconds(4), 10, 1e-9);
  wait.Idle(At(30000));
  wait.Ended(1, At(30002));
  EXPECT_NEAR(wait.Seconds(0), 2, 1e-9);
  EXPECT_NEAR(wait.Seconds(4), 10, 1e-9);
}

TEST(WaitEstimate, RequestsThatEndTogetherShareTheTime) {
  WaitEstimate wait;
  wait.Idle(At(0));
  for (int round = 1; round <= 10; ++round) wait.Ended(8, At(8 * round));
  EXPECT_NEAR(wait.Seconds(9), 10, 1e-9);
}

TEST(WaitEstimate, FollowsWhatIsOfLateAndStaysBetweenOneAndSixty) {
  WaitEstimate wait;
  wait.Idle(At(0));
  wait.Ended(1, At(10));
  wait.Ended(1, At(30));
  EXPECT_NEAR(wait.Seconds(0), 10 + 0.1 * (20 - 10), 1e-9);
  wait.Ended(0, At(500));  // nothing ended: the time still counts for the next
  wait.Ended(1, At(530));
  EXPECT_NEAR(wait.Seconds(0), 11 + 0.1 * (500 - 11), 1e-9);
  EXPECT_EQ(wait.Seconds(5), 60);
  for (int i = 0; i < 200; ++i) wait.Ended(1, At(530));
  EXPECT_EQ(wait.Seconds(5), 1);
}

}  // namespace
}  // namespace octavo::engine
