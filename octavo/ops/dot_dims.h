// The dots of the backward pass, and the views that turn a dot over any axes (tensor/dot_dims.h) into matrix products.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "octavo/tensor/dot_dims.h"
#include "octavo/tensor/tensor.h"

namespace octavo::ops {

// Multiply-adds of the dot.
int64_t DotMacs(const Shape& lhs, const Shape& rhs, const DotDims& dims);

// The two dots of the backward pass. `grad` has the axes of the result. The product's axes are then permuted by `order`
// to those of the operand whose gradient it is.
struct GradDot {
  DotDims dims;            // grad is lhs, the other operand rhs
  std::vector<int> order;  // axis i of the operand's gradient is axis order[i] of the product
};
GradDot GradLhsDot(int lhs_rank, int rhs_rank, const DotDims& dims);
GradDot GradRhsDot(int lhs_rank, int rhs_rank, const DotDims& dims);

// An operand as `batch` matrices of rows x cols elements. `tensor` keeps the memory; strides count its elements.
struct MatrixBatch {
  Tensor tensor;
  int64_t batch = 1, rows = 1, cols = 1;
  int64_t batch_stride = 0, row_stride = 0, col_stride = 0;
};

// Groups the axes of `tensor` into batch, rows and columns. No copy when each group can be walked with one stride.
MatrixBatch AsMatrices(const Tensor& tensor, std::span<const int> batch, std::span<const int> rows,
                       std::span<const int> cols);

}  // namespace octavo::ops
