#include "octavo/kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const Activation kKinds[] = {Activation::kLinear,  Activation::kRelu,    Activation::kSilu, Activation::kGeluTanh,
                             Activation::kGeluErf, Activation::kSigmoid, Activation::kTanh, Activation::kSoftCap};

ActivationSpec SpecOf(Activation kind) {
  return {kind, kind == Activation::kSilu ? 1.702f : kind == Activation::kSoftCap ? 3.5f : 1.0f};
}

double Oracle(const ActivationSpec& spec, double x) {
  const double p = spec.parameter;
  switch (spec.kind) {
    case Activation::kLinear:
      return x;
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSilu:
      return x / (1 + std::exp(-p * x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSoftCap:
      return p * std::tanh(x / p);
  }
  return 0;
}

double Slope(const ActivationSpec& spec, double x) { return (Oracle(spec, x + 1e-6) - Oracle(spec, x - 1e-6)) / 2e-6; }

TEST(Activation, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (int64_t n : {127, 128, 129, 1000, 4097}) sizes.push_back(n);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (Activation kind : kKinds) {
      for (int64_t cols : sizes) {
        const int64_t gap = cols % 3;  // flat and strided
        const SampleRows x = SampleRows::Random(dtype, 2, cols, 1, 12, gap);
        const SampleRows up = SampleRows::Random(dtype, 2, cols, 2, 12, gap);
        const SampleRows grad = SampleRows::Random(dtype, 2, cols, 3, 1, gap);
        const SampleRows empty(dtype, 2, cols, gap);
        SampleRows y[2] = {empty, empty}, back[2] = {empty, empty}, gated[2] = {empty, empty},
                   grad_gate[2] = {empty, empty}, grad_up[2] = {empty, empty};
        const GateSpec gate{SpecOf(kind), cols % 2 == 0 ? 7.0f : kInf, cols % 2 == 0 ? 1.0f : 0.0f};
        for (int i = 0; i < 2; ++i) {
          const Isa isa = i == 0 ? Isa::kReference : ChooseIsa().isa;
          ActivationForward(pool, isa, {SpecOf(kind), x.view(), y[i].mut()});
          ActivationBackward(pool, isa, {SpecOf(kind), x.view(), grad.view(), back[i].mut()});
          GateForward(pool, isa, {gate, x.view(), up.view(), gated[i].mut()});
          GateBackward(pool, isa, {gate, x.view(), up.view(), grad.view(), grad_gate[i].mut(), grad_up[i].mut()});
        }
        SCOPED_TRACE(testing::Message() << NameOf(dtype) << " kind " << static_cast<int>(kind) << " cols " << cols);
        ASSERT_EQ(y[0], y[1]);
        ASSERT_EQ(back[0], back[1]);
        ASSERT_EQ(gated[0], gated[1]);
        ASSERT_EQ(grad_gate[0], grad_gate[1]);
        ASSERT_EQ(grad_up[0], grad_up[1]);
      }
    }
  }
}

TEST(Activation, MatchesTheOracleOnADenseGrid) {
  ThreadPool pool(1);
  constexpr int64_t kCount = 40001;
  SampleRows x(DType::kF32, 1, kCount), y(DType::kF32, 1, kCount), ones(DType::kF32, 1, kCount),
      slope(DType::kF32, 1, kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    x.Set(0, i, static_cast<float>(i - kCount / 2) * 0.001f + 1.3e-5f);
    ones.Set(0, i, 1);
  }
  for (Activation kind : kKinds) {
    const ActivationSpec spec = SpecOf(kind);
    ActivationForward(pool, ChooseIsa().isa, {spec, x.view(), y.mut()});
    ActivationBackward(pool, ChooseIsa().isa, {spec, x.view(), ones.view(), slope.mut()});
    double worst = 0, worst_slope = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double at = x.Get(0, i);
      worst = std::max(worst, std::abs(y.Get(0, i) - Oracle(spec, at)) / std::max(1.0, std::abs(at)));
      worst_slope = std::max(worst_slope, std::abs(slope.Get(0, i) - Slope(spec, at)));
    }
    EXPECT_LT(worst, 3e-7) << static_cast<int>(kind);
    EXPECT_LT(worst_slope, 5e-7) << static_cast<int>(kind);
  }
}

TEST(Activation, GateMatchesTheOracleAndItsFiniteDifferences) {
  ThreadPool pool(1);
  constexpr int64_t kCount = 257;
  for (Activation kind : kKinds) {
    const GateSpec spec{SpecOf(kind), 4.0f, 1.0f};
    const SampleRows gate = SampleRows::Random(DType::kF32, 1, kCount, 1, 8);
    const SampleRows up = SampleRows::Random(DType::kF32, 1, kCount, 2, 8);
    const SampleRows grad = SampleRows::Random(DType::kF32, 1, kCount, 3);
    SampleRows y(DType::kF32, 1, kCount), grad_gate(DType::kF32, 1, kCount), grad_up(DType::kF32, 1, kCount);
    GateForward(pool, ChooseIsa().isa, {spec, gate.view(), up.view(), y.mut()});
    GateBackward(pool, ChooseIsa().isa, {spec, gate.view(), up.view(), grad.view(), grad_gate.mut(), grad_up.mut()});
    const auto oracle = [&](double g, double u) {
      return Oracle(spec.activation, std::min(g, 4.0)) * (std::clamp(u, -4.0, 4.0) + 1);
    };
    int clipped = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double g = gate.Get(0, i), u = up.Get(0, i), dy = grad.Get(0, i), h = 1e-6;
      clipped += g > 4 || std::abs(u) > 4;
      ASSERT_NEAR(y.Get(0, i), oracle(g, u), 3e-6);
      ASSERT_NEAR(grad_gate.Get(0, i), dy * (oracle(g + h, u) - oracle(g - h, u)) / (2 * h), 3e-6);
      ASSERT_NEAR(grad_up.Get(0, i), dy * (oracle(g, u + h) - oracle(g, u - h)) / (2 * h), 3e-6);
    }
    EXPECT_GT(clipped, 5);
  }
}

