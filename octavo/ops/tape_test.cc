#include "octavo/ops/tape.h"

#include <gtest/gtest.h>

#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/test_support.h"

namespace octavo::ops {
namespace {

Parameter Scalar(const std::string& name, float value) {
  Parameter parameter;
  parameter.name = name;
  parameter.value = Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{value});
  return parameter;
}

// a is used before and after b: its gradient is complete only when the walk is past its first use.
TEST(Tape, HandsOutEachGradientOnceAndComplete) {
  TestBench bench;
  const Parameter a = Scalar("a", 2), b = Scalar("b", 3), unused = Scalar("unused", 5);
  Tape tape;
  bench.context.tape = &tape;
  const Var first = tape.Leaf(a), second = tape.Leaf(b);
  tape.Leaf(unused);
  const Var product = Multiply(bench.context, first, second);      // a b
  const Var out = Multiply(bench.context, product, tape.Leaf(a));  // a^2 b
  std::vector<std::pair<std::string, float>> found;
  tape.HandOut([&](const Parameter& parameter, const Tensor& gradient) {
    found.emplace_back(parameter.name, gradient.ToVector<float>().at(0));
  });
  tape.Run(bench.context, out, Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{1}));
  EXPECT_EQ(found, (std::vector<std::pair<std::string, float>>{{"b", 4}, {"a", 12}}));
  EXPECT_FALSE(tape.Grad(a).defined());  // the tape keeps none of them
}

}  // namespace
}  // namespace octavo::ops
