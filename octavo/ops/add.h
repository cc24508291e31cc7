// Elementwise sums and products of equal shapes, with gradients; f32 arithmetic, rounded once to the type of the
// tensors.
#pragma once

#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// Without a tape: the sum itself. Used where gradients meet.
Tensor AddTensors(Context& context, const Tensor& a, const Tensor& b);

Var Add(Context& context, const Var& a, const Var& b);
Var Multiply(Context& context, const Var& a, const Var& b);

// x where x > 0, else 0; the gradient passes where x > 0.
Var Relu(Context& context, const Var& x);

}  // namespace octavo::ops
