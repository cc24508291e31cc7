#include "octavo/ops/activation.h"

#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/activation.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {

kernels::ActivationSpec ActivationByName(std::string_view name) {
  using kernels::Activation;
  static constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"linear", Activation::kLinear}, {"relu", Activation::kRelu},       {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},    {"gelu", Activation::kGeluTanh},   {"sigmoid", Activation::kSigmoid},
      {"tanh", Activation::kTanh},     {"gelu_erf", Activation::kGeluErf}};
  for (const auto& [known, kind] : kNames) {
    if (known == name) return {kind, 1};
  }
  throw Error(ErrorCode::kUsage, fmt::format("mlp_activations: no activation is named {}", name),
              "known: linear relu silu swish gelu gelu_erf sigmoid tanh");
}

Var Activate(Context& context, const Var& x, const kernels::ActivationSpec& activation) {
  if (activation.kind == kernels::Activation::kLinear) return x;
  CheckFloat("Activate", x.value);
  if (x.value.is_meta()) return RecordOutput(context, Tensor::Meta(x.shape(), x.dtype()), {x.node});
  const Timed timed(context.profile, context.path(), "elementwise", "forward");
  const RowsOfTensor rows = AsRows(x.value);
  Tensor out = Tensor::Empty(x.shape(), x.dtype());
  kernels::ActivationForward(context.pool, context.isa, {activation, rows.rows, MutRowsOf(out)});
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {x.node},
      [activation, input = x.value, path = context.path()](Context& back, const Tensor& grad) {
        const Timed time(back.profile, path, "elementwise", "backward");
        const RowsOfTensor in = AsRows(input), grad_y = AsRows(grad);
        Tensor grad_x = Tensor::Empty(input.shape(), input.dtype());
        kernels::ActivationBackward(back.pool, back.isa, {activation, in.rows, grad_y.rows, MutRowsOf(grad_x)});
        return std::vector<Tensor>{grad_x};
      });
}

Var Relu(Context& context, const Var& x) { return Activate(context, x, {kernels::Activation::kRelu, 1}); }

Var SoftCap(Context& context, const Var& x, double cap) {
  if (cap == 0) return x;
  return Activate(context, x, {kernels::Activation::kSoftCap, static_cast<float>(cap)});
}

Var Gate(Context& context, const Var& gate, const Var& up, const kernels::GateSpec& spec) {
  CheckSame("Gate", gate.value, up.value);
  if (gate.value.is_meta()) {
    return RecordOutput(context, Tensor::Meta(gate.shape(), gate.dtype()), {gate.node, up.node});
  }
  const Timed timed(context.profile, context.path(), "elementwise", "forward");
  const RowsOfTensor a = AsRows(gate.value), b = AsRows(up.value);
  Tensor out = Tensor::Empty(gate.shape(), gate.dtype());
  kernels::GateForward(context.pool, context.isa, {spec, a.rows, b.rows, MutRowsOf(out)});
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {gate.node, up.node},
      [spec, x = gate.value, y = up.value, path = context.path()](Context& back, const Tensor& grad) {
        const Timed time(back.profile, path, "elementwise", "backward");
        const RowsOfTensor p = AsRows(x), q = AsRows(y), g = AsRows(grad);
        Tensor grad_gate = Tensor::Empty(x.shape(), x.dtype()), grad_up = Tensor::Empty(y.shape(), y.dtype());
        kernels::GateBackward(back.pool, back.isa,
                              {spec, p.rows, q.rows, g.rows, MutRowsOf(grad_gate), MutRowsOf(grad_up)});
        return std::vector<Tensor>{grad_gate, grad_up};
      });
}

}  // namespace octavo::ops
