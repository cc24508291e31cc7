#include "octavo/kernels/reductions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/lanes.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Reductions, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  std::vector<int64_t> sizes = {0, 127, 128, 129, 1000, 4095, 4096, 4097, 20001};
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t n : sizes) {
      const SampleRows x = SampleRows::Random(dtype, 2, n, n, 1, 5);
      EXPECT_EQ(AbsMax(pool, Isa::kReference, x.view()), AbsMax(pool, ChooseIsa().isa, x.view())) << n;
      float rows[2][2];
      RowAbsMax(pool, Isa::kReference, x.view(), rows[0]);
      RowAbsMax(pool, ChooseIsa().isa, x.view(), rows[1]);
      EXPECT_EQ(rows[0][0], rows[1][0]);
      EXPECT_EQ(rows[0][1], rows[1][1]);
      for (SumOf what : {SumOf::kValues, SumOf::kSquares}) {
        const double a = SumChunks(pool, Isa::kReference, what, x.view().data, dtype, n);
        const double b = SumChunks(pool, ChooseIsa().isa, what, x.view().data, dtype, n);
        EXPECT_EQ(std::bit_cast<uint64_t>(a), std::bit_cast<uint64_t>(b)) << n;
      }
    }
  }
}

TEST(Reductions, MatchesTheOracle) {
  ThreadPool pool(2);
  const std::vector<float> x = SampleFloats(1000003, 9, 100);
  long double sum = 0, squares = 0;
  float largest = 0;
  for (float v : x) {
    sum += v;
    squares += static_cast<long double>(v) * v;
    largest = std::max(largest, std::abs(v));
  }
  const int64_t n = static_cast<int64_t>(x.size());
  EXPECT_NEAR(
      SumChunks(pool, ChooseIsa().isa, SumOf::kSquares, x.data(), DType::kF32, n) / static_cast<double>(squares), 1,
      1e-14);
  EXPECT_NEAR(SumChunks(pool, ChooseIsa().isa, SumOf::kValues, x.data(), DType::kF32, n), static_cast<double>(sum),
              1e-9);
  EXPECT_EQ(AbsMax(pool, ChooseIsa().isa, RowsOf(x.data(), 1, n)), largest);
}

// 1e20 squared overflows a float, not the double partial.
TEST(Reductions, LargeValuesDoNotOverflow) {
  ThreadPool pool(1);
  const std::vector<float> x(100, 1e20f);
  EXPECT_NEAR(SumChunks(pool, ChooseIsa().isa, SumOf::kSquares, x.data(), DType::kF32, 100) / 1e42, 1, 1e-7);
}

TEST(Reductions, ThreadsNeverChangeABitAndTheOrderIsVisible) {
  const std::vector<float> x = SampleFloats(300000, 2);
  ThreadPool one(1);
  std::vector<double> partial(ChunksOf(300000));
  ChunkSums(one, Isa::kReference, SumOf::kSquares, x.data(), DType::kF32, 300000, partial.data());
  const double alone = AddAscending(partial.data(), static_cast<int64_t>(partial.size()));
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(SumChunks(pool, ChooseIsa().isa, SumOf::kSquares, x.data(), DType::kF32, 300000), alone);
    EXPECT_EQ(AbsMax(pool, ChooseIsa().isa, RowsOf(x.data(), 300, 1000)),
              AbsMax(one, Isa::kReference, RowsOf(x.data(), 1, 300000)));
  }
  const std::vector<double> descending(partial.rbegin(), partial.rend());
  EXPECT_NE(AddAscending(descending.data(), static_cast<int64_t>(descending.size())), alone);
  double chain = 0;
  for (float v : x) chain += static_cast<double>(v) * v;
  EXPECT_NE(chain, alone);
}

TEST(Reductions, ExtremeValues) {
  ThreadPool pool(1);
  for (Isa isa : AvailableIsas()) {
    std::vector<float> x(21, 1.0f);
    x[20] = -kInf;
    EXPECT_EQ(AbsMax(pool, isa, RowsOf(const_cast<const float*>(x.data()), 3, 7)), kInf);
    EXPECT_EQ(SumChunks(pool, isa, SumOf::kSquares, x.data(), DType::kF32, 21), kInf);
    x[3] = std::nanf("");
    EXPECT_TRUE(std::isnan(AbsMax(pool, isa, RowsOf(const_cast<const float*>(x.data()), 3, 7))));
    EXPECT_TRUE(std::isnan(SumChunks(pool, isa, SumOf::kValues, x.data(), DType::kF32, 21)));
    const std::vector<float> tiny(5, -1e-42f);  // a subnormal: kept by a maximum
    EXPECT_EQ(std::bit_cast<uint32_t>(AbsMax(pool, isa, RowsOf(tiny.data(), 1, 5))), std::bit_cast<uint32_t>(1e-42f));
  }
}

TEST(Reductions, PerSequenceSumsAreDoubleChains) {
  const std::vector<float> loss = SampleFloats(10, 3);
  const int32_t begin[] = {0, 4, 4, 10};
  double out[3];
  SumPerSequence(loss.data(), 10, {begin, 3}, out);
  double first = 0;
  for (int t = 0; t < 4; ++t) first += loss[t];
  EXPECT_EQ(out[0], first);
  EXPECT_EQ(out[1], 0);
  double all = 0;
  SumPerSequence(loss.data(), 10, {}, &all);
  EXPECT_NEAR(all, out[0] + out[2], 1e-12);
  const int32_t wrong[] = {0, 11};
  EXPECT_THROW(SumPerSequence(loss.data(), 10, {wrong, 1}, &all), Error);
  EXPECT_THROW(SumPerSequence(nullptr, 10, {}, &all), Error);
}

}  // namespace
}  // namespace octavo::kernels
