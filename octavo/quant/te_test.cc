// The recipes of Transformer Engine against the published formulas, written out here once more in plain double
// arithmetic over explicit grids of numbers, without the product's formats and quantizers.
#include "octavo/quant/te.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "octavo/quant/provider.h"
#include "octavo/quant/quant_test_support.h"
#include "octavo/quant/recipe.h"
#include "octavo/quant/test_model.h"

namespace octavo::quant {
namespace {

// The non-negative numbers of a small float in the order of their codes, up to `largest`.
std::vector<double> Grid(int exponent_bits, int mantissa_bits, int bias, double largest) {
  std::vector<double> grid;
  const int count = 1 << mantissa_bits;
  for (int e = 0; e < 1 << exponent_bits; ++e) {
    for (int m = 0; m < count; ++m) {
      const double value = e == 0 ? std::ldexp(static_cast<double>(m) / count, 1 - bias)
                                  : std::ldexp(1.0 + static_cast<double>(m) / count, e - bias);
      if (value <= largest) grid.push_back(value);
    }
  }
  return grid;
}
const std::vector<double> kE4m3 = Grid(4, 3, 7, 448), kE5m2 = Grid(5, 2, 15, 57344), kE2m1 = Grid(2, 1, 1, 6);

// To nearest, ties to the even code, clipped at the end.
double Nearest(const std::vector<double>& grid, double x) {
  const double magnitude = std::min(std::fabs(x), grid.back());
  size_t best = 0;
  for (size_t i = 1; i < grid.size(); ++i) {
    const double now = std::fabs(grid[i] - magnitude), before = std::fabs(grid[best] - magnitude);
    if (now < before || (now == before && i % 2 == 0)) best = i;
  }
  return std::copysign(grid[best], x);
}

float Amax(const std::vector<float>& values) {
  float amax = 0;
  for (float value : values) amax = std::max(amax, std::fabs(value));
  return amax;
}

std::vector<float> Values(const QArray& array) { return Floats(Dequantize(array)); }

Tensor Spread(const Shape& shape, uint32_t seed) {
  // Normal numbers over a few powers of ten, as gradients are.
  Tensor x = Random(shape, seed).Clone();
  int i = 0;
  for (float& value : x.MutableValues<float>()) value *= std::pow(10.0f, static_cast<float>(i++ % 5 - 3));
  return x;
}

TEST(Te, CurrentScaling) {
  struct Case {
    Format format;
    const std::vector<double>& grid;
  };
  for (const Case& one : {Case{Format::kF8E4M3FN, kE4m3}, Case{Format::kF8E5M2, kE5m2}}) {
    const Tensor x = Spread({7, 33}, 1);
    const std::vector<float> in = Floats(x);
    const QArray array = TeQuantizeCurrent(x, one.format);
    const float scale = static_cast<float>(one.grid.back()) / Amax(in);
    ASSERT_EQ(array.scale.size(), 1);
    EXPECT_EQ(Floats(array.scale)[0], 1.0f / scale);
    const std::vector<float> out = Values(array);
    for (size_t i = 0; i < in.size(); ++i) {
      const float expected = static_cast<float>(Nearest(one.grid, in[i] * scale)) * (1.0f / scale);
      EXPECT_EQ(out[i], expected) << i;
    }
  }
  // Nothing to scale by: scale 1.
  EXPECT_EQ(Floats(TeQuantizeCurrent(Tensor::Zeros({2, 2}, DType::kF32), Format::kF8E4M3FN).scale)[0], 1.0f);
}

// The scale after a step is 448 over the largest amax of the last `history` steps; a step without numbers keeps it.
TEST(Te, DelayedScalingFollowsTheLastSteps) {
  constexpr size_t kHistory = 4;
  Fp8Meta meta = InitialFp8Meta(kHistory);
  std::deque<float> last;
  float scale = 1.0f;
  for (float amax : {2.0f, 8.0f, 1.0f, 0.5f, 0.25f, 3.0f, 0.125f, 0.125f, 0.125f, 0.125f, 0.0f, 5.0f}) {
    meta = TeUpdatedMeta(meta, amax, Format::kF8E4M3FN);
    last.push_back(amax);
    if (last.size() > kHistory) last.pop_front();
    const float largest = *std::max_element(last.begin(), last.end());
    if (largest > 0) scale = 448.0f / largest;
    EXPECT_EQ(meta.scale.ToVector<float>()[0], scale) << amax;
  }
  const Fp8Meta kept = TeUpdatedMeta(InitialFp8Meta(kHistory), std::numeric_limits<float>::infinity(), Format::kF8E5M2);
  EXPECT_EQ(kept.scale.ToVector<float>()[0], 1.0f);
}

TEST(Te, Mxfp8BlocksOf32) {
  const int64_t rows = 64, cols = 6;
  const Tensor x = Spread({rows, cols}, 2);
  const std::vector<float> in = Floats(x), out = Values(TeQuantizeMx(x, {0}));
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t block = 0; block < rows / 32; ++block) {
      const auto at = [&](int64_t r) { return static_cast<size_t>((block * 32 + r) * cols + c); };
      double amax = 0;
      for (int64_t r = 0; r < 32; ++r) amax = std::max(amax, std::fabs(static_cast<double>(in[at(r)])));
      const double scale = std::exp2(std::ceil(std::log2(amax / 448)));
      for (int64_t r = 0; r < 32; ++r) EXPECT_EQ(out[at(r)], Nearest(kE4m3, in[at(r)] / scale) * scale);
    }
  }
  // Powers of two are not rounded up.
  EXPECT_EQ(TeMxExponent(448.0f), 127);
  EXPECT_EQ(TeMxExponent(448.001f), 128);
  EXPECT_EQ(TeMxExponent(224.0f), 126);
}

