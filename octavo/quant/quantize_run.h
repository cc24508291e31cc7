// The functions of quantize.h on threads, with the vector kernels where they exist. Same arguments, same bits; training
// and serving call these, the tests compare the two.
#pragma once

#include "octavo/quant/quantize.h"
#include "octavo/quant/run.h"

namespace octavo::quant {

CalibrationRange Calibrate(const Run& run, const Tensor& array, const HowToQuantize& how);

QArray QuantizeWithScale(const Run& run, const Tensor& array, Format format, const ScaleAndZeroPoint& scale,
                         const Tensor* noise = nullptr);

// `factor`, if given, multiplies the array first (rounded to its dtype): a scale on the axes of the array, of length 1
// where it does not vary.
QArray Quantize(const Run& run, const Tensor& array, const HowToQuantize& how, const Tensor* noise = nullptr,
                const Tensor* factor = nullptr);

Tensor Dequantize(const Run& run, const QArray& array);

// An array and its scales as a matrix cut into blocks that share a scale: rows / block_rows by cols / block_cols.
struct MatrixBlocks {
  int64_t rows, cols, block_rows, block_cols;
  int split;  // axes before it make the rows, the others the columns
};
// nullopt when the scales do not form such blocks in row-major order.
std::optional<MatrixBlocks> AsMatrixBlocks(const Shape& array, const Shape& scale);

}  // namespace octavo::quant
