// Rows of a table by token id, with the gradient that adds rows back in a fixed order (stable by id, tokens ascending,
// kernels/embedding.h).
#pragma once

#include "octavo/ops/context.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// ids i32 [...] -> [..., width] in `dtype`. table [rows, width]. With `as_product` the look-up is the one-hot product
// of the reference's iota embedding: the same numbers, and a dot_general site of the current module.
Var Embedding(Context& context, const Parameter& table, const Tensor& ids, DType dtype, bool as_product);

}  // namespace octavo::ops
