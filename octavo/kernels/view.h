// Plain views over memory, the argument types of every kernel. Included by instruction-set units, so nothing here may
// pull in code that the compiler could emit with their flags.
#pragma once

#include <cstdint>

namespace octavo::kernels {

// Element (r, c) of a matrix is data[r * row_stride + c * col_stride]. A transpose swaps the two pairs. Kernels are
// fast when one of the strides is 1 and correct for any.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 1;

  T& at(int64_t r, int64_t c) const { return data[r * row_stride + c * col_stride]; }
  MatrixView Transposed() const { return {data, cols, rows, col_stride, row_stride}; }
};

// A row-major matrix without gaps.
template <typename T>
MatrixView<T> RowMajor(T* data, int64_t rows, int64_t cols) {
  return {data, rows, cols, cols, 1};
}

}  // namespace octavo::kernels
