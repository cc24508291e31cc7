#include "octavo/ops/permute.h"

#include <vector>

#include "octavo/ops/tape.h"

namespace octavo::ops {

Var Permute(Context& context, const Var& x, std::span<const int> order) {
  Tensor out = x.value.Permute(order);
  if (context.tape == nullptr) return Var(std::move(out));
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return context.tape->Record(std::move(out), {x.node}, [inverse](Context&, const Tensor& grad) {
    return std::vector<Tensor>{grad.Permute(inverse)};
  });
}

Var Reshape(Context& context, const Var& x, const Shape& shape) {
  Tensor out = x.value.Reshape(shape);
  if (context.tape == nullptr) return Var(std::move(out));
  const Shape before = x.shape();
  return context.tape->Record(std::move(out), {x.node}, [before](Context&, const Tensor& grad) {
    return std::vector<Tensor>{grad.Reshape(before)};
  });
}

}  // namespace octavo::ops
