#include "octavo/ops/add.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/activation.h"
#include "octavo/kernels/elementwise.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

Tensor Combine(Context& context, const char* op, kernels::ElementwiseOp what, const Tensor& a, const Tensor& b) {
  CheckSame(op, a, b);
  if (a.is_meta() || b.is_meta()) return Tensor::Meta(a.shape(), a.dtype());
  const RowsOfTensor x = AsRows(a), y = AsRows(b);
  Tensor out = Tensor::Empty(a.shape(), a.dtype());
  kernels::ElementwiseArgs args;
  args.op = what;
  args.a = x.rows;
  args.b = y.rows;
  args.out = MutRowsOf(out);
  kernels::Elementwise(context.pool, context.isa, args);
  return out;
}

Tensor MultiplyTensors(Context& context, const Tensor& a, const Tensor& b) {
  return Combine(context, "Multiply", kernels::ElementwiseOp::kMultiply, a, b);
}

}  // namespace

Tensor AddTensors(Context& context, const Tensor& a, const Tensor& b) {
  return Combine(context, "Add", kernels::ElementwiseOp::kAdd, a, b);
}

Var Add(Context& context, const Var& a, const Var& b) {
  const Timed timed(context.profile, context.path(), "elementwise", "forward");
  Tensor out = AddTensors(context, a.value, b.value);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {a.node, b.node}, [](Context&, const Tensor& grad) {
    return std::vector<Tensor>{grad, grad};
  });
}

Var Multiply(Context& context, const Var& a, const Var& b) {
  Tensor out = MultiplyTensors(context, a.value, b.value);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {a.node, b.node}, [x = a.value, y = b.value](Context& back, const Tensor& grad) {
        return std::vector<Tensor>{MultiplyTensors(back, grad, y), MultiplyTensors(back, grad, x)};
      });
}

}  // namespace octavo::ops
