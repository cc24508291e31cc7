#include "octavo/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

const ElementwiseOp kOps[] = {ElementwiseOp::kAdd, ElementwiseOp::kMultiply, ElementwiseOp::kScale,
                              ElementwiseOp::kAddScaled};

std::vector<int64_t> OddSizes() {
  std::vector<int64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (int64_t n : {127, 128, 129, 1000, 4097}) sizes.push_back(n);
  return sizes;
}

TEST(Elementwise, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t cols : OddSizes()) {
      const int64_t gap = cols % 3;
      const SampleRows a = SampleRows::Random(dtype, 3, cols, 1, 1, gap),
                       b = SampleRows::Random(dtype, 3, cols, 2, 1, gap);
      const std::vector<float> bias = SampleFloats(cols, 3);
      for (ElementwiseOp op : kOps) {
        SampleRows reference(dtype, 3, cols, gap), fast(dtype, 3, cols, gap);
        Elementwise(pool, Isa::kReference, {op, a.view(), b.view(), reference.mut(), 0.3f});
        Elementwise(pool, ChooseIsa().isa, {op, a.view(), b.view(), fast.mut(), 0.3f});
        ASSERT_EQ(reference, fast) << cols;
      }
      SampleRows reference(dtype, 3, cols, gap), fast(dtype, 3, cols, gap);
      BiasAdd(pool, Isa::kReference, {a.view(), bias.data(), DType::kF32, reference.mut()});
      BiasAdd(pool, ChooseIsa().isa, {a.view(), bias.data(), DType::kF32, fast.mut()});
      ASSERT_EQ(reference, fast) << cols;
      std::vector<float> grad[2] = {std::vector<float>(cols), std::vector<float>(cols)};
      BiasGrad(pool, Isa::kReference, {a.view(), grad[0].data(), false, {}});
      BiasGrad(pool, ChooseIsa().isa, {a.view(), grad[1].data(), false, {}});
      ASSERT_EQ(HashOf(grad[0]), HashOf(grad[1])) << cols;
      for (double rate : {0.0, 0.37, 1.0}) {
        Dropout(pool, Isa::kReference, {a.view(), reference.mut(), {7, 9}, rate, nullptr, 5});
        Dropout(pool, ChooseIsa().isa, {a.view(), fast.mut(), {7, 9}, rate, nullptr, 5});
        ASSERT_EQ(reference, fast) << cols;
      }
    }
  }
}

TEST(Elementwise, Values) {
  ThreadPool pool(1);
  const SampleRows a = SampleRows::Random(DType::kBF16, 1, 40, 1), b = SampleRows::Random(DType::kBF16, 1, 40, 2);
  SampleRows out(DType::kBF16, 1, 40);
  const auto expect = [&](ElementwiseOp op, auto function) {
    Elementwise(pool, ChooseIsa().isa, {op, a.view(), b.view(), out.mut(), 3});
    for (int64_t c = 0; c < 40; ++c) EXPECT_EQ(out.Get(0, c), RoundToBF16(function(a.Get(0, c), b.Get(0, c))));
  };
  expect(ElementwiseOp::kAdd, [](float x, float y) { return x + y; });
  expect(ElementwiseOp::kMultiply, [](float x, float y) { return x * y; });
  expect(ElementwiseOp::kScale, [](float x, float) { return x * 3; });
  expect(ElementwiseOp::kAddScaled, [](float x, float y) { return x + 3 * y; });
  const std::vector<uint16_t> bias(40, F32ToBF16(1.5f));
  BiasAdd(pool, ChooseIsa().isa, {a.view(), bias.data(), DType::kBF16, out.mut()});
  for (int64_t c = 0; c < 40; ++c) EXPECT_EQ(out.Get(0, c), RoundToBF16(a.Get(0, c) + 1.5f));
}

