#include "octavo/ops/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

// A fixed weight in [-1, 1] for element i of the output.
float OutputWeight(int64_t i) { return std::sin(static_cast<float>(i % 1000) * 1.7f + 0.3f); }

double WeightedSum(const Tensor& tensor) {
  double sum = 0;
  const std::vector<float> values = tensor.ToVector<float>();
  for (size_t i = 0; i < values.size(); ++i)
    sum += static_cast<double>(values[i]) * OutputWeight(static_cast<int64_t>(i));
  return sum;
}

double Evaluate(Context& context, const Function& function, const std::vector<Tensor>& leaves) {
  Tape* const tape = std::exchange(context.tape, nullptr);
  const double result = WeightedSum(function(context, std::vector<Var>(leaves.begin(), leaves.end())).value);
  context.tape = tape;
  return result;
}

}  // namespace

double GradientError(Context& context, const Function& function, const std::vector<Tensor>& leaves, float step) {
  Tape tape;
  Tape* const before = std::exchange(context.tape, &tape);
  std::vector<Var> vars;
  for (const Tensor& leaf : leaves) vars.push_back(tape.Leaf(leaf));
  const Var out = function(context, vars);
  Tensor seed = Tensor::Empty(out.shape(), DType::kF32);
  const auto weights = seed.MutableValues<float>();
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = OutputWeight(static_cast<int64_t>(i));
  tape.Run(context, out, seed);
  context.tape = before;

  double largest = 0, worst = 0;
  for (size_t which = 0; which < leaves.size(); ++which) {
    const Tensor grad = tape.Grad(vars[which]);
    const std::vector<float> found = grad.defined() ? grad.ToVector<float>() : std::vector<float>(leaves[which].size());
    for (int64_t i = 0; i < leaves[which].size(); ++i) {
      double sides[2];
      for (int side : {0, 1}) {
        std::vector<Tensor> moved = leaves;
        moved[which] = leaves[which].Clone();
        moved[which].MutableValues<float>()[i] += side == 0 ? -step : step;
        sides[side] = Evaluate(context, function, moved);
      }
      const double expected = (sides[1] - sides[0]) / (2.0 * step);
      largest = std::max(largest, std::abs(expected));
      worst = std::max(worst, std::abs(expected - found[static_cast<size_t>(i)]));
    }
  }
  return largest == 0 ? worst : worst / largest;
}

}  // namespace octavo::ops
