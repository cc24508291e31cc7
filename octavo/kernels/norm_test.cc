#include "octavo/kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/lanes.h"
#include "octavo/kernels/leaves.h"
#include "octavo/kernels/numeric_gradient.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<int64_t> OddSizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (int64_t n : {127, 128, 129, 1000, 4097}) sizes.push_back(n);
  return sizes;
}

// One case: inputs, and the outputs of both directions.
struct Case {
  DType dtype;
  NormSpec spec;
  std::vector<float> weight, bias;
  SampleRows x, grad_y, y, grad_x;
  std::vector<float> inv, mean, grad_weight, grad_bias;

  Case(DType type, NormKind kind, int64_t rows, int64_t cols, uint64_t seed = 1)
      : dtype(type),
        weight(SampleFloats(cols, seed + 10, 2)),
        bias(SampleFloats(cols, seed + 11)),
        x(SampleRows::Random(type, rows, cols, seed + 12, 3)),
        grad_y(SampleRows::Random(type, rows, cols, seed + 13)),
        y(type, rows, cols),
        grad_x(type, rows, cols),
        inv(rows),
        mean(rows),
        grad_weight(cols),
        grad_bias(cols) {
    spec.kind = kind;
    spec.epsilon = 1e-5f;
  }

  void Run(ThreadPool& pool, Isa isa, const Sequences& sequences = {}) {
    spec.weight = weight.data();
    spec.bias = bias.data();
    NormForward(pool, isa, {spec, x.view(), y.mut(), inv.data(), mean.data()});
    NormBackward(pool, isa,
                 {spec, x.view(), grad_y.view(), inv.data(), mean.data(), grad_x.mut(), grad_weight.data(),
                  grad_bias.data(), false, sequences});
  }

  void ExpectSameOutputs(const Case& other) const {
    EXPECT_EQ(y, other.y);
    EXPECT_EQ(grad_x, other.grad_x);
    EXPECT_EQ(HashOf(inv), HashOf(other.inv));
    EXPECT_EQ(HashOf(mean), HashOf(other.mean));
    EXPECT_EQ(HashOf(grad_weight), HashOf(other.grad_weight));
    EXPECT_EQ(HashOf(grad_bias), HashOf(other.grad_bias));
  }
};

const NormKind kKinds[] = {NormKind::kRms, NormKind::kLayer};
const DType kDTypes[] = {DType::kF32, DType::kBF16};

TEST(Norm, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  for (DType dtype : kDTypes) {
    for (NormKind kind : kKinds) {
      for (int64_t cols : OddSizes()) {
        SCOPED_TRACE(testing::Message() << NameOf(dtype) << " " << static_cast<int>(kind) << " cols " << cols);
        Case reference(dtype, kind, 3, cols), fast(dtype, kind, 3, cols);
        reference.spec.round_before_weight = fast.spec.round_before_weight = cols % 2 == 0;
        reference.Run(pool, Isa::kReference);
        fast.Run(pool, ChooseIsa().isa);
        reference.ExpectSameOutputs(fast);
      }
    }
  }
}

TEST(Norm, FastEqualsReferenceWithoutWeightOrGradients) {
  ThreadPool pool(1);
  for (NormKind kind : kKinds) {
    Case a(DType::kF32, kind, 5, 37), b(DType::kF32, kind, 5, 37);
    for (auto [one, isa] : {std::pair{&a, Isa::kReference}, std::pair{&b, ChooseIsa().isa}}) {
      NormForward(pool, isa, {one->spec, one->x.view(), one->y.mut(), one->inv.data(), one->mean.data()});
      NormBackward(pool, isa,
                   {one->spec,
                    one->x.view(),
                    one->grad_y.view(),
                    one->inv.data(),
                    one->mean.data(),
                    {},
                    nullptr,
                    one->grad_bias.data(),
                    false,
                    {}});
      NormBackward(pool, isa,
                   {one->spec,
                    one->x.view(),
                    one->grad_y.view(),
                    one->inv.data(),
                    one->mean.data(),
                    one->grad_x.mut(),
                    nullptr,
                    nullptr,
                    false,
                    {}});
    }
    a.ExpectSameOutputs(b);
    EXPECT_NE(HashOf(a.grad_x), HashOf(SampleRows(DType::kF32, 5, 37)));
  }
}

