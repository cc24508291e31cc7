#include "octavo/kernels/softmax.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/numeric_gradient.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<int64_t> OddSizes() {
  std::vector<int64_t> sizes = {127, 128, 129, 1000, 1023, 1024, 1025, 4097};
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  return sizes;
}

TEST(Softmax, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t cols : OddSizes()) {
      const SampleRows x = SampleRows::Random(dtype, 2, cols, cols, 30), grad = SampleRows::Random(dtype, 2, cols, 2);
      SampleRows y[2] = {{dtype, 2, cols}, {dtype, 2, cols}}, back[2] = {{dtype, 2, cols}, {dtype, 2, cols}};
      for (int i = 0; i < 2; ++i) {
        const Isa isa = i == 0 ? Isa::kReference : ChooseIsa().isa;
        SoftmaxForward(pool, isa, {x.view(), y[i].mut()});
        SoftmaxBackward(pool, isa, {y[i].view(), grad.view(), back[i].mut()});
      }
      ASSERT_EQ(y[0], y[1]) << cols;
      ASSERT_EQ(back[0], back[1]) << cols;
    }
  }
}

std::vector<double> Oracle(const std::vector<double>& x) {
  double max = x[0], sum = 0;
  for (double v : x) max = std::max(max, v);
  for (double v : x) sum += std::exp(v - max);
  std::vector<double> y;
  for (double v : x) y.push_back(std::exp(v - max) / sum);
  return y;
}

TEST(Softmax, MatchesTheOracleAndItsFiniteDifferences) {
  ThreadPool pool(1);
  for (int64_t cols : {5, 40, 3000}) {
    const SampleRows x = SampleRows::Random(DType::kF32, 1, cols, 1, 20),
                     grad = SampleRows::Random(DType::kF32, 1, cols, 2);
    SampleRows y(DType::kF32, 1, cols), back(DType::kF32, 1, cols);
    SoftmaxForward(pool, ChooseIsa().isa, {x.view(), y.mut()});
    SoftmaxBackward(pool, ChooseIsa().isa, {y.view(), grad.view(), back.mut()});
    std::vector<double> at(cols);
    for (int64_t c = 0; c < cols; ++c) at[c] = x.Get(0, c);
    const std::vector<double> want = Oracle(at);
    for (int64_t c = 0; c < cols; ++c) ASSERT_NEAR(y.Get(0, c) / want[c], 1, 4e-6);  // x - max is rounded at 40
    if (cols > 100) continue;
    const auto gradient = NumericGradient(at, [&](const std::vector<double>& v) {
      const std::vector<double> p = Oracle(v);
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) sum += p[c] * grad.Get(0, c);
      return sum;
    });
    for (int64_t c = 0; c < cols; ++c) ASSERT_NEAR(back.Get(0, c), gradient[c], 1e-6);
  }
}

TEST(Softmax, PiecesOfWholeTilesHaveTheBitsOfTheRow) {
  const std::vector<float> x = SampleFloats(5000, 3, 10);
  for (Isa isa : AvailableIsas()) {
    ExpSum whole;
    AddToExpSum(isa, x.data(), DType::kF32, 5000, whole);
    for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, 1024, 5000}, {0, 3072, 4096, 5000}}) {
      ExpSum pieces;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        AddToExpSum(isa, x.data() + cuts[i], DType::kF32, cuts[i + 1] - cuts[i], pieces);
      }
      EXPECT_EQ(pieces.max, whole.max);
      EXPECT_EQ(std::bit_cast<uint64_t>(pieces.sum), std::bit_cast<uint64_t>(whole.sum));
    }
    // Tiles at other places, or merged in another order, are other bits.
    ExpSum shifted, reversed;
    AddToExpSum(isa, x.data(), DType::kF32, 1000, shifted);
    AddToExpSum(isa, x.data() + 1000, DType::kF32, 4000, shifted);
    EXPECT_NE(shifted.sum, whole.sum);
    for (int64_t first : {4096, 3072, 2048, 1024, 0}) {
      AddToExpSum(isa, x.data() + first, DType::kF32, std::min<int64_t>(1024, 5000 - first), reversed);
    }
    EXPECT_NE(reversed.sum, whole.sum);
    EXPECT_NEAR(reversed.sum / whole.sum, 1, 1e-6);
  }
}

TEST(Softmax, ThreadsNeverChangeABit) {
  const SampleRows x = SampleRows::Random(DType::kF32, 300, 201, 1, 5);
  ThreadPool one(1);
  SampleRows alone(DType::kF32, 300, 201);
  SoftmaxForward(one, ChooseIsa().isa, {x.view(), alone.mut()});
  for (int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    SampleRows many = x;
    SoftmaxForward(pool, ChooseIsa().isa, {many.view(), many.mut()});
    EXPECT_EQ(many, alone);
  }
}

TEST(Softmax, ExtremeValues) {
  ThreadPool pool(1);
  for (Isa isa : AvailableIsas()) {
    SampleRows x(DType::kF32, 6, 20), y(DType::kF32, 6, 20);
    for (int64_t c = 0; c < 20; ++c) {
      x.Set(0, c, -kInf);
      x.Set(1, c, c == 19 ? 5 : -kInf);
      x.Set(2, c, c == 19 ? 3e38f : -3e38f);
      x.Set(3, c, c == 19 ? std::nanf("") : -kInf);
      x.Set(4, c, c == 3 ? kInf : 1);
      x.Set(5, c, 3e38f);
    }
    SoftmaxForward(pool, isa, {x.view(), y.mut()});
    for (int64_t c = 0; c < 20; ++c) {
      EXPECT_EQ(y.Get(0, c), 0);
      EXPECT_EQ(y.Get(1, c), c == 19 ? 1 : 0);
      EXPECT_EQ(y.Get(2, c), c == 19 ? 1 : 0);
      EXPECT_TRUE(std::isnan(y.Get(3, c)));
      EXPECT_TRUE(std::isnan(y.Get(4, c)));
      EXPECT_NEAR(y.Get(5, c), 0.05, 1e-8);
    }
  }
  SampleRows none(DType::kF32, 0, 5), narrow(DType::kF32, 5, 0), other(DType::kF32, 2, 5);
  SoftmaxForward(pool, ChooseIsa().isa, {none.view(), none.mut()});
  SoftmaxForward(pool, ChooseIsa().isa, {narrow.view(), narrow.mut()});
  EXPECT_THROW(SoftmaxForward(pool, ChooseIsa().isa, {other.view(), none.mut()}), Error);
  EXPECT_THROW(SoftmaxBackward(pool, ChooseIsa().isa, {other.view(), none.view(), other.mut()}), Error);
}

}  // namespace
}  // namespace octavo::kernels
