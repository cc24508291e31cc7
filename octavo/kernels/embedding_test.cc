#include "octavo/kernels/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

std::vector<int32_t> SampleIds(int64_t count, int64_t rows, uint64_t seed) {
  std::vector<int32_t> ids(count);
  for (int64_t t = 0; t < count; ++t) ids[t] = static_cast<int32_t>(SampleBits(seed, t) % rows);
  return ids;
}

TEST(Embedding, GatherCopiesAndCasts) {
  const std::vector<int32_t> ids = SampleIds(40, 9, 1);
  for (DType from : {DType::kF32, DType::kBF16}) {
    for (DType to : {DType::kF32, DType::kBF16}) {
      for (int64_t cols : {1, 7, 8, 33, 129}) {
        const SampleRows table = SampleRows::Random(from, 9, cols, 2);
        for (int threads : {1, 3}) {
          ThreadPool pool(threads);
          SampleRows reference(to, 40, cols), fast(to, 40, cols);
          GatherRows(pool, Isa::kReference, {table.view(), ids.data(), reference.mut()});
          GatherRows(pool, ChooseIsa().isa, {table.view(), ids.data(), fast.mut()});
          ASSERT_EQ(reference, fast);
          for (int64_t t = 0; t < 40; ++t) {
            const float want = table.Get(ids[t], cols - 1);
            ASSERT_EQ(fast.Get(t, cols - 1), to == DType::kBF16 ? RoundToBF16(want) : want);
          }
        }
      }
    }
  }
}

// What a one-hot matmul under rule R2 gives: for every id, leaves of 256 tokens inside each sequence.
std::vector<float> OneHotProduct(const SampleRows& grad, const std::vector<int32_t>& ids,
                                 const std::vector<int32_t>& begin, int64_t rows, int64_t leaf = 256) {
  std::vector<float> out(rows * grad.cols());
  for (int64_t id = 0; id < rows; ++id) {
    for (int64_t c = 0; c < grad.cols(); ++c) {
      float total = 0;
      for (size_t s = 0; s + 1 < begin.size(); ++s) {
        for (int64_t first = begin[s]; first < begin[s + 1]; first += leaf) {
          float chain = 0;
          for (int64_t t = first; t < std::min<int64_t>(first + leaf, begin[s + 1]); ++t) {
            chain = std::fma(ids[t] == id ? 1.0f : 0.0f, grad.Get(t, c), chain);
          }
          total += chain;
        }
      }
      out[id * grad.cols() + c] = total;
    }
  }
  return out;
}

TEST(Embedding, ScatterHasTheBitsOfTheOneHotMatmul) {
  const std::vector<int32_t> begin = {0, 700, 700, 1100};
  const std::vector<int32_t> ids = SampleIds(1100, 5, 3);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const SampleRows grad = SampleRows::Random(dtype, 1100, 19, 4);
    const std::vector<float> want = OneHotProduct(grad, ids, begin, 5);
    if (dtype == DType::kF32) {  // another cut would show; sums of a few bf16 are exact in any order
      EXPECT_NE(HashOf(want), HashOf(OneHotProduct(grad, ids, begin, 5, 128)));
      EXPECT_NE(HashOf(want), HashOf(OneHotProduct(grad, ids, {0, 1100}, 5)));
    }
    for (Isa isa : AvailableIsas()) {
      ThreadPool pool(2);
      std::vector<float> table(5 * 19);
      ScatterAddRows(pool, isa, {grad.view(), ids.data(), {begin.data(), 3}, RowsOf(table.data(), 5, 19)});
      EXPECT_EQ(HashOf(table), HashOf(want));
    }
  }
}

TEST(Embedding, FastEqualsReferenceForEverySizeAndAnyThreads) {
  ThreadPool one(1);
  std::vector<int64_t> sizes = {127, 128, 129, 1000, 4097};
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (int64_t cols : sizes) {
    const SampleRows grad = SampleRows::Random(DType::kF32, 30, cols, 4);
    const std::vector<int32_t> ids = SampleIds(30, 20, cols);
    SampleRows reference = SampleRows::Random(DType::kF32, 20, cols, 8), fast = reference;
    ScatterAddRows(one, Isa::kReference, {grad.view(), ids.data(), {}, reference.mut()});
    ScatterAddRows(one, ChooseIsa().isa, {grad.view(), ids.data(), {}, fast.mut()});
    ASSERT_EQ(reference, fast) << cols;
    for (int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      SampleRows many = SampleRows::Random(DType::kF32, 20, cols, 8);
      ScatterAddRows(pool, ChooseIsa().isa, {grad.view(), ids.data(), {}, many.mut()});
      ASSERT_EQ(reference, many) << cols;
    }
  }
}