TEST(Norm, ThreadsNeverChangeABit) {
  const int32_t begin[] = {0, 5, 5, 700, 1300};
  const Sequences sequences{begin, 4};
  for (Isa isa : AvailableIsas()) {
    ThreadPool one(1);
    Case alone(DType::kF32, NormKind::kLayer, 1300, 131);
    alone.Run(one, isa, sequences);
    for (int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      Case many(DType::kF32, NormKind::kLayer, 1300, 131);
      many.Run(pool, isa, sequences);
      alone.ExpectSameOutputs(many);
    }
  }
}

TEST(Norm, ARowAloneHasTheBitsOfTheSameRowInABatch) {
  ThreadPool pool(2);
  Case batch(DType::kBF16, NormKind::kRms, 9, 200);
  batch.Run(pool, ChooseIsa().isa);
  for (int64_t r = 0; r < 9; ++r) {
    Case one(DType::kBF16, NormKind::kRms, 1, 200);
    for (int64_t c = 0; c < 200; ++c) one.x.Set(0, c, batch.x.Get(r, c));
    one.Run(pool, ChooseIsa().isa);
    for (int64_t c = 0; c < 200; ++c) ASSERT_EQ(one.y.Get(0, c), batch.y.Get(r, c));
  }
}

// The forward pass in double: y of every row.
std::vector<double> Oracle(const Case& one, const std::vector<double>& x, const std::vector<double>& weight,
                           const std::vector<double>& bias) {
  const int64_t rows = one.x.rows(), cols = one.x.cols();
  std::vector<double> y(rows * cols);
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, squares = 0;
    if (one.spec.kind == NormKind::kLayer) {
      for (int64_t c = 0; c < cols; ++c) mean += x[r * cols + c] / cols;
    }
    for (int64_t c = 0; c < cols; ++c) squares += std::pow(x[r * cols + c] - mean, 2);
    const double inv = 1 / std::sqrt(squares / cols + one.spec.epsilon);
    for (int64_t c = 0; c < cols; ++c) {
      y[r * cols + c] = (x[r * cols + c] - mean) * inv * (weight[c] + one.spec.weight_offset) + bias[c];
    }
  }
  return y;
}

TEST(Norm, MatchesTheOracleAndItsFiniteDifferences) {
  ThreadPool pool(2);
  constexpr int64_t kRows = 3, kCols = 37;
  for (NormKind kind : kKinds) {
    Case one(DType::kF32, kind, kRows, kCols);
    one.spec.weight_offset = 1;
    one.Run(pool, ChooseIsa().isa);
    std::vector<double> x(kRows * kCols), weight(one.weight.begin(), one.weight.end()),
        bias(one.bias.begin(), one.bias.end());
    for (int64_t i = 0; i < kRows * kCols; ++i) x[i] = one.x.Get(i / kCols, i % kCols);
    const std::vector<double> y = Oracle(one, x, weight, bias);
    for (int64_t i = 0; i < kRows * kCols; ++i) ASSERT_NEAR(one.y.Get(i / kCols, i % kCols), y[i], 2e-6);

    const auto loss = [&](const std::vector<double>& out) {
      double sum = 0;
      for (int64_t i = 0; i < kRows * kCols; ++i) sum += out[i] * one.grad_y.Get(i / kCols, i % kCols);
      return sum;
    };
    const auto by_x =
        NumericGradient(x, [&](const std::vector<double>& at) { return loss(Oracle(one, at, weight, bias)); });
    const auto by_weight =
        NumericGradient(weight, [&](const std::vector<double>& at) { return loss(Oracle(one, x, at, bias)); });
    const auto by_bias =
        NumericGradient(bias, [&](const std::vector<double>& at) { return loss(Oracle(one, x, weight, at)); });
    for (int64_t i = 0; i < kRows * kCols; ++i) ASSERT_NEAR(one.grad_x.Get(i / kCols, i % kCols), by_x[i], 2e-6);
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_NEAR(one.grad_weight[c], by_weight[c], 2e-6);
      ASSERT_NEAR(one.grad_bias[c], by_bias[c], 2e-6);
    }
  }
}