TEST(Elementwise, CastsAllHalfCodesAndTheirNeighbours) {
  ThreadPool pool(1);
  std::vector<uint16_t> codes(65536);
  std::iota(codes.begin(), codes.end(), uint16_t{0});
  for (DType half : {DType::kBF16, DType::kF16}) {
    std::vector<float> wide[2] = {std::vector<float>(65536), std::vector<float>(65536)};
    for (int i = 0; i < 2; ++i) {
      Cast(pool, i == 0 ? Isa::kReference : ChooseIsa().isa, {codes.data(), half, 1, 65536, 65536},
           RowsOf(wide[i].data(), 1, 65536));
    }
    EXPECT_EQ(HashOf(wide[0]), HashOf(wide[1]));
    // Every value, the middle between it and the next, and one float above and below the middle.
    std::vector<float> values;
    for (int code = 0; code < 65535; ++code) {
      const float at = wide[0][code], middle = at + (wide[0][code + 1] - at) / 2;
      for (float v : {at, middle, std::nextafter(middle, 1e30f), std::nextafter(middle, -1e30f)}) values.push_back(v);
    }
    values.push_back(std::numeric_limits<float>::denorm_min());
    values.push_back(std::numeric_limits<float>::max());
    const int64_t count = static_cast<int64_t>(values.size());
    std::vector<uint16_t> narrow[2] = {std::vector<uint16_t>(count), std::vector<uint16_t>(count)};
    for (int i = 0; i < 2; ++i) {
      Cast(pool, i == 0 ? Isa::kReference : ChooseIsa().isa, RowsOf(const_cast<const float*>(values.data()), 1, count),
           {narrow[i].data(), half, 1, count, count});
    }
    EXPECT_EQ(narrow[0], narrow[1]);
    for (int code = 0; code < 65535; ++code) {
      if (std::isnan(wide[0][code])) continue;
      ASSERT_EQ(narrow[1][4 * code], code);
    }
  }
  // f16 to bf16 and back through f32 math.
  const SampleRows x = SampleRows::Random(DType::kF16, 3, 77, 4);
  SampleRows y(DType::kBF16, 3, 77);
  Cast(pool, ChooseIsa().isa, x.view(), y.mut());
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 77; ++c) EXPECT_EQ(y.Get(r, c), RoundToBF16(x.Get(r, c)));
  }
}

TEST(Elementwise, BiasGradSumsInLeaves) {
  ThreadPool pool(1);
  constexpr int64_t kRows = 600, kCols = 5;
  const SampleRows grad = SampleRows::Random(DType::kF32, kRows, kCols, 1);
  const int32_t begin[] = {0, 300, 600};
  std::vector<float> sum(kCols), flat(kCols);
  BiasGrad(pool, ChooseIsa().isa, {grad.view(), sum.data(), false, {begin, 2}});
  BiasGrad(pool, ChooseIsa().isa, {grad.view(), flat.data(), false, {}});
  for (int64_t c = 0; c < kCols; ++c) {
    double exact = 0;
    float leaves = 0;
    for (auto [first, last] : {std::pair{0, 256}, {256, 300}, {300, 556}, {556, 600}}) {
      float leaf = 0;
      for (int r = first; r < last; ++r) leaf += grad.Get(r, c), exact += grad.Get(r, c);
      leaves += leaf;
    }
    EXPECT_EQ(sum[c], leaves);
    EXPECT_NEAR(sum[c], exact, 1e-5);
  }
  EXPECT_NE(HashOf(sum), HashOf(flat));  // the cut is visible
  // Accumulating continues the chain.
  std::vector<float> twice = sum;
  BiasGrad(pool, ChooseIsa().isa, {grad.view(), twice.data(), true, {begin, 2}});
  for (int64_t c = 0; c < kCols; ++c) EXPECT_NEAR(twice[c], 2 * sum[c], 1e-5);
}

TEST(Elementwise, ThreadsNeverChangeABit) {
  const SampleRows a = SampleRows::Random(DType::kF32, 1500, 133, 1), b = SampleRows::Random(DType::kF32, 1500, 133, 2);
  const auto run = [&](int threads) {
    ThreadPool pool(threads);
    SampleRows sum(DType::kF32, 1500, 133), dropped = sum, narrow(DType::kBF16, 1500, 133);
    std::vector<float> grad(133);
    Elementwise(pool, ChooseIsa().isa, {ElementwiseOp::kAddScaled, a.view(), b.view(), sum.mut(), 0.7f});
    Dropout(pool, ChooseIsa().isa, {a.view(), dropped.mut(), {1, 2}, 0.5, nullptr, 0});
    Cast(pool, ChooseIsa().isa, a.view(), narrow.mut());
    BiasGrad(pool, ChooseIsa().isa, {a.view(), grad.data(), false, {}});
    return std::vector<uint64_t>{HashOf(sum), HashOf(dropped), HashOf(narrow), HashOf(grad)};
  };
  const auto alone = run(1);
  for (int threads : {2, 3, 7}) EXPECT_EQ(run(threads), alone);
}

