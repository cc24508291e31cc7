// Activations of MLPs and their gated products, with gradients. The backward pass computes from the inputs again and
// keeps nothing of its own.
#pragma once

#include <string_view>

#include "octavo/kernels/activation_rows.h"
#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// By MaxText's names: linear relu silu swish gelu sigmoid tanh. gelu is the tanh form. A usage error for others.
kernels::ActivationSpec ActivationByName(std::string_view name);

Var Activate(Context& context, const Var& x, const kernels::ActivationSpec& activation);
Var SoftCap(Context& context, const Var& x, double cap);  // cap * tanh(x / cap)

// activation(min(gate, limit)) * (clamp(up, ±limit) + up_offset), in one pass.
Var Gate(Context& context, const Var& gate, const Var& up, const kernels::GateSpec& spec);

}  // namespace octavo::ops
