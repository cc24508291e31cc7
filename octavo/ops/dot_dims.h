// Which axes of two operands a dot contracts and which are batch axes, and the views that turn such a dot into plain
// matrix products. The result's axes are: batch, free axes of lhs, free axes of rhs, each in the order of its operand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/tensor/tensor.h"

namespace octavo::ops {

struct DotDims {
  std::vector<int> lhs_contract, rhs_contract;  // pairs, in this order
  std::vector<int> lhs_batch, rhs_batch;        // pairs, in this order

  bool operator==(const DotDims&) const = default;
};

// The axes of an operand that are neither contracted nor batch, ascending.
std::vector<int> FreeAxes(int rank, std::span<const int> contract, std::span<const int> batch);

// The shape of the result. Throws a usage error that begins with `where` when axes are out of range, repeated, or
// differ.
Shape DotShape(std::string_view where, const Shape& lhs, const Shape& rhs, const DotDims& dims);

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
