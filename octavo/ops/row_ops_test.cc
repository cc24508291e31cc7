#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/embedding.h"
#include "octavo/ops/gradient_check.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/norm.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/slice.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"

namespace octavo::ops {
namespace {

// The gradient of a parameter against central differences of the sum of out * weights.
double ParameterError(TestBench& bench, Parameter& parameter, const std::function<Var(Context&)>& forward,
                      float step = 1e-2f) {
  Tape tape;
  bench.context.tape = &tape;
  const Var out = forward(bench.context);
  const Tensor weights = RandomTensor(out.shape(), 99);
  tape.Run(bench.context, out, weights);
  bench.context.tape = nullptr;
  const std::vector<float> found = tape.Grad(parameter).ToVector<float>();
  const Tensor start = parameter.tensor();
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < start.size(); ++i) {
    double sides[2];
    for (int side : {0, 1}) {
      Tensor moved = start.Clone();
      moved.MutableValues<float>()[i] += side == 0 ? -step : step;
      parameter.value = moved;
      const std::vector<float> values = forward(bench.context).value.ToVector<float>();
      double sum = 0;
      for (size_t j = 0; j < values.size(); ++j) sum += static_cast<double>(values[j]) * weights.Values<float>()[j];
      sides[side] = sum;
    }
    const double expected = (sides[1] - sides[0]) / (2.0 * step);
    largest = std::max(largest, std::abs(expected));
    worst = std::max(worst, std::abs(expected - found[static_cast<size_t>(i)]));
  }
  parameter.value = start;
  return worst / largest;
}

TEST(NormOp, RmsAndLayerAgainstFormulasAndDifferences) {
  TestBench bench;
  const int64_t rows = 6, cols = 24;
  const Tensor x = RandomTensor({2, 3, cols}, 1);
  Parameter scale{"n/scale", RandomTensor({cols}, 2, 0.5, 1.5)}, bias{"n/bias", RandomTensor({cols}, 3)};
  for (bool layer : {false, true}) {
    const NormOptions options{1e-5, layer, layer ? 1.0 : 0.0};
    const Parameter* maybe_bias = layer ? &bias : nullptr;
    const Var y = Norm(bench.context, x, &scale, maybe_bias, options);
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0, square = 0;
      const float* row = x.Data<float>() + r * cols;
      for (int64_t c = 0; c < cols; ++c) mean += layer ? static_cast<double>(row[c]) / cols : 0;
      for (int64_t c = 0; c < cols; ++c) square += std::pow(row[c] - mean, 2) / cols;
      for (int64_t c = 0; c < cols; ++c) {
        const double weight = scale.tensor().Values<float>()[c] + options.scale_offset;
        const double expected = (row[c] - mean) / std::sqrt(square + 1e-5) * weight +
                                (layer ? static_cast<double>(bias.tensor().Values<float>()[c]) : 0.0);
        EXPECT_NEAR(y.value.Values<float>()[r * cols + c], expected, 2e-6);
      }
    }
    const auto forward = [&](Context& context, const std::vector<Var>& in) {
      return Norm(context, in[0], &scale, maybe_bias, options);
    };
    EXPECT_LT(GradientError(bench.context, forward, {x}), 3e-3);
    EXPECT_LT(ParameterError(bench, scale, [&](Context& c) { return Norm(c, x, &scale, maybe_bias, options); }), 3e-3);
    if (layer) {
      EXPECT_LT(ParameterError(bench, bias, [&](Context& c) { return Norm(c, x, &scale, &bias, options); }), 3e-3);
    }
  }
}

TEST(NormOp, Bf16IsRoundedOncePerOp) {
  TestBench bench;
  const Parameter scale{"n/scale", RandomTensor({64}, 2, 0.5, 1.5)};
  const Tensor x = CastTensor(bench.context, RandomTensor({5, 64}, 1), DType::kBF16);
  const Var y = Norm(bench.context, x, &scale, nullptr, {});
  EXPECT_EQ(y.dtype(), DType::kBF16);
  const Var full = Norm(bench.context, CastTensor(bench.context, x, DType::kF32), &scale, nullptr, {});
  const std::vector<float> a = CastTensor(bench.context, y.value, DType::kF32).ToVector<float>();
  const std::vector<float> b = full.value.ToVector<float>();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], std::abs(b[i]) * 0.0125);
}

class Listener : public Interceptor {
 public:
  void Fused(Context&, const DotCall& call) override { sites.push_back(call.site.ToString()); }
  std::vector<std::string> sites;
};

TEST(NormOp, AnnouncesItsSite) {
  TestBench bench;
  Listener listener;
  bench.context.interceptor = &listener;
  const Parameter scale{"a/scale", Tensor::Meta({8}, DType::kF32)};
  const Scope scope(bench.context, "a");
  const Var y = Norm(bench.context, Tensor::Meta({2, 3, 8}, DType::kF32), &scale, nullptr, {});
  EXPECT_TRUE(y.value.is_meta());
  EXPECT_EQ(listener.sites, std::vector<std::string>{"a einsum0"});
}