TEST(Elementwise, DropoutIsAFunctionOfKeyAndGlobalIndex) {
  ThreadPool pool(2);
  constexpr int64_t kCols = 37;
  const SampleRows x = SampleRows::Random(DType::kF32, 50, kCols, 1);
  SampleRows whole(DType::kF32, 50, kCols);
  const RngKey key = RngKey::FromSeed(42);
  Dropout(pool, ChooseIsa().isa, {x.view(), whole.mut(), key, 0.25, nullptr, 0});
  int kept = 0;
  for (int64_t i = 0; i < 50 * kCols; ++i) {
    const bool keep = Uniform(key, i) < 0.75f;
    kept += keep;
    ASSERT_EQ(whole.Get(i / kCols, i % kCols), keep ? x.Get(i / kCols, i % kCols) * (1.0f / 0.75f) : 0.0f);
  }
  EXPECT_NEAR(kept, 0.75 * 50 * kCols, 80);
  // Any rows in any order see their own part of the mask.
  const std::vector<int64_t> rows = {49, 3, 17};
  SampleRows some(DType::kF32, 3, kCols), part(DType::kF32, 3, kCols);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < kCols; ++c) some.Set(r, c, x.Get(rows[r], c));
  }
  Dropout(pool, ChooseIsa().isa, {some.view(), part.mut(), key, 0.25, rows.data(), 0});
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < kCols; ++c) ASSERT_EQ(part.Get(r, c), whole.Get(rows[r], c));
  }
  // Rate 0 keeps every bit; an index past 2^32 carries into the counter's high word.
  Dropout(pool, ChooseIsa().isa, {x.view(), whole.mut(), key, 0, nullptr, 0});
  EXPECT_EQ(whole, x);
  for (int64_t first : {(int64_t{1} << 32) / kCols, (int64_t{1} << 32) / kCols - 1}) {
    SampleRows reference(DType::kF32, 50, kCols);
    Dropout(pool, Isa::kReference, {x.view(), reference.mut(), key, 0.5, nullptr, first});
    Dropout(pool, ChooseIsa().isa, {x.view(), whole.mut(), key, 0.5, nullptr, first});
    EXPECT_EQ(whole, reference);
  }
}

TEST(Elementwise, ExtremeValues) {
  ThreadPool pool(1);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (Isa isa : AvailableIsas()) {
    SampleRows a(DType::kF32, 1, 4), b(DType::kF32, 1, 4), out(DType::kF32, 1, 4), half(DType::kBF16, 1, 4);
    for (int64_t c = 0; c < 4; ++c) b.Set(0, c, -kInf);
    a.Set(0, 0, kInf);
    a.Set(0, 1, std::nanf(""));
    a.Set(0, 2, 3.4e38f);
    a.Set(0, 3, 1e-40f);
    Elementwise(pool, isa, {ElementwiseOp::kAdd, a.view(), b.view(), out.mut(), 1});
    EXPECT_TRUE(std::isnan(out.Get(0, 0)) && std::isnan(out.Get(0, 1)));
    EXPECT_EQ(out.Get(0, 2), -kInf);
    Cast(pool, isa, a.view(), half.mut());
    EXPECT_EQ(half.Get(0, 0), kInf);
    EXPECT_TRUE(std::isnan(half.Get(0, 1)));
    EXPECT_EQ(half.Get(0, 2), kInf);                         // rounds up past the largest bf16
    EXPECT_NE(std::bit_cast<uint32_t>(half.Get(0, 3)), 0u);  // casts keep subnormals
    // A dropped NaN is gone: the mask decides, not the value.
    for (int64_t c = 0; c < 4; ++c) a.Set(0, c, std::nanf(""));
    Dropout(pool, isa, {a.view(), out.mut(), {1, 1}, 1, nullptr, 0});
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(out.Get(0, c), 0);
  }
}

TEST(Elementwise, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  SampleRows a(DType::kF32, 2, 3), narrow(DType::kF32, 2, 2), half(DType::kBF16, 2, 3), none(DType::kF32, 0, 3);
  EXPECT_THROW(Elementwise(pool, ChooseIsa().isa, {ElementwiseOp::kAdd, a.view(), narrow.view(), a.mut()}), Error);
  EXPECT_THROW(Elementwise(pool, ChooseIsa().isa, {ElementwiseOp::kAdd, a.view(), half.view(), a.mut()}), Error);
  EXPECT_THROW(Elementwise(pool, ChooseIsa().isa, {ElementwiseOp::kAdd, a.view(), a.view(), {}}), Error);
  EXPECT_THROW(Cast(pool, ChooseIsa().isa, a.view(), narrow.mut()), Error);
  EXPECT_THROW(Cast(pool, ChooseIsa().isa, a.view(), {a.mut().data, DType::kBF16, 2, 3, 6}), Error);
  EXPECT_THROW(Cast(pool, ChooseIsa().isa, a.view(), {a.mut().data, DType::kI8, 2, 3, 6}), Error);
  EXPECT_THROW(BiasAdd(pool, ChooseIsa().isa, {a.view(), nullptr, DType::kF32, a.mut()}), Error);
  EXPECT_THROW(Dropout(pool, ChooseIsa().isa, {a.view(), a.mut(), {}, 1.5}), Error);
  Elementwise(pool, ChooseIsa().isa, {ElementwiseOp::kAdd, none.view(), none.view(), none.mut()});
  std::vector<float> grad(3, 9);
  BiasGrad(pool, ChooseIsa().isa, {none.view(), grad.data(), false, {}});
  EXPECT_EQ(grad, std::vector<float>(3, 0));
}

}  // namespace
}  // namespace octavo::kernels
