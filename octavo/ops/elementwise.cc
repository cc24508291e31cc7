#include "octavo/ops/elementwise.h"

#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/elementwise.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {

Var RecordOutput(Context& context, Tensor output, std::initializer_list<NodeId> inputs) {
  if (context.tape == nullptr) return Var(std::move(output));
  const size_t count = inputs.size();
  return context.tape->Record(std::move(output), inputs,
                              [count](Context&, const Tensor&) { return std::vector<Tensor>(count); });
}

Tensor CastTensor(Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (x.is_meta()) return Tensor::Meta(x.shape(), dtype);
  const Tensor packed = x.Contiguous();
  Tensor out = Tensor::Empty(x.shape(), dtype);
  kernels::Cast(context.pool, context.isa, {DataOf(packed), x.dtype(), 1, x.size(), x.size()}, WholeOf(out));
  return out;
}

Tensor ScaleTensor(Context& context, const Tensor& x, double factor) {
  if (x.is_meta()) return Tensor::Meta(x.shape(), x.dtype());
  const RowsOfTensor rows = AsRows(x);
  Tensor out = Tensor::Empty(x.shape(), x.dtype());
  kernels::ElementwiseArgs args;
  args.op = kernels::ElementwiseOp::kScale;
  args.a = rows.rows;
  args.b = rows.rows;
  args.out = MutRowsOf(out);
  args.scalar = static_cast<float>(factor);
  kernels::Elementwise(context.pool, context.isa, args);
  return out;
}

Var Cast(Context& context, const Var& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  CheckFloat("Cast", x.value);
  Tensor out = CastTensor(context, x.value, dtype);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node}, [before = x.dtype()](Context& back, const Tensor& grad) {
    return std::vector<Tensor>{CastTensor(back, grad, before)};
  });
}

Var ParameterAs(Context& context, const Parameter& parameter, DType dtype) {
  if (parameter.frozen()) {
    ThrowUsage("{} is quantized, but the op at {} wants it in float", parameter.name, context.path());
  }
  const Var leaf = context.tape == nullptr ? Var(parameter.tensor()) : context.tape->Leaf(parameter);
  return Cast(context, leaf, dtype);
}

Var Scale(Context& context, const Var& x, double factor) {
  if (factor == 1) return x;
  CheckFloat("Scale", x.value);
  const Timed timed(context.profile, context.path(), "elementwise", "forward");
  Tensor out = ScaleTensor(context, x.value, factor);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node},
                              [factor, path = context.path()](Context& back, const Tensor& grad) {
                                const Timed time(back.profile, path, "elementwise", "backward");
                                return std::vector<Tensor>{ScaleTensor(back, grad, factor)};
                              });
}

namespace {

// Rows of `x` whose columns are all elements of the bias.
kernels::ConstRows FlatRows(const Tensor& contiguous, int64_t cols) {
  return {DataOf(contiguous), contiguous.dtype(), cols == 0 ? 0 : contiguous.size() / cols, cols, cols};
}

std::vector<Tensor> BiasGradients(Context& back, const Tensor& grad, const Shape& bias, DType bias_dtype,
                                  const std::vector<int32_t>& starts) {
  const Tensor packed = grad.Contiguous();
  Tensor sum = Tensor::Empty(bias, DType::kF32);
  kernels::BiasGradArgs args;
  args.grad_y = FlatRows(packed, bias.size());
  args.grad_bias = sum.MutableData<float>();
  args.sequences = SequencesOf(starts);
  kernels::BiasGrad(back.pool, back.isa, args);
  return {grad, CastTensor(back, sum, bias_dtype)};
}

}  // namespace

Var BiasAdd(Context& context, const Var& x, const Parameter& bias) {
  CheckFloat("BiasAdd", x.value);
  const Shape shape = bias.shape();
  const int first = x.value.rank() - shape.rank();
  bool fits = first >= 0;
  for (int i = 0; i < shape.rank() && fits; ++i) fits = x.value.dim(first + i) == shape[i];
  if (!fits) ThrowUsage("BiasAdd at {}: x is {}, {} is {}", context.path(), x.shape(), bias.name, shape);
  const Var addend = ParameterAs(context, bias, x.dtype());
  if (x.value.is_meta()) {
    return RecordOutput(context, Tensor::Meta(x.shape(), x.dtype()), {x.node, addend.node});
  }
  const Timed timed(context.profile, context.path(), "elementwise", "forward");
  const Tensor packed = x.value.Contiguous(), vector = addend.value.Contiguous();
  Tensor out = Tensor::Empty(x.shape(), x.dtype());
  kernels::BiasArgs args;
  args.x = FlatRows(packed, shape.size());
  args.bias = DataOf(vector);
  args.bias_dtype = vector.dtype();
  args.out = {MutDataOf(out), out.dtype(), args.x.rows, args.x.cols, args.x.cols};
  kernels::BiasAdd(context.pool, context.isa, args);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node, addend.node},
                              [shape, dtype = vector.dtype(), starts = StartsFor(context, args.x.rows),
                               path = context.path()](Context& back, const Tensor& grad) {
                                const Timed time(back.profile, path, "elementwise", "backward");
                                return BiasGradients(back, grad, shape, dtype, starts);
                              });
}

namespace {

Tensor DropoutTensor(Context& context, const Tensor& x, RngKey key, double rate, int64_t first_row) {
  const RowsOfTensor rows = AsRows(x);
  Tensor out = Tensor::Empty(x.shape(), x.dtype());
  kernels::DropoutArgs args;
  args.x = rows.rows;
  args.out = MutRowsOf(out);
  args.key = key;
  args.rate = rate;
  args.first_row = first_row;
  kernels::Dropout(context.pool, context.isa, args);
  return out;
}

}  // namespace

Var Dropout(Context& context, const Var& x, double rate, std::string_view name) {
  if (rate == 0 || !context.training) return x;
  CheckFloat("Dropout", x.value);
  if (x.value.is_meta()) return RecordOutput(context, Tensor::Meta(x.shape(), x.dtype()), {x.node});
  const int64_t rows = x.value.size() / x.value.dim(x.value.rank() - 1);
  const int64_t tokens = context.rows == nullptr ? 0 : context.rows->tokens();
  const int64_t first = tokens == 0 ? 0 : context.rows->global_row * (rows / tokens);
  const RngKey key = KeyOf(context, name);
  const Timed timed(context.profile, context.path(), "elementwise", "forward");
  Tensor out = DropoutTensor(context, x.value, key, rate, first);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node}, [=](Context& back, const Tensor& grad) {
    return std::vector<Tensor>{DropoutTensor(back, grad, key, rate, first)};
  });
}

}  // namespace octavo::ops
