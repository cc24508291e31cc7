// Matrices of tensors as the F family reads and writes them. Shared by product.cc and frozen_weight.cc.
#pragma once

#include <cstdint>

#include "octavo/kernels/float_source.h"
#include "octavo/quant/product.h"
#include "octavo/tensor/tensor.h"

namespace octavo::quant {

// Matrix `batch` of [batch, rows, cols].
kernels::FloatSource SourceOf(const Tensor& matrices, int64_t batch, const kernels::CodeTable* table);
kernels::FloatResult ResultOf(Tensor& matrices, int64_t batch);

// The values of a format's codes, for codes that are not integers; null otherwise.
const kernels::CodeTable* TableOf(const ProductSide& side);

// 16-bit codes as f32, which holds them exactly.
Tensor Widened(const Tensor& values);

}  // namespace octavo::quant
