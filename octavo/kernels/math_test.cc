#include "octavo/kernels/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/float_mode.h"
#include "octavo/kernels/math_array.h"
#if defined(__x86_64__)
#include "octavo/kernels/math_array_avx2.h"
#endif

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double SigmoidOracle(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

// The bounds stated in math.h, and where they hold.
struct Stated {
  MathFunction function;
  double (*oracle)(double);
  float low, high;
  double ulp;
};

const Stated kStated[] = {
    {MathFunction::kExp, std::exp, -87.33654f, kInf, 1.02},
    {MathFunction::kLog, std::log, 0x1p-126f, kInf, 0.81},
    {MathFunction::kTanh, std::tanh, -kInf, kInf, 1.34},
    {MathFunction::kSigmoid, SigmoidOracle, -87.33654f, kInf, 2.41},
    {MathFunction::kErf, std::erf, -kInf, kInf, 1.07},
    {MathFunction::kSin, std::sin, -0x1p30f, 0x1p30f, 0.501},
    {MathFunction::kCos, std::cos, -0x1p30f, 0x1p30f, 0.501},
};

// Every stride-th bit pattern, so all exponents and both signs, and a fine grid where the argument matters most.
std::vector<float> DenseGrid() {
  std::vector<float> grid;
  constexpr uint64_t kStride = 9973;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += kStride) {
    grid.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (int i = -100000; i <= 100000; ++i) grid.push_back(static_cast<float>(i) * 1e-3f);
  for (float special : {0.0f, -0.0f, 1.0f, kInf, -kInf, kNan, 88.72283f, 88.72284f, -87.33654f, -87.33655f, 0.625f,
                        0.93f, 4.0f, 0x1p30f, 0x1.000002p30f, 0x1p-126f, 0x1.fffffep127f, -0x1p-126f, 0x1p-149f}) {
    grid.push_back(special);
  }
  return grid;
}

double UlpOf(double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(Math, ErrorIsWithinTheStatedUlp) {
  const ScopedFloatMode mode;
  const std::vector<float> grid = DenseGrid();
  std::vector<float> found(grid.size());
  for (const Stated& stated : kStated) {
    ApplyMath(stated.function, Isa::kReference, grid.data(), found.data(), static_cast<int64_t>(grid.size()));
    double worst = 0;
    float worst_at = 0;
    int64_t checked = 0;
    for (size_t i = 0; i < grid.size(); ++i) {
      const float x = grid[i];
      if (!(x >= stated.low && x <= stated.high) || std::isinf(x)) continue;
      const double exact = stated.oracle(x);
      if (std::abs(exact) > 0x1.ffffffp127) {
        EXPECT_EQ(found[i], std::copysign(kInf, static_cast<float>(exact))) << NameOf(stated.function) << " " << x;
        continue;
      }
      if (std::abs(exact) < 0x1.000002p-126) continue;  // rounds to, or flushes below, the smallest normal number
      const double error = std::abs(static_cast<double>(found[i]) - exact) / UlpOf(exact);
      ++checked;
      if (!(error <= worst)) {
        worst = error;
        worst_at = x;
      }
    }
    EXPECT_LE(worst, stated.ulp) << NameOf(stated.function) << " at " << worst_at;
    EXPECT_GE(worst, 0.49) << NameOf(stated.function);  // no function is exact: else nothing was compared
    EXPECT_GT(checked, 100000) << NameOf(stated.function);
  }
}

TEST(Math, Specials) {
  const ScopedFloatMode mode;
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_LT(Exp(88.72283f), kInf);
  EXPECT_EQ(Exp(88.72284f), kInf);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_EQ(Exp(-87.33655f), 0.0f);
  EXPECT_GT(Exp(-87.33654f), 0.0f);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_EQ(Log(0.0f), -kInf);
  EXPECT_EQ(Log(-0.0f), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log(-1.0f)));
  EXPECT_TRUE(std::isnan(Log(-kInf)));
  EXPECT_TRUE(std::isnan(Log(kNan)));
  EXPECT_EQ(Tanh(0.0f), 0.0f);
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_EQ(Tanh(50.0f), 1.0f);
  EXPECT_EQ(Tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::isnan(Tanh(kNan)));
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(kInf), 1.0f);
  EXPECT_EQ(Sigmoid(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
  EXPECT_EQ(Erf(kInf), 1.0f);
  EXPECT_EQ(Erf(-5.0f), -1.0f);
  EXPECT_TRUE(std::isnan(Erf(kNan)));
  EXPECT_EQ(Sin(0.0f), 0.0f);
  EXPECT_EQ(Cos(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(Sin(0x1.000002p30f)));
  EXPECT_TRUE(std::isnan(Cos(kInf)));
}

TEST(Math, OddAndEvenFunctionsAreSo) {
  const ScopedFloatMode mode;
  for (float x = 1e-6f; x < 20.0f; x *= 1.01f) {
    EXPECT_EQ(Tanh(-x), -Tanh(x)) << x;
    EXPECT_EQ(Erf(-x), -Erf(x)) << x;
    EXPECT_EQ(Sin(-x), -Sin(x)) << x;
    EXPECT_EQ(Cos(-x), Cos(x)) << x;
  }
}

TEST(Math, SinCosInDoubleForPositionTables) {
  const ScopedFloatMode mode;
  double worst = 0;
  for (int64_t position = 0; position < 2'000'000; position += 37) {
    for (double frequency : {1.0, 0.7498942093324559, 0.0316227766016838, 1.1547819846894582e-4}) {
      const double x = static_cast<double>(position) * frequency;
      const SinCosResult found = SinCos64(x);
      const long double sin = std::sin(static_cast<long double>(x)), cos = std::cos(static_cast<long double>(x));
      const long double ulp_sin = UlpOf(static_cast<double>(sin)) * 0x1p-29;
      const long double ulp_cos = UlpOf(static_cast<double>(cos)) * 0x1p-29;
      if (x != 0) worst = std::max(worst, static_cast<double>(std::abs(found.sin - sin) / ulp_sin));
      worst = std::max(worst, static_cast<double>(std::abs(found.cos - cos) / ulp_cos));
    }
  }
  EXPECT_LE(worst, 1.6);
  EXPECT_GE(worst, 0.4);
}

#if defined(__x86_64__)
class MathAvx2 : public testing::Test {
  void SetUp() override {
    if (ChooseIsa().isa < Isa::kAvx2) GTEST_SKIP() << "no avx2 here";
  }
};

int64_t CountDifferent(const std::vector<float>& a, const std::vector<float>& b, size_t* first) {
  int64_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same =
        std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && different++ == 0) *first = i;
  }
  return different;
}

TEST_F(MathAvx2, SameBitsAsTheReference) {
  const ScopedFloatMode mode;
  const std::vector<float> grid = DenseGrid();
  const auto count = static_cast<int64_t>(grid.size());
  std::vector<float> reference(grid.size()), fast(grid.size());
  for (MathFunction function : kMathFunctions) {
    ApplyMath(function, Isa::kReference, grid.data(), reference.data(), count);
    ApplyMath(function, ChooseIsa().isa, grid.data(), fast.data(), count);
    size_t first = 0;
    EXPECT_EQ(CountDifferent(reference, fast, &first), 0)
        << NameOf(function) << "(" << grid[first] << "): " << reference[first] << " and " << fast[first];
  }
}

TEST_F(MathAvx2, ExpOfNotPositiveEqualsExp) {
  const ScopedFloatMode mode;
  std::vector<float> grid;
  for (float x : DenseGrid()) {
    if (!(x > 87.5f)) grid.push_back(x);
  }
  std::vector<float> reference(grid.size()), fast(grid.size());
  ApplyMath(MathFunction::kExp, Isa::kReference, grid.data(), reference.data(), static_cast<int64_t>(grid.size()));
  ExpNotPositiveAvx2(grid.data(), fast.data(), static_cast<int64_t>(grid.size()));
  size_t first = 0;
  EXPECT_EQ(CountDifferent(reference, fast, &first), 0) << grid[first];
}

TEST_F(MathAvx2, TailsTouchNothingElse) {
  const ScopedFloatMode mode;
  for (int64_t count = 0; count < 20; ++count) {
    std::vector<float> x(24, 0.5f), y(24, -7.0f);
    ApplyMath(MathFunction::kExp, ChooseIsa().isa, x.data(), y.data(), count);
    for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(y[i], i < count ? Exp(0.5f) : -7.0f) << count << " " << i;
  }
}
#endif

}  // namespace
}  // namespace octavo::kernels