TEST(Norm, ErrorStaysSmallOnWideRows) {
  ThreadPool pool(1);
  constexpr int64_t kCols = 16384;
  for (NormKind kind : kKinds) {
    Case one(DType::kF32, kind, 2, kCols);
    one.Run(pool, ChooseIsa().isa);
    std::vector<double> x(2 * kCols), weight(one.weight.begin(), one.weight.end()),
        bias(one.bias.begin(), one.bias.end());
    for (int64_t i = 0; i < 2 * kCols; ++i) x[i] = one.x.Get(i / kCols, i % kCols);
    const std::vector<double> y = Oracle(one, x, weight, bias);
    for (int64_t i = 0; i < 2 * kCols; ++i) {
      ASSERT_NEAR(one.y.Get(i / kCols, i % kCols), y[i], 1e-6 * (1 + std::abs(y[i]))) << i;
    }
  }
}

TEST(Norm, Bf16RoundsOnceUnlessAsked) {
  ThreadPool pool(1);
  for (bool twice : {false, true}) {
    Case one(DType::kBF16, NormKind::kRms, 1, 64);
    one.spec.round_before_weight = twice;
    one.spec.weight = one.weight.data();
    NormForward(pool, ChooseIsa().isa, {one.spec, one.x.view(), one.y.mut(), one.inv.data(), nullptr});
    int differing = 0;
    for (int64_t c = 0; c < 64; ++c) {
      const float xhat = one.x.Get(0, c) * one.inv[0];
      const float once = RoundToBF16(xhat * one.weight[c]);
      const float both = RoundToBF16(RoundToBF16(xhat) * one.weight[c]);
      EXPECT_EQ(one.y.Get(0, c), twice ? both : once);
      differing += once != both;
    }
    EXPECT_GT(differing, 5);  // the two really are different numbers
  }
}

// Another fold of the lanes gives other bits, so the equality tests above could have failed.
TEST(Norm, TheFoldIsVisible) {
  const std::vector<float> values = SampleFloats(1000, 5);
  LaneSum<float> lanes;
  for (int64_t c = 0; c < 1000; ++c) lanes.lane[c % kLanes] += values[c];
  float chain = 0;
  for (int l = 0; l < kLanes; ++l) chain += lanes.lane[l];
  LaneSum<float> swapped = lanes;
  std::swap(swapped.lane[1], swapped.lane[2]);
  EXPECT_NE(lanes.Fold(), chain);
  EXPECT_NE(lanes.Fold(), swapped.Fold());
  EXPECT_NEAR(lanes.Fold(), chain, 1e-4);
}

TEST(Norm, LeavesRestartAtEachSequence) {
  const int32_t begin[] = {0, 300, 300, 310};
  EXPECT_EQ(LeavesOf({begin, 3}, 310), (std::vector<Leaf>{{0, 256}, {256, 300}, {300, 310}}));
  EXPECT_EQ(LeavesOf({}, 257), (std::vector<Leaf>{{0, 256}, {256, 257}}));
  EXPECT_TRUE(LeavesOf({}, 0).empty());

  // Two sequences in one call = one call each with `accumulate`; another cut gives other bits.
  ThreadPool pool(2);
  Case whole(DType::kF32, NormKind::kRms, 700, 50), flat(DType::kF32, NormKind::kRms, 700, 50);
  const int32_t cut[] = {0, 301, 700};
  whole.Run(pool, ChooseIsa().isa, {cut, 2});
  flat.Run(pool, ChooseIsa().isa);
  EXPECT_NE(HashOf(whole.grad_weight), HashOf(flat.grad_weight));
  std::vector<float> weight_sum(50), bias_sum(50);
  for (int part = 0; part < 2; ++part) {
    const auto rows = [&](const SampleRows& m) {
      ConstRows view = m.view();
      view.data = static_cast<const float*>(view.data) + cut[part] * view.row_stride;
      view.rows = cut[part + 1] - cut[part];
      return view;
    };
    NormBackward(pool, ChooseIsa().isa,
                 {whole.spec,
                  rows(whole.x),
                  rows(whole.grad_y),
                  whole.inv.data() + cut[part],
                  nullptr,
                  {},
                  weight_sum.data(),
                  bias_sum.data(),
                  part > 0,
                  {}});
  }
  EXPECT_EQ(HashOf(weight_sum), HashOf(whole.grad_weight));
  EXPECT_EQ(HashOf(bias_sum), HashOf(whole.grad_bias));
}

