// The float dot itself: no interception, no tape. ops/ uses it for the answer when nobody else gives one, quant/ for
// dots whose operands were decoded first. Fixed-order f32 sums (kernels/matmul_f32.h), f32, bf16 or f16 in and out.
#pragma once

#include <string_view>

#include "octavo/ops/context.h"
#include "octavo/ops/dot_dims.h"
#include "octavo/tensor/tensor.h"

namespace octavo::ops {

// The type of a product of two floats: the common type, f32 when they differ.
DType ProductType(DType lhs, DType rhs);

// Result axes: batch, lhs free, rhs free. Meta operands give a meta result. `where` begins error texts.
Tensor FloatDot(Context& context, std::string_view where, const Tensor& lhs, const Tensor& rhs, const DotDims& dims,
                DType result);

// lhs [M, K], rhs [G, K, N], group_sizes i32 [G] -> [M, N]; rows past the last group are zero.
Tensor FloatRaggedDot(Context& context, std::string_view where, const Tensor& lhs, const Tensor& rhs,
                      const Tensor& group_sizes, DType result);

// The gradient of rhs: per group, lhs rowsᵀ · grad rows -> [G, K, N].
Tensor FloatRaggedGradRhs(Context& context, std::string_view where, const Tensor& lhs, const Tensor& grad,
                          const Tensor& group_sizes, DType result);

}  // namespace octavo::ops
