#include "octavo/ops/dot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "octavo/base/error.h"
#include "octavo/ops/add.h"
#include "octavo/ops/einsum_dims.h"
#include "octavo/ops/gradient_check.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"

namespace octavo::ops {
namespace {

// Plain nested loops over every axis, in double.
std::vector<double> NaiveDot(const Tensor& lhs, const Tensor& rhs, const DotDims& dims) {
  const Shape shape = DotShape("test", lhs.shape(), rhs.shape(), dims);
  std::vector<double> result(static_cast<size_t>(shape.size()));
  const std::vector<int> lhs_free = FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch);
  const std::vector<int> rhs_free = FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch);
  int64_t inner = 1;
  for (int axis : dims.lhs_contract) inner *= lhs.dim(axis);
  for (int64_t flat = 0; flat < shape.size(); ++flat) {
    std::vector<int64_t> at(static_cast<size_t>(shape.rank()));
    for (int64_t rest = flat, axis = shape.rank(); axis-- > 0;) {
      at[axis] = rest % shape[static_cast<int>(axis)];
      rest /= shape[static_cast<int>(axis)];
    }
    for (int64_t k = 0; k < inner; ++k) {
      int64_t lhs_at = 0, rhs_at = 0;
      size_t i = 0;
      for (size_t b = 0; b < dims.lhs_batch.size(); ++b, ++i) {
        lhs_at += at[i] * lhs.stride(dims.lhs_batch[b]);
        rhs_at += at[i] * rhs.stride(dims.rhs_batch[b]);
      }
      for (int axis : lhs_free) lhs_at += at[i++] * lhs.stride(axis);
      for (int axis : rhs_free) rhs_at += at[i++] * rhs.stride(axis);
      int64_t rest = k;
      for (size_t c = dims.lhs_contract.size(); c-- > 0;) {
        const int64_t size = lhs.dim(dims.lhs_contract[c]);
        lhs_at += rest % size * lhs.stride(dims.lhs_contract[c]);
        rhs_at += rest % size * rhs.stride(dims.rhs_contract[c]);
        rest /= size;
      }
      result[static_cast<size_t>(flat)] +=
          static_cast<double>(lhs.Data<float>()[lhs_at]) * static_cast<double>(rhs.Data<float>()[rhs_at]);
    }
  }
  return result;
}

struct Case {
  Shape lhs, rhs;
  DotDims dims;
};

std::vector<Case> Cases() {
  return {
      {{3, 5}, {5, 4}, {{1}, {0}, {}, {}}},
      {{5, 3}, {4, 5}, {{0}, {1}, {}, {}}},
      {{2, 3, 4}, {4, 2, 5}, {{2}, {0}, {}, {}}},
      {{2, 3, 4}, {2, 4, 5}, {{2}, {1}, {0}, {0}}},
      {{2, 3, 4, 5}, {5, 4, 6}, {{2, 3}, {1, 0}, {}, {}}},
      {{3, 2, 4}, {4, 5, 3}, {{2}, {0}, {0}, {2}}},
      {{2, 3}, {4}, {{}, {}, {}, {}}},
      {{2, 0}, {0, 3}, {{1}, {0}, {}, {}}},
      {{2, 300}, {300, 3}, {{1}, {0}, {}, {}}},
  };
}

TEST(DotGeneral, EqualsNestedLoops) {
  TestBench bench;
  uint32_t seed = 1;
  for (const Case& c : Cases()) {
    const Tensor lhs = RandomTensor(c.lhs, seed++), rhs = RandomTensor(c.rhs, seed++);
    const Var out = DotGeneral(bench.context, Activation(lhs), Activation(rhs), c.dims);
    const std::vector<double> expected = NaiveDot(lhs, rhs, c.dims);
    const std::vector<float> found = out.value.ToVector<float>();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-5) << c.lhs.ToString() << c.rhs.ToString();
  }
}

