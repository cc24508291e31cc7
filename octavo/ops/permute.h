// Views of a Var: the same elements under other axes, with their gradients.
#pragma once

#include <span>

#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

Var Permute(Context& context, const Var& x, std::span<const int> order);  // axis i of the result is axis order[i] of x
Var Reshape(Context& context, const Var& x, const Shape& shape);

}  // namespace octavo::ops