// Block (row, column) -> scale as published: the block's amax over 6, under the tensor's scale 448 * 6 / amax, in e4m3.
TEST(Te, Nvfp4BlocksUnderOneTensorScale) {
  for (bool square : {false, true}) {
    const int64_t rows = 32, cols = 48;
    const Tensor x = Spread({rows, cols}, 3);
    const std::vector<float> in = Floats(x), out = Values(TeQuantizeNv(x, {0}, square, std::nullopt));
    const float global = 6.0f * 448.0f / Amax(in);
    const int64_t width = square ? 16 : 1;
    for (int64_t br = 0; br < rows / 16; ++br) {
      for (int64_t bc = 0; bc < cols / width; ++bc) {
        std::vector<size_t> members;
        for (int64_t r = 0; r < 16; ++r) {
          for (int64_t c = 0; c < width; ++c)
            members.push_back(static_cast<size_t>((br * 16 + r) * cols + bc * width + c));
        }
        float amax = 0;
        for (size_t i : members) amax = std::max(amax, std::fabs(in[i]));
        const double block = Nearest(kE4m3, amax / 6.0f * global);
        const double scale = block / global;
        for (size_t i : members) {
          const double expected = scale == 0 ? 0.0 : Nearest(kE2m1, in[i] / scale) * scale;
          EXPECT_NEAR(out[i], expected, 1e-6 * std::fabs(expected)) << i;
        }
      }
    }
  }
}

// Stochastic codes are the two neighbours, in the right proportion.
TEST(Te, Nvfp4RoundsGradientsWithoutBias) {
  const int64_t rows = 16, cols = 8, draws = 2000;
  const Tensor x = Random({rows, cols}, 4);
  const std::vector<float> in = Floats(x), nearest = Values(TeQuantizeNv(x, {0}, false, std::nullopt));
  const std::vector<float> scales = Floats(TeQuantizeNv(x, {0}, false, std::nullopt).scale);
  std::vector<double> mean(in.size(), 0.0);
  for (int64_t draw = 0; draw < draws; ++draw) {
    const RngKey key = RngKey::FromSeed(static_cast<uint64_t>(draw));
    const std::vector<float> out = Values(TeQuantizeNv(x, {0}, false, key));
    for (size_t i = 0; i < in.size(); ++i) mean[i] += out[i] / static_cast<double>(draws);
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const double scale = scales[i % static_cast<size_t>(cols)], value = in[i] / scale;
    if (std::fabs(value) > 6) continue;  // clipped
    const auto above = std::lower_bound(kE2m1.begin(), kE2m1.end(), std::fabs(value));
    const double step = above == kE2m1.begin() ? 0 : *above - *(above - 1);
    EXPECT_NEAR(mean[i], in[i], 4 * 0.5 * step * scale / std::sqrt(static_cast<double>(draws)) + 1e-6) << i;
  }
}