TEST(DotGeneral, GradientsEqualDifferences) {
  TestBench bench;
  uint32_t seed = 100;
  for (const Case& c : Cases()) {
    if (c.lhs.size() == 0 || c.lhs.size() > 200) continue;
    const double error =
        GradientError(bench.context,
                      [&](Context& context, const std::vector<Var>& leaves) {
                        return DotGeneral(context, Activation(leaves[0]), Activation(leaves[1]), c.dims);
                      },
                      {RandomTensor(c.lhs, seed), RandomTensor(c.rhs, seed + 1)});
    EXPECT_LT(error, 2e-3) << c.lhs.ToString() << c.rhs.ToString();
    seed += 2;
  }
}

TEST(Einsum, EqualsTheDotItStandsFor) {
  TestBench bench;
  const Tensor q = RandomTensor({2, 3, 2, 2, 4}, 1), k = RandomTensor({2, 5, 2, 4}, 2);
  const Var out = Einsum(bench.context, "btkgd,bskd->bkgts", Activation(q), Activation(k));
  ASSERT_EQ(out.shape(), (Shape{2, 2, 2, 3, 5}));
  for (int64_t b : {0, 1}) {
    for (int64_t h : {0, 1}) {
      for (int64_t g : {0, 1}) {
        double sum = 0;
        for (int64_t d = 0; d < 4; ++d) sum += q.At<float>({b, 2, h, g, d}) * k.At<float>({b, 4, h, d});
        EXPECT_NEAR(out.value.At<float>({b, h, g, 2, 4}), sum, 1e-6);
      }
    }
  }
}

TEST(Einsum, GradientsEqualDifferences) {
  TestBench bench;
  for (const char* equation : {"abc,cd->abd", "abc,dc->dab", "...c,cd->...d", "acb,abd->abcd"}) {
    const bool batched = std::string_view(equation) == "acb,abd->abcd";
    const std::vector<Tensor> leaves = {RandomTensor(batched ? Shape{2, 4, 3} : Shape{2, 3, 4}, 5),
                                        RandomTensor(batched              ? Shape{2, 3, 2}
                                                     : equation[4] == 'd' ? Shape{5, 4}
                                                                          : Shape{4, 5},
                                                     6)};
    const double error = GradientError(
        bench.context,
        [&](Context& context, const std::vector<Var>& vars) {
          return Einsum(context, equation, Activation(vars[0]), Activation(vars[1]));
        },
        leaves);
    EXPECT_LT(error, 2e-3) << equation;
  }
}

TEST(Einsum, RefusesWhatItCannotDo) {
  const Shape a{2, 3}, b{3, 4};
  for (const char* bad : {"ab", "ab,bc", "ab,bc,cd->ad", "aab,bc->ac", "abc,bc->a", "ab,bc->ad", "ab,bc->a",
                          "ab,ca->cb", "a?,bc->ac", "ab,bc->acc", "......,bc->b"}) {
    EXPECT_THROW(ParseEinsum("Einsum at x", bad, a, b), Error) << bad;
  }
  const EinsumDims parsed = ParseEinsum("Einsum at x", "ab,bc->ac", a, b);
  EXPECT_EQ(parsed.dims.lhs_contract, std::vector<int>{0});  // of the second operand
  EXPECT_EQ(parsed.dims.rhs_contract, std::vector<int>{1});
  EXPECT_EQ(parsed.order, (std::vector<int>{1, 0}));
}

TEST(RaggedDot, EqualsADotPerGroupAndZeroesTheRest) {
  TestBench bench;
  const Tensor lhs = RandomTensor({7, 3}, 1), rhs = RandomTensor({4, 3, 5}, 2);
  const Tensor sizes = Tensor::FromValues<int32_t>({4}, DType::kI32, std::vector<int32_t>{2, 0, 3, 1});
  const Var out = RaggedDot(bench.context, Activation(lhs), Activation(rhs), sizes);
  const int group_of[] = {0, 0, 2, 2, 2, 3, -1};
  for (int64_t row = 0; row < 7; ++row) {
    for (int64_t n = 0; n < 5; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < 3 && group_of[row] >= 0; ++k)
        sum += lhs.At<float>({row, k}) * rhs.At<float>({group_of[row], k, n});
      EXPECT_NEAR(out.value.At<float>({row, n}), sum, 1e-6);
    }
  }
  const double error = GradientError(bench.context,
                                     [&](Context& context, const std::vector<Var>& vars) {
                                       return RaggedDot(context, Activation(vars[0]), Activation(vars[1]), sizes);
                                     },
                                     {lhs, rhs});
  EXPECT_LT(error, 2e-3);
}