TEST(RowOps, BiasScaleActivationsGates) {
  TestBench bench;
  Parameter bias{"b", RandomTensor({3, 5}, 4)};
  const Tensor x = RandomTensor({2, 2, 3, 5}, 5), up = RandomTensor({2, 2, 3, 5}, 6);
  const auto check = [&](const Function& function, const std::vector<Tensor>& leaves) {
    EXPECT_LT(GradientError(bench.context, function, leaves), 3e-3);
  };
  check([&](Context& c, const std::vector<Var>& in) { return BiasAdd(c, in[0], bias); }, {x});
  EXPECT_LT(ParameterError(bench, bias, [&](Context& c) { return BiasAdd(c, x, bias); }), 3e-3);
  check([&](Context& c, const std::vector<Var>& in) { return Scale(c, in[0], -0.37); }, {x});
  check([&](Context& c, const std::vector<Var>& in) { return SoftCap(c, in[0], 1.5); }, {x});
  check([&](Context& c, const std::vector<Var>& in) { return Multiply(c, in[0], in[1]); }, {x, up});
  for (const char* name : {"silu", "gelu", "sigmoid", "tanh", "linear"}) {
    check([&](Context& c, const std::vector<Var>& in) { return Activate(c, in[0], ActivationByName(name)); }, {x});
    check([&](Context& c, const std::vector<Var>& in) { return Gate(c, in[0], in[1], {ActivationByName(name)}); },
          {x, up});
  }
  EXPECT_THROW(ActivationByName("swishh"), Error);
}

TEST(RowOps, SplitConcatBroadcast) {
  TestBench bench;
  const Tensor x = RandomTensor({2, 6, 4}, 7), y = RandomTensor({2, 1, 4}, 8);
  const int64_t sizes[] = {1, 3, 2};
  const auto split = [&](Context& c, const std::vector<Var>& in) {
    const std::vector<Var> parts = Split(c, in[0], 1, sizes);
    EXPECT_EQ(parts[1].shape(), (Shape{2, 3, 4}));
    const Var copies = Broadcast(c, in[1], 1, 3);
    const Var sum = Add(c, parts[1], copies);
    return Concat(c, std::vector<Var>{Scale(c, parts[2], 3), sum, Slice(c, in[0], 1, 4, 5)}, 1);
  };
  EXPECT_LT(GradientError(bench.context, split, {x, y}), 3e-3);
  const auto unbind = [&](Context& c, const std::vector<Var>& in) {
    const std::vector<Var> parts = Unbind(c, in[0], 1);
    return Multiply(c, parts[0], parts[5]);  // four parts get no gradient
  };
  EXPECT_LT(GradientError(bench.context, unbind, {x}), 3e-3);
}

TEST(RowOps, EmbeddingGathersAndAddsBack) {
  TestBench bench;
  Parameter table{"t", RandomTensor({7, 3}, 9)};
  const Tensor ids = IntTensor({2, 3}, {4, 0, 4, 6, 4, 0});
  const Var out = Embedding(bench.context, table, ids, DType::kF32, false);
  EXPECT_EQ(out.shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(out.value.At<float>({0, 2, 1}), table.tensor().At<float>({4, 1}));
  EXPECT_LT(ParameterError(bench, table, [&](Context& c) { return Embedding(c, table, ids, DType::kF32, false); }),
            3e-3);
  EXPECT_THROW(Embedding(bench.context, table, IntTensor({1}, {7}), DType::kF32, false), Error);
}

TEST(RowOps, DropoutDependsOnSiteAndGlobalRow) {
  TestBench bench;
  const Tensor x = RandomTensor({2, 4, 16}, 10, 1, 2);
  Rows whole = RowsOfShape(2, 4), second = RowsOfShape(1, 4);
  second.global_row = 4;
  EXPECT_TRUE(BitEqual(Dropout(bench.context, x, 0.5).value, x));  // not training
  bench.context.training = true;
  bench.context.rows = &whole;
  const Tensor all = Dropout(bench.context, x, 0.5).value;
  bench.context.rows = &second;
  EXPECT_TRUE(BitEqual(Dropout(bench.context, x.Slice(0, 1, 2), 0.5).value, all.Slice(0, 1, 2)));
  bench.context.rows = &whole;
  {
    const Scope scope(bench.context, "other");
    EXPECT_FALSE(BitEqual(Dropout(bench.context, x, 0.5).value, all));
  }
  int64_t dropped = 0;
  for (float value : all.Values<float>()) dropped += value == 0 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(dropped) / 128, 0.5, 0.15);
  const auto function = [](Context& c, const std::vector<Var>& in) { return Dropout(c, in[0], 0.5); };
  EXPECT_LT(GradientError(bench.context, function, {x}), 3e-3);
}

TEST(RowsTest, SegmentsBecomeSequences) {
  const Rows rows =
      RowsOfBatch(IntTensor({2, 4}, {0, 1, 0, 0, 0, 1, 2, 3}), IntTensor({2, 4}, {1, 1, 2, 0, 1, 1, 1, 1}));
  const std::vector<Sequence> expected = {{0, 2, 0}, {2, 1, 0}, {3, 1, 0}, {4, 4, 0}};
  EXPECT_EQ(rows.sequences, expected);
  EXPECT_EQ(rows.Starts().ToVector<int32_t>(), (std::vector<int32_t>{0, 2, 3, 4, 8}));
  EXPECT_THROW(RowsOfBatch(IntTensor({1, 3}, {0, 1, 2}), IntTensor({1, 3}, {1, 2, 1})), Error);
}

}  // namespace
}  // namespace octavo::ops