TEST(Activation, ThreadsAndInPlaceNeverChangeABit) {
  const GateSpec spec{{Activation::kGeluErf, 1}};
  for (int64_t gap : {0, 5}) {
    const SampleRows gate = SampleRows::Random(DType::kBF16, 700, 131, 1, 3, gap);
    const SampleRows up = SampleRows::Random(DType::kBF16, 700, 131, 2, 3, gap);
    const SampleRows grad = SampleRows::Random(DType::kBF16, 700, 131, 3, 3, gap);
    SampleRows y(DType::kBF16, 700, 131, gap), grad_gate = y, grad_up = y;
    ThreadPool one(1);
    GateForward(one, ChooseIsa().isa, {spec, gate.view(), up.view(), y.mut()});
    GateBackward(one, ChooseIsa().isa, {spec, gate.view(), up.view(), grad.view(), grad_gate.mut(), grad_up.mut()});
    for (int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      SampleRows gate_copy = gate, up_copy = up;
      GateForward(pool, ChooseIsa().isa, {spec, gate_copy.view(), up.view(), gate_copy.mut()});
      EXPECT_EQ(gate_copy, y);
      gate_copy = gate;
      GateBackward(pool, ChooseIsa().isa,
                   {spec, gate_copy.view(), up_copy.view(), grad.view(), gate_copy.mut(), up_copy.mut()});
      EXPECT_EQ(gate_copy, grad_gate);
      EXPECT_EQ(up_copy, grad_up);
    }
  }
}

TEST(Activation, ExtremeValues) {
  ThreadPool pool(1);
  const float values[] = {kInf, -kInf, std::nanf(""), 3e38f, -3e38f, 1e-40f, -0.0f, 100.0f, -100.0f};
  constexpr int64_t kCount = std::size(values);
  for (Isa isa : AvailableIsas()) {
    SampleRows x(DType::kF32, 1, kCount), y(DType::kF32, 1, kCount);
    for (int64_t i = 0; i < kCount; ++i) x.Set(0, i, values[i]);
    const auto run = [&](Activation kind) {
      ActivationForward(pool, isa, {SpecOf(kind), x.view(), y.mut()});
      EXPECT_TRUE(std::isnan(y.Get(0, 2))) << static_cast<int>(kind);
    };
    run(Activation::kRelu);
    EXPECT_EQ(y.Get(0, 0), kInf);
    EXPECT_EQ(y.Get(0, 1), 0);
    run(Activation::kSilu);
    EXPECT_EQ(y.Get(0, 0), kInf);
    EXPECT_EQ(y.Get(0, 3), 3e38f);
    EXPECT_EQ(y.Get(0, 4), 0);
    run(Activation::kGeluTanh);
    EXPECT_EQ(y.Get(0, 3), 3e38f);
    EXPECT_EQ(y.Get(0, 4), 0);
    EXPECT_EQ(y.Get(0, 7), 100);
    run(Activation::kGeluErf);
    EXPECT_EQ(y.Get(0, 3), 3e38f);
    EXPECT_EQ(y.Get(0, 8), 0);
    run(Activation::kSigmoid);
    EXPECT_EQ(y.Get(0, 0), 1);
    EXPECT_EQ(y.Get(0, 1), 0);
    run(Activation::kTanh);
    EXPECT_EQ(y.Get(0, 1), -1);
    run(Activation::kSoftCap);
    EXPECT_EQ(y.Get(0, 0), 3.5f);
    EXPECT_EQ(y.Get(0, 4), -3.5f);
  }
}

TEST(Activation, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  SampleRows x(DType::kF32, 2, 3), narrow(DType::kF32, 2, 2), half(DType::kBF16, 2, 3);
  EXPECT_THROW(ActivationForward(pool, ChooseIsa().isa, {{}, x.view(), narrow.mut()}), Error);
  EXPECT_THROW(ActivationForward(pool, ChooseIsa().isa, {{}, x.view(), half.mut()}), Error);
  EXPECT_THROW(ActivationForward(pool, ChooseIsa().isa, {{Activation::kSoftCap, 0}, x.view(), x.mut()}), Error);
  EXPECT_THROW(GateForward(pool, ChooseIsa().isa, {{{}, 0}, x.view(), x.view(), x.mut()}), Error);
  SampleRows none(DType::kF32, 0, 3);
  ActivationForward(pool, ChooseIsa().isa, {{}, none.view(), none.mut()});
}

}  // namespace
}  // namespace octavo::kernels