TEST(Tape, GradientsOfAReusedParameterAreAdded) {
  TestBench bench;
  const Parameter kernel{"mlp/kernel", RandomTensor({4, 4}, 3)};
  Tape tape;
  bench.context.tape = &tape;
  const Var x = tape.Leaf(RandomTensor({2, 4}, 4));
  const Var out = Project(bench.context, Relu(bench.context, Project(bench.context, x, kernel)), kernel);
  tape.Run(bench.context, out, RandomTensor({2, 4}, 5));
  ASSERT_EQ(tape.parameters().size(), 1u);
  EXPECT_EQ(tape.parameters()[0], &kernel);
  EXPECT_EQ(tape.Grad(kernel).shape(), (Shape{4, 4}));
  bench.context.tape = nullptr;
  const double error = GradientError(bench.context,
                                     [](Context& context, const std::vector<Var>& vars) {
                                       const DotDims dims{{1}, {0}, {}, {}};
                                       const Var hidden =
                                           DotGeneral(context, Activation(vars[0]), Activation(vars[1]), dims);
                                       return Multiply(context, hidden, Add(context, hidden, vars[0]));
                                     },
                                     {RandomTensor({2, 4}, 8), RandomTensor({4, 4}, 9)});
  EXPECT_LT(error, 2e-3);
}

TEST(DotGeneral, ErrorsNameTheSiteAndBothShapes) {
  TestBench bench;
  const Scope decoder(bench.context, "decoder"), layer(bench.context, "layers_3");
  try {
    DotGeneral(bench.context, Activation(RandomTensor({8, 512}, 1)), Activation(RandomTensor({1024, 4}, 2)),
               {{1}, {0}, {}, {}});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "DotGeneral at decoder/layers_3: lhs [8, 512] contracts 512, rhs [1024, 4] wants 1024");
  }
  EXPECT_THROW(DotGeneral(bench.context, Activation(RandomTensor({2, 3}, 1)), Activation(RandomTensor({3, 2}, 2)),
                          {{2}, {0}, {}, {}}),
               Error);
  EXPECT_THROW(DotGeneral(bench.context, Activation(RandomTensor({2, 2}, 1)), Activation(RandomTensor({2, 2}, 2)),
                          {{1}, {0}, {1}, {1}}),
               Error);
}

TEST(Site, OrdinalsCountPerModuleAndKind) {
  TestBench bench;
  {
    const Scope a(bench.context, "a");
    EXPECT_EQ(bench.context.NextSite(OpKind::kDotGeneral).ToString(), "a dot_general0");
    EXPECT_EQ(bench.context.NextSite(OpKind::kEinsum).ToString(), "a einsum0");
    EXPECT_EQ(bench.context.NextSite(OpKind::kDotGeneral).ToString(), "a dot_general1");
  }
  const Scope b(bench.context, "b");
  EXPECT_EQ(bench.context.NextSite(OpKind::kDotGeneral).ToString(), "b dot_general0");
  bench.context.StartModel();
  EXPECT_EQ(bench.context.NextSite(OpKind::kDotGeneral).ToString(), "b dot_general0");
  EXPECT_EQ(ScannedPath("decoder/layers_12/mlp/wi_0"), "decoder/layers/mlp/wi_0");
  EXPECT_EQ(ScannedPath("decoder/dense_layers_0/mlp"), "decoder/dense_layers/mlp");
  EXPECT_EQ(ScannedPath(""), "");
}

TEST(DotGeneral, MetaOperandsGiveAMetaResult) {
  TestBench bench;
  const Var out = DotGeneral(bench.context, Activation(Tensor::Meta({8, 512}, DType::kBF16)),
                             Activation(Tensor::Meta({512, 3}, DType::kBF16)), {{1}, {0}, {}, {}});
  EXPECT_TRUE(out.value.is_meta());
  EXPECT_EQ(out.value.ToString(), "bf16[8, 3]");
}

}  // namespace
}  // namespace octavo::ops
