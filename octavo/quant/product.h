// The seam between quantized dots and the matrix kernels: a dot over any axes becomes products of matrices [M, K] x
// [K, N], one per batch index, without copies where strides allow it. Integer codes run on the integer kernels, all
// else on the f32 family. Scales are not applied here. Only quant/ includes this.
#pragma once

#include <optional>

#include "octavo/numerics/format.h"
#include "octavo/quant/run.h"
#include "octavo/tensor/dot_dims.h"
#include "octavo/tensor/tensor.h"

namespace octavo::quant {

// A side of a product: floats (f32, bf16, f16), or codes of a format.
struct ProductSide {
  Tensor values;
  std::optional<Format> codes;
};

bool IsInteger(const ProductSide& side);

// Exact sums as i32, of DotShape. Both sides hold integer codes. A sum that could leave 32 bits is an error.
Tensor IntegerProduct(const Run& run, const ProductSide& lhs, const ProductSide& rhs, const DotDims& dims);

// f32 sums in the fixed order of the kernels, rounded once to `out` (f32, bf16 or f16). Codes are decoded first.
Tensor FloatProduct(const Run& run, const ProductSide& lhs, const ProductSide& rhs, const DotDims& dims, DType out);

// The operand as matrices: [batch, M, K] for a left side, [batch, K, N] for a right one. Views where strides allow.
Tensor LeftMatrices(const Tensor& lhs, const DotDims& dims);
Tensor RightMatrices(const Tensor& rhs, const DotDims& dims);

}  // namespace octavo::quant
