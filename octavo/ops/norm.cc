#include "octavo/ops/norm.h"

#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/norm.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

// What both directions use; copied into the backward function.
struct NormCall {
  NormOptions options;
  Tensor x, scale, bias;  // undefined when absent; in the type of x

  kernels::NormSpec Spec() const {
    kernels::NormSpec spec;
    spec.kind = options.layer ? kernels::NormKind::kLayer : kernels::NormKind::kRms;
    spec.epsilon = static_cast<float>(options.epsilon);
    spec.weight = scale.defined() ? DataOf(scale) : nullptr;
    spec.bias = bias.defined() ? DataOf(bias) : nullptr;
    spec.weight_dtype = scale.defined() ? scale.dtype() : bias.defined() ? bias.dtype() : DType::kF32;
    spec.weight_offset = static_cast<float>(options.scale_offset);
    spec.round_before_weight = true;
    return spec;
  }
};

Var VectorOf(Context& context, const Var& x, const Parameter* parameter) {
  if (parameter == nullptr) return {};
  const int64_t cols = x.value.dim(x.value.rank() - 1);
  if (parameter->shape() != Shape{cols}) {
    ThrowUsage("Norm at {}: {} is {}, expected [{}]", context.path(), parameter->name, parameter->shape(), cols);
  }
  return ParameterAs(context, *parameter, x.dtype());
}

// The site of y * scale: a batch axis of features, nothing contracted.
void AnnounceSite(Context& context, const Var& x, const Var& scale, const Parameter* parameter, bool layer) {
  const Site site = context.NextSite(OpKind::kEinsum);
  if (context.interceptor == nullptr) return;
  const Operand rows = Activation(x);
  const Operand vector{scale.value, Role::kWeight, parameter, scale.node};
  AnnounceEinsum(context, site, layer ? "i...k,...k->i...k" : "...k,k->...k", rows, vector);
}

std::vector<Tensor> NormGradients(Context& back, const NormCall& call, const Tensor& inv, const Tensor& mean,
                                  const std::vector<int32_t>& starts, const Tensor& grad) {
  const RowsOfTensor x = AsRows(call.x), grad_y = AsRows(grad);
  Tensor grad_x = Tensor::Empty(call.x.shape(), call.x.dtype()), grad_scale, grad_bias;
  const Shape vector{x.rows.cols};
  if (call.scale.defined()) grad_scale = Tensor::Empty(vector, DType::kF32);
  if (call.bias.defined()) grad_bias = Tensor::Empty(vector, DType::kF32);
  kernels::NormBackwardArgs args;
  args.spec = call.Spec();
  args.x = x.rows;
  args.grad_y = grad_y.rows;
  args.inv = inv.Data<float>();
  args.mean = mean.defined() ? mean.Data<float>() : nullptr;
  args.grad_x = MutRowsOf(grad_x);
  args.grad_weight = grad_scale.defined() ? grad_scale.MutableData<float>() : nullptr;
  args.grad_bias = grad_bias.defined() ? grad_bias.MutableData<float>() : nullptr;
  args.sequences = SequencesOf(starts);
  kernels::NormBackward(back.pool, back.isa, args);
  const auto as_scale = [&](const Tensor& t) { return t.defined() ? CastTensor(back, t, call.x.dtype()) : t; };
  return {grad_x, as_scale(grad_scale), as_scale(grad_bias)};
}

}  // namespace

Var Norm(Context& context, const Var& x, const Parameter* scale, const Parameter* bias, const NormOptions& options) {
  CheckFloat("Norm", x.value);
  if (x.value.rank() == 0) ThrowUsage("Norm at {}: the input is a scalar", context.path());
  const Var scale_var = VectorOf(context, x, scale), bias_var = VectorOf(context, x, bias);
  if (scale != nullptr) AnnounceSite(context, x, scale_var, scale, options.layer);
  if (x.value.is_meta()) {
    return RecordOutput(context, Tensor::Meta(x.shape(), x.dtype()), {x.node, scale_var.node, bias_var.node});
  }
  const NormCall call{options, x.value, scale_var.value, bias_var.value};
  const RowsOfTensor rows = AsRows(x.value);
  Tensor out = Tensor::Empty(x.shape(), x.dtype());
  Tensor inv = Tensor::Empty({rows.rows.rows}, DType::kF32), mean;
  if (options.layer) mean = Tensor::Empty({rows.rows.rows}, DType::kF32);
  {
    const Timed timed(context.profile, context.path(), "norm", "forward", 0, static_cast<double>(2 * out.bytes()));
    kernels::NormForwardArgs args;
    args.spec = call.Spec();
    args.x = rows.rows;
    args.y = MutRowsOf(out);
    args.inv = inv.MutableData<float>();
    args.mean = options.layer ? mean.MutableData<float>() : nullptr;
    kernels::NormForward(context.pool, context.isa, args);
  }
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node, scale_var.node, bias_var.node},
                              [call, inv, mean, starts = StartsFor(context, rows.rows.rows), path = context.path()](
                                  Context& back, const Tensor& grad) {
                                const Timed timed(back.profile, path, "norm", "backward", 0,
                                                  static_cast<double>(3 * grad.bytes()));
                                return NormGradients(back, call, inv, mean, starts, grad);
                              });
}

}  // namespace octavo::ops