// Rotation: signs, Hadamard, 1/4; products that sum over the axis stay as they are up to the rounding to bf16.
TEST(Te, RotationIsOrthogonal) {
  const Tensor x = Random({32, 3}, 5), y = Random({32, 4}, 6);
  std::set<int> signs;
  const Tensor unit = [&] {
    Tensor one = Tensor::Zeros({16, 16}, DType::kF32);
    for (int64_t i = 0; i < 16; ++i) one.MutableData<float>()[i * 16 + i] = 1;
    return one;
  }();
  const std::vector<float> matrix = Floats(TeRotated(unit, 0));  // [j, i]
  for (int j = 0; j < 16; ++j) {
    for (int i = 0; i < 16; ++i) {
      const float hadamard = __builtin_popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 0.25f : -0.25f;
      EXPECT_EQ(std::fabs(matrix[static_cast<size_t>(j * 16 + i)]), 0.25f);
      // The sign of input i is the same for every output.
      EXPECT_EQ(matrix[static_cast<size_t>(j * 16 + i)] / hadamard, matrix[static_cast<size_t>(i)] / 0.25f);
      signs.insert(matrix[static_cast<size_t>(i)] > 0 ? 1 : -1);
    }
  }
  EXPECT_EQ(signs.size(), 2u);
  const DotDims dims{{0}, {0}, {}, {}};
  const DoubleDot plain = DotInDouble(x, y, dims), rotated = DotInDouble(TeRotated(x, 0), TeRotated(y, 0), dims);
  for (size_t i = 0; i < plain.value.size(); ++i) {
    EXPECT_NEAR(rotated.value[i], plain.value[i], 0.01 * plain.magnitude[i]);
  }
}

// One projection under a recipe: its three products are those of the operands quantized as above.
TEST(Te, SitesMultiplyTheQuantizedOperands) {
  const Tensor x = Random({1, 64, 32}, 7), g = Random({1, 64, 96}, 8, DType::kF32, 0.01f);
  const ops::Parameter kernel{"decoder/layers_0/mlp/wi_0/kernel", Random({32, 96}, 9, DType::kF32, 0.1f)};
  const auto project = [&](ops::Context& context, const ops::Var& in) {
    context.StartModel();
    const ops::Scope scope(context, "decoder/layers_0/mlp/wi_0");
    return ops::Project(context, in, kernel);
  };
  const Tensor rows = x.Reshape({64, 32}), grads = g.Reshape({64, 96});
  for (const char* name : {"te_fp8_currentscaling", "te_fp8_delayedscaling", "te_mxfp8", "te_nvfp4_no_rht"}) {
    const std::string recipe = name;
    const Plan plan = MakePlan([&](ops::Context& dry) { project(dry, Tensor::Meta(x.shape(), DType::kF32)); },
                               RuleSet(RulesOf(FindRecipe(recipe, false), {})));
    ThreadPool pool(2);
    kernels::Workspace workspace;
    ops::Context context(pool, kernels::ChooseIsa().isa, workspace);
    Provider provider(plan);
    ops::Tape tape;
    context.interceptor = &provider;
    context.tape = &tape;
    const ops::Var leaf = tape.Leaf(x), out = project(context, leaf);
    tape.Run(context, out, g);
    const auto forward = [&](const Tensor& t, int contract, bool weight) -> Tensor {
      if (recipe == "te_fp8_currentscaling") return Dequantize(TeQuantizeCurrent(t, Format::kF8E4M3FN));
      if (recipe == "te_fp8_delayedscaling") return Dequantize(TeQuantizeTensor(t, Format::kF8E4M3FN, 1.0f));
      if (recipe == "te_mxfp8") return Dequantize(TeQuantizeMx(t, {contract}));
      return Dequantize(TeQuantizeNv(t, {contract}, weight, std::nullopt));
    };
    EXPECT_LT(WorstError(out.value,
                         DotInDouble(forward(rows, 1, false), forward(kernel.tensor(), 0, true), {{1}, {0}, {}, {}})),
              1e-6)
        << name;
    if (recipe == "te_nvfp4_no_rht") continue;  // the gradient's noise is the site's
    const auto gradient = [&](int contract) -> Tensor {
      if (recipe == "te_fp8_currentscaling") return Dequantize(TeQuantizeCurrent(grads, Format::kF8E5M2));
      if (recipe == "te_fp8_delayedscaling") return Dequantize(TeQuantizeTensor(grads, Format::kF8E5M2, 1.0f));
      return Dequantize(TeQuantizeMx(grads, {contract}));
    };
    EXPECT_LT(
        WorstError(tape.Grad(leaf), DotInDouble(gradient(1), forward(kernel.tensor(), 1, true), {{1}, {1}, {}, {}})),
        1e-6)
        << name;
    EXPECT_LT(WorstError(tape.Grad(kernel), DotInDouble(forward(rows, 0, false), gradient(0), {{0}, {0}, {}, {}})),
              1e-6)
        << name;
  }
}

}  // namespace
}  // namespace octavo::quant