TEST(Norm, ExtremeValues) {
  ThreadPool pool(1);
  for (Isa isa : AvailableIsas()) {
    for (NormKind kind : kKinds) {
      Case one(DType::kF32, kind, 5, 21);
      for (int64_t c = 0; c < 21; ++c) {
        one.x.Set(0, c, 0);
        one.x.Set(1, c, 1e30f * (c % 2 == 0 ? 1 : -1));
        one.x.Set(2, c, c == 20 ? kInf : 1);
        one.x.Set(3, c, c == 20 ? std::nanf("") : 1);
        one.x.Set(4, c, 1e-41f);  // subnormal: the compute mode reads it as zero
      }
      one.Run(pool, isa);
      for (int64_t c = 0; c < 21; ++c) {
        EXPECT_EQ(one.y.Get(0, c), one.bias[c]);
        EXPECT_EQ(one.y.Get(1, c), one.bias[c]);  // the squares overflow, inv is 0
        EXPECT_TRUE(std::isnan(one.y.Get(3, c)));
        EXPECT_EQ(one.y.Get(4, c), one.bias[c]);
      }
      EXPECT_TRUE(std::isnan(one.y.Get(2, 20)));
      EXPECT_FALSE(std::isnan(one.y.Get(0, 20)));
    }
  }
}

TEST(Norm, EmptyInputs) {
  ThreadPool pool(2);
  for (Isa isa : AvailableIsas()) {
    Case none(DType::kF32, NormKind::kLayer, 0, 8), narrow(DType::kF32, NormKind::kLayer, 3, 0);
    none.grad_weight.assign(8, 7);
    none.Run(pool, isa);
    narrow.Run(pool, isa);
    EXPECT_EQ(none.grad_weight, std::vector<float>(8, 0));
  }
}

TEST(Norm, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  Case one(DType::kF32, NormKind::kLayer, 3, 8);
  SampleRows narrow(DType::kF32, 3, 7), half(DType::kBF16, 3, 8);
  const auto forward = [&](const NormForwardArgs& args) { NormForward(pool, ChooseIsa().isa, args); };
  EXPECT_THROW(forward({one.spec, one.x.view(), narrow.mut(), nullptr, nullptr}), Error);
  EXPECT_THROW(forward({one.spec, one.x.view(), half.mut(), nullptr, nullptr}), Error);
  EXPECT_THROW(forward({one.spec, one.x.view(), {}, nullptr, nullptr}), Error);
  NormSpec bad = one.spec;
  bad.epsilon = std::nanf("");
  EXPECT_THROW(forward({bad, one.x.view(), one.y.mut(), nullptr, nullptr}), Error);
  EXPECT_THROW(NormBackward(pool, ChooseIsa().isa,
                            {one.spec,
                             one.x.view(),
                             one.grad_y.view(),
                             one.inv.data(),
                             nullptr,
                             one.grad_x.mut(),
                             nullptr,
                             nullptr,
                             false,
                             {}}),
               Error);
  const int32_t begin[] = {0, 2};
  EXPECT_THROW(NormBackward(pool, ChooseIsa().isa,
                            {one.spec,
                             one.x.view(),
                             one.grad_y.view(),
                             one.inv.data(),
                             one.mean.data(),
                             one.grad_x.mut(),
                             nullptr,
                             nullptr,
                             false,
                             {begin, 1}}),
               Error);
}

}  // namespace
}  // namespace octavo::kernels
