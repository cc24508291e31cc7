#include "octavo/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/gradient_check.h"
#include "octavo/ops/rope.h"
#include "octavo/ops/slice.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"

namespace octavo::ops {
namespace {

// Plain softmax attention in double.
std::vector<double> Naive(const Tensor& q, const Tensor& k, const Tensor& v, const Rows& rows,
                          const AttentionOptions& options) {
  const int64_t heads = q.dim(2), group = heads / k.dim(2), dim = q.dim(3), width = v.dim(3);
  std::vector<double> out(static_cast<size_t>(rows.tokens() * heads * width));
  const auto at = [&](const Tensor& x, int64_t token, int64_t head, int64_t c) {
    return static_cast<double>(x.At<float>({token / rows.length, token % rows.length, head, c}));
  };
  for (const Sequence& one : rows.sequences) {
    for (int64_t t = 0; t < one.length; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<double> p;
        double sum = 0;
        for (int64_t s = 0; s <= t; ++s) {
          double z = 0;
          for (int64_t c = 0; c < dim; ++c)
            z += at(q, one.row_begin + t, h, c) * at(k, one.row_begin + s, h / group, c);
          z *= options.scale;
          if (options.soft_cap > 0) z = options.soft_cap * std::tanh(z / options.soft_cap);
          const bool seen = options.window == 0 || t - s < options.window;
          p.push_back(seen ? std::exp(z) : 0);
          sum += p.back();
        }
        if (options.sinks != nullptr) sum += std::exp(static_cast<double>(options.sinks->tensor().Values<float>()[h]));
        for (int64_t s = 0; s <= t; ++s) {
          for (int64_t c = 0; c < width; ++c) {
            out[static_cast<size_t>(((one.row_begin + t) * heads + h) * width + c)] +=
                p[static_cast<size_t>(s)] / sum * at(v, one.row_begin + s, h / group, c);
          }
        }
      }
    }
  }
  return out;
}

struct Case {
  int64_t kv_heads, value_width;
  AttentionOptions options;
};

TEST(AttentionOp, AgreesWithPlainSoftmaxAndItsDifferences) {
  TestBench bench;
  const Parameter sinks{"sinks", RandomTensor({4}, 20)};
  AttentionOptions window, cap, sink, scaled;
  window.window = 2;
  cap.soft_cap = 1.2;
  sink.sinks = &sinks;
  scaled.scale = 0.35;
  const Rows rows =
      RowsOfBatch(IntTensor({2, 5}, {0, 1, 2, 0, 1, 0, 1, 2, 3, 4}), IntTensor({2, 5}, {1, 1, 1, 2, 2, 1, 1, 1, 1, 0}));
  for (const Case& one : {Case{4, 6, {}}, Case{2, 6, window}, Case{1, 6, cap}, Case{2, 3, sink}, Case{2, 9, scaled}}) {
    const Tensor q = RandomTensor({2, 5, 4, 6}, 21), k = RandomTensor({2, 5, one.kv_heads, 6}, 22);
    const Tensor v = RandomTensor({2, 5, one.kv_heads, one.value_width}, 23);
    const Var out = Attention(bench.context, q, k, v, rows, one.options);
    const std::vector<double> expected = Naive(q, k, v, rows, one.options);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(out.value.Values<float>()[i], expected[i], 2e-6) << i;
    const auto function = [&](Context& c, const std::vector<Var>& in) {
      return Attention(c, in[0], in[1], in[2], rows, one.options);
    };
    EXPECT_LT(GradientError(bench.context, function, {q, k, v}), 5e-3);
  }
}

TEST(AttentionOp, ReadsHeadsWhereTheyLie) {
  TestBench bench;
  const Rows rows = RowsOfShape(2, 4);
  const Tensor qkv = RandomTensor({2, 4, 3, 2, 8}, 24);
  const std::vector<Var> parts = Unbind(bench.context, qkv, 2);
  const Var strided = Attention(bench.context, parts[0], parts[1], parts[2], rows, {});
  const Var packed =
      Attention(bench.context, parts[0].value.Clone(), parts[1].value.Clone(), parts[2].value.Clone(), rows, {});
  EXPECT_TRUE(BitEqual(strided.value, packed.value));
  EXPECT_THROW(Attention(bench.context, parts[0], parts[1], parts[2], RowsOfShape(1, 4), {}), Error);
}

TEST(AttentionOp, SinksHaveAGradient) {
  TestBench bench;
  const Rows rows = RowsOfShape(2, 3);
  const Tensor q = RandomTensor({2, 3, 2, 4}, 25), k = RandomTensor({2, 3, 1, 4}, 26),
               v = RandomTensor({2, 3, 1, 4}, 27);
  Parameter sinks{"sinks", RandomTensor({2}, 28)};
  AttentionOptions options;
  options.sinks = &sinks;
  const auto loss = [&] {
    double sum = 0;
    for (float value : Attention(bench.context, q, k, v, rows, options).value.ToVector<float>()) sum += value;
    return sum;
  };
  Tape tape;
  bench.context.tape = &tape;
  const Var out = Attention(bench.context, q, k, v, rows, options);
  const std::vector<float> ones(static_cast<size_t>(out.value.size()), 1.0f);
  tape.Run(bench.context, out, Tensor::FromValues<float>(out.shape(), DType::kF32, ones));
  bench.context.tape = nullptr;
  const std::vector<float> grad = tape.Grad(sinks).ToVector<float>();
  for (int64_t i : {0, 1}) {
    const Tensor start = sinks.tensor();
    double sides[2];
    for (int side : {0, 1}) {
      Tensor moved = start.Clone();
      moved.MutableValues<float>()[i] += side == 0 ? -1e-2f : 1e-2f;
      sinks.value = moved;
      sides[side] = loss();
    }
    sinks.value = start;
    EXPECT_NEAR(grad[static_cast<size_t>(i)], (sides[1] - sides[0]) / 2e-2, 1e-3);
  }
}

TEST(RopeOp, TurnsAndTurnsBack) {
  TestBench bench;
  Rows rows = RowsOfShape(1, 3);
  rows.position = IntTensor({3}, {0, 5, 70});
  for (auto layout : {kernels::RopeLayout::kHalves, kernels::RopeLayout::kPairs, kernels::RopeLayout::kPairsToHalves}) {
    kernels::RopeConfig config;
    config.rotary_dim = 6;
    RopeTable table(config);
    const Tensor x = RandomTensor({1, 3, 2, 6}, 30);
    const Var y = Rope(bench.context, x, rows, table, layout);
    const bool halves_in = layout == kernels::RopeLayout::kHalves, halves_out = layout != kernels::RopeLayout::kPairs;
    for (int64_t t : {0, 1, 2}) {
      for (int64_t i = 0; i < 3; ++i) {
        const double angle = rows.position.Values<int32_t>()[t] * std::pow(10000.0, -static_cast<double>(i) / 3);
        const double a = x.At<float>({0, t, 1, halves_in ? i : 2 * i});
        const double b = x.At<float>({0, t, 1, halves_in ? i + 3 : 2 * i + 1});
        EXPECT_NEAR(y.value.At<float>({0, t, 1, halves_out ? i : 2 * i}), a * std::cos(angle) - b * std::sin(angle),
                    1e-6);
        EXPECT_NEAR(y.value.At<float>({0, t, 1, halves_out ? i + 3 : 2 * i + 1}),
                    b * std::cos(angle) + a * std::sin(angle), 1e-6);
      }
    }
    const auto function = [&](Context& c, const std::vector<Var>& in) { return Rope(c, in[0], rows, table, layout); };
    EXPECT_LT(GradientError(bench.context, function, {x}), 3e-3);
  }
}

}  // namespace
}  // namespace octavo::ops
