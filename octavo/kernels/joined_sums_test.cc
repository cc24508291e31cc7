#include "octavo/kernels/joined_sums.h"

#include <gtest/gtest.h>

#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/reductions.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

// One pass gives what additions one after the other and ChunkSums give, for any size, links and threads.
TEST(JoinedSums, EqualsTheStepsAlone) {
  for (int64_t n : {0, 1, 7, 4095, 4096, 4097, 20001}) {
    for (int links : {1, 2, 3}) {
      std::vector<float> expected = SampleFloats(n, 1);
      std::vector<std::vector<float>> lefts;
      for (int i = 0; i < links; ++i) {
        lefts.push_back(SampleFloats(n, 10 + static_cast<uint64_t>(i)));
        for (size_t j = 0; j < expected.size(); ++j) expected[j] = lefts.back()[j] + expected[j];
      }
      ThreadPool one(1);
      std::vector<double> squares(static_cast<size_t>(ChunksOf(n)));
      ChunkSums(one, Isa::kReference, SumOf::kSquares, expected.data(), DType::kF32, n, squares.data());
      for (const Isa isa : AvailableIsas()) {
        for (int threads : {1, 2, 3}) {
          ThreadPool pool(threads);
          std::vector<std::vector<float>> own = lefts;
          const std::vector<float> term = SampleFloats(n, 1);
          std::vector<float*> left;
          for (std::vector<float>& values : own) left.push_back(values.data());
          std::vector<double> found(squares.size());
          JoinSums(pool, isa, {.count = n, .term = term.data(), .left = left, .squares = found.data()});
          EXPECT_EQ(HashOf(own.back()), HashOf(expected)) << n << " " << links;
          EXPECT_EQ(found, squares) << n;
          for (int i = 0; i + 1 < links; ++i) EXPECT_EQ(own[static_cast<size_t>(i)], lefts[static_cast<size_t>(i)]);
        }
      }
    }
  }
}

TEST(JoinedSums, TheOrderOfTheChainIsVisible) {
  ThreadPool pool(1);
  const float term = 1.0f;
  float near = 1e8f, far = -1e8f;
  float* const left[] = {&near, &far};
  JoinSums(pool, ChooseIsa().isa, {.count = 1, .term = &term, .left = left});
  EXPECT_EQ(far, 0.0f);  // (1e8 + 1) - 1e8; the other way round it would be 1
  EXPECT_THROW(JoinSums(pool, ChooseIsa().isa, {.count = 1, .term = &term, .left = {}}), Error);
  EXPECT_THROW(JoinSums(pool, ChooseIsa().isa, {.count = 1, .term = nullptr, .left = left}), Error);
}

}  // namespace
}  // namespace octavo::kernels