TEST(Embedding, ScatterIsTheTransposeOfGather) {
  ThreadPool pool(1);
  const std::vector<int32_t> ids = SampleIds(50, 11, 5);
  const SampleRows table = SampleRows::Random(DType::kF32, 11, 6, 1), grad = SampleRows::Random(DType::kF32, 50, 6, 2);
  SampleRows out(DType::kF32, 50, 6), grad_table(DType::kF32, 11, 6);
  for (int64_t i = 0; i < 66; ++i) grad_table.Set(i / 6, i % 6, 0);
  GatherRows(pool, ChooseIsa().isa, {table.view(), ids.data(), out.mut()});
  ScatterAddRows(pool, ChooseIsa().isa, {grad.view(), ids.data(), {}, grad_table.mut()});
  double left = 0, right = 0;  // <gather(table), grad> = <table, scatter(grad)>
  for (int64_t i = 0; i < 300; ++i) left += static_cast<double>(out.Get(i / 6, i % 6)) * grad.Get(i / 6, i % 6);
  for (int64_t i = 0; i < 66; ++i) right += static_cast<double>(table.Get(i / 6, i % 6)) * grad_table.Get(i / 6, i % 6);
  EXPECT_NEAR(left, right, 1e-5);
}

TEST(Embedding, ExtremeValuesAndEmptyInputs) {
  ThreadPool pool(2);
  for (Isa isa : AvailableIsas()) {
    SampleRows grad(DType::kF32, 2, 3), table(DType::kF32, 2, 3);
    for (int64_t i = 0; i < 6; ++i) {
      grad.Set(i / 3, i % 3, i == 0 ? std::nanf("") : -0.0f);
      table.Set(i / 3, i % 3, -0.0f);
    }
    const std::vector<int32_t> ids = {1, 1};
    ScatterAddRows(pool, isa, {grad.view(), ids.data(), {}, table.mut()});
    EXPECT_TRUE(std::isnan(table.Get(1, 0)));
    EXPECT_FALSE(std::signbit(table.Get(1, 1)));  // -0 + (0 - 0)
    EXPECT_TRUE(std::signbit(table.Get(0, 1)));   // untouched
    const SampleRows none(DType::kF32, 0, 3);
    SampleRows no_out(DType::kF32, 0, 3);
    ScatterAddRows(pool, isa, {none.view(), nullptr, {}, table.mut()});
    GatherRows(pool, isa, {table.view(), nullptr, no_out.mut()});
  }
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  SampleRows table(DType::kF32, 4, 3), out(DType::kF32, 2, 3), wide(DType::kF32, 2, 5), half(DType::kBF16, 4, 3);
  const std::vector<int32_t> good = {0, 3}, high = {0, 4}, low = {-1, 0};
  EXPECT_THROW(GatherRows(pool, ChooseIsa().isa, {table.view(), high.data(), out.mut()}), Error);
  EXPECT_THROW(GatherRows(pool, ChooseIsa().isa, {table.view(), low.data(), out.mut()}), Error);
  EXPECT_THROW(GatherRows(pool, ChooseIsa().isa, {table.view(), good.data(), wide.mut()}), Error);
  EXPECT_THROW(ScatterAddRows(pool, ChooseIsa().isa, {out.view(), good.data(), {}, half.mut()}), Error);
  EXPECT_THROW(ScatterAddRows(pool, ChooseIsa().isa, {wide.view(), good.data(), {}, table.mut()}), Error);
  EXPECT_THROW(ScatterAddRows(pool, ChooseIsa().isa, {out.view(), high.data(), {}, table.mut()}), Error);
}

}  // namespace
}  // namespace octavo::kernels
