// For tests of ops: compares the gradients on the tape with central differences of the forward pass, along a random
// direction per leaf and for each element of small leaves.
#pragma once

#include <functional>
#include <vector>

#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// Computes an f32 tensor from leaves; called many times.
using Function = std::function<Var(Context&, const std::vector<Var>& leaves)>;

// The largest |tape - difference| over all elements of all leaves, divided by the largest gradient magnitude. Every
// leaf is f32. The output is weighted by fixed numbers so that all its elements matter.
double GradientError(Context& context, const Function& function, const std::vector<Tensor>& leaves, float step = 1e-2f);

}  // namespace octavo::ops
