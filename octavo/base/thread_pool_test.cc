#include "octavo/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"

namespace octavo {
namespace {

TEST(ThreadPool, EveryIndexOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 5, 64, 1000}) {
      for (int64_t grain : {1, 3, 64}) {
        std::vector<std::atomic<int>> hits(count);
        pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) hits[i].fetch_add(1);
        });
        for (int64_t i = 0; i < count; ++i) EXPECT_EQ(hits[i].load(), 1) << threads << " " << count << " " << i;
      }
    }
  }
}

// Runs follow each other faster than threads wake: a late one must neither take a part of a run that ended nor run a
// part twice.
TEST(ThreadPool, ShortRunsInARowEachPartOnce) {
  for (int threads : {2, 7}) {
    ThreadPool pool(threads);
    std::vector<int> hits(threads);
    for (int run = 0; run < 20000; ++run) {
      const int expected = run + 1;
      pool.Run([&](int worker, int workers) {
        ASSERT_EQ(workers, threads);
        ++hits[worker];
      });
      ASSERT_EQ(hits, std::vector<int>(threads, expected)) << threads << " threads, run " << run;
    }
  }
}

// A part that is held up does not keep the others from being done by whoever is free.
TEST(ThreadPool, OtherPartsFinishWhileOneIsHeldUp) {
  ThreadPool pool(8);
  std::atomic<int> others{0};
  pool.Run([&](int worker, int workers) {
    if (worker != 0) {
      ++others;
      return;
    }
    // Worker 0 is the caller's: the seven other parts finish without it.
    while (others.load() < workers - 1) std::this_thread::yield();
  });
  EXPECT_EQ(others.load(), 7);
}

TEST(ThreadPool, PiecesAreContiguousMultiplesOfTheGrain) {
  EXPECT_EQ(Piece(10, 4, 0, 2), (Range{0, 8}));
  EXPECT_EQ(Piece(10, 4, 1, 2), (Range{8, 10}));
  EXPECT_EQ(Piece(3, 4, 1, 2), (Range{3, 3}));
  int64_t at = 0;
  for (int i = 0; i < 7; ++i) {
    const Range range = Piece(1001, 16, i, 7);
    EXPECT_EQ(range.begin, at);
    at = range.end;
  }
  EXPECT_EQ(at, 1001);
}

TEST(ThreadPool, ThrowsTheLowestWorkersErrorAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 3; ++round) {
    try {
      pool.Run([](int worker, int) { throw std::runtime_error(std::to_string(worker)); });
      FAIL() << "expected an exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "0");
    }
  }
  std::atomic<int> sum{0};
  pool.Run([&](int worker, int) { sum += worker; });
  EXPECT_EQ(sum.load(), 3);
}

TEST(ThreadPool, NestedRunStaysOnTheWorker) {
  ThreadPool pool(2);
  std::atomic<int> calls{0};
  pool.Run([&](int, int) {
    pool.Run([&](int, int workers) {
      EXPECT_EQ(workers, 1);
      ++calls;
    });
  });
  EXPECT_EQ(calls.load(), 2);
}

TEST(ThreadPool, WorkersFlushSubnormals) {
  ThreadPool pool(3);
  volatile float tiny = std::numeric_limits<float>::min();
  std::vector<float> results(3, 1.0f);
  pool.Run([&](int worker, int) { results[worker] = tiny * 0.5f; });
  EXPECT_EQ(results, std::vector<float>(3, 0.0f));
  EXPECT_TRUE(FloatModeIsSet());
}

// A library's pool may not change what its user computes afterwards. On threads of their own, so that no other test is
// seen or disturbed.
TEST(ThreadPool, TheCallersFloatModeComesBack) {
  std::thread([] {
    volatile float tiny = std::numeric_limits<float>::min();
    const float half = tiny * 0.5f;
    ASSERT_GT(half, 0.0f);
    {
      auto first = std::make_unique<ThreadPool>(1);
      EXPECT_TRUE(FloatModeIsSet());
      const ThreadPool second(2);
      first.reset();  // not the last one that lives
      EXPECT_TRUE(FloatModeIsSet());
    }
    EXPECT_FALSE(FloatModeIsSet());
    EXPECT_EQ(tiny * 0.5f, half);
  }).join();
}

TEST(ThreadPool, EndsOnAnotherThreadWithoutChangingItsFloatMode) {
  std::thread([] {
    auto pool = std::make_unique<ThreadPool>(2);
    std::thread([&] {
      const ScopedSubnormals other;  // a thread begins with the mode of the one that started it
      pool.reset();
      EXPECT_FALSE(FloatModeIsSet());
    }).join();
    EXPECT_TRUE(FloatModeIsSet());
  }).join();
}

TEST(ThreadPool, ChooseThreadsReadsTheEnvironment) {
  ::setenv("OCTAVO_THREADS", "5", 1);
  EXPECT_EQ(ChooseThreads(0), 5);
  EXPECT_EQ(ChooseThreads(3), 3);
  for (const char* bad : {"0", "-1", "2x", "x", "99999999999"}) {
    ::setenv("OCTAVO_THREADS", bad, 1);
    EXPECT_THROW(ChooseThreads(0), Error) << bad;
  }
  ::unsetenv("OCTAVO_THREADS");
  EXPECT_GE(ChooseThreads(0), 1);
}

}  // namespace
}  // namespace octavo
