// The equation of an einsum of two operands as a dot: which axes are contracted, which are batch, and how the product's
// axes are put in the order the equation asks for.
#pragma once

#include <string_view>
#include <vector>

#include "octavo/ops/dot_dims.h"

namespace octavo::ops {

// The dot's lhs is the equation's second operand. Axis i of the result is axis order[i] of the product.
struct EinsumDims {
  DotDims dims;
  std::vector<int> order;
};

// Letters and one "..." per operand. A usage error (beginning with `where`) for a malformed equation, a repeated
// letter, a size that differs, an unknown letter in the result, or a letter that would have to be summed over one
// operand only.
EinsumDims ParseEinsum(std::string_view where, std::string_view equation, const Shape& first, const Shape& second);

}  // namespace octavo::ops
