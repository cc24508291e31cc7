#include "octavo/dist/thread_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

TEST(SelfCommunicator, GathersItself) {
  SelfCommunicator self;
  EXPECT_EQ(self.size(), 1);
  const std::vector<int> mine = {1, 2, 3};
  std::vector<int> all(3);
  self.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  EXPECT_EQ(all, mine);
  std::vector<float> values = {-1.0f, 2.0f};
  self.AllReduceMax(values);
  EXPECT_EQ(values, (std::vector<float>{-1.0f, 2.0f}));
}

class ThreadRanks : public testing::TestWithParam<int> {};

TEST_P(ThreadRanks, GatherIsInRankOrder) {
  const int ranks = GetParam();
  RunThreadRanks(ranks, [&](Communicator& c) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<int> mine = {c.rank() * 100 + round, -c.rank()};
      std::vector<int> all(static_cast<size_t>(2 * ranks));
      c.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
      for (int r = 0; r < ranks; ++r) {
        ASSERT_EQ(all[static_cast<size_t>(2 * r)], r * 100 + round);
        ASSERT_EQ(all[static_cast<size_t>(2 * r + 1)], -r);
      }
    }
  });
}

TEST_P(ThreadRanks, BroadcastFromEveryRoot) {
  RunThreadRanks(GetParam(), [&](Communicator& c) {
    for (int root = 0; root < c.size(); ++root) {
      std::vector<double> values(5, c.rank() == root ? root + 0.5 : -1.0);
      c.Broadcast(std::as_writable_bytes(std::span(values)), root);
      for (const double value : values) ASSERT_EQ(value, root + 0.5);
    }
  });
}

TEST_P(ThreadRanks, ReducesMaxAndIntegers) {
  RunThreadRanks(GetParam(), [&](Communicator& c) {
    const int n = c.size();
    std::vector<float> values = {static_cast<float>(c.rank()), static_cast<float>(-c.rank()),
                                 c.rank() == n - 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0f,
                                 c.rank() == 0 ? 0.0f : -0.0f};
    c.AllReduceMax(values);
    EXPECT_EQ(values[0], static_cast<float>(n - 1));
    EXPECT_EQ(values[1], 0.0f);
    EXPECT_TRUE(std::isnan(values[2]));
    EXPECT_FALSE(std::signbit(values[3]));
    std::vector<int64_t> counts = {c.rank() + 1, int64_t{1} << 62};
    c.AllReduceSum(counts);
    EXPECT_EQ(counts[0], int64_t{n} * (n + 1) / 2);
    EXPECT_EQ(static_cast<uint64_t>(counts[1]), static_cast<uint64_t>(n) << 62);
  });
}

TEST_P(ThreadRanks, NobodyPassesABarrierEarly) {
  std::atomic<int> arrived = 0;
  RunThreadRanks(GetParam(), [&](Communicator& c) {
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      c.Barrier();
      ASSERT_GE(arrived.load(), round * c.size());
      c.Barrier();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, testing::Values(1, 2, 3, 4));

TEST(ThreadRanksError, AFailingRankEndsTheOthers) {
  try {
    RunThreadRanks(3, [](Communicator& c) {
      if (c.rank() == 1) throw Error(ErrorCode::kNumbers, "rank 1 broke");
      for (;;) c.Barrier();
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "rank 1 broke");
    EXPECT_EQ(error.code(), ErrorCode::kNumbers);
  }
}

TEST(ThreadRanksError, UnequalSizesAreABug) {
  EXPECT_THROW(RunThreadRanks(2,
                              [](Communicator& c) {
                                std::vector<int64_t> counts(static_cast<size_t>(c.rank() + 1));
                                c.AllReduceSum(counts);
                              }),
               Error);
  EXPECT_THROW(RunThreadRanks(0, [](Communicator&) {}), Error);
}

}  // namespace
}  // namespace octavo
