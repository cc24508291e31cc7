// Float matrices to int8 codes with one scale per block, and back. A block is block_rows x block_cols elements; rows
// (1 x C), columns (R x 1), tiles of rows (1 x T), tiles of columns (T x 1), squares and the whole tensor are all
// blocks. Used by quantized dots before a product and by converters. Does not choose a calibration method: absmax is
// fused here, others pass their scale to QuantizeWithScale.
//
// All steps round in the type of the values (f32, or bf16 with f32 arithmetic rounded after each step):
//   x      = value * pre_row(r) or * pre_col(c), when given (a scale folded along the contracted axis)
//   scale  = absmax(x over the block) [* factor] / bound, and 1 if that is below 2^-63
//   code   = x / scale [+ zero] [+ noise], to nearest even, saturated to [min_code, max_code], NaN to 0
// Divisions are true or multiply by the rounded reciprocal, as the spec (quantize_tile.h) says.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/quantize_tile.h"
#include "octavo/kernels/view.h"

namespace octavo::kernels {

// What the reference library does on a CPU: f32 divides by the reciprocal when the divisor is broadcast, that is when
// there are more scales than one (absmax / bound) and fewer scales than values (value / scale). bf16 divides truly.
QuantizeSpec LikeReference(QuantizeSpec spec, bool bf16, int64_t scales, int64_t values);

// The source: exactly one of the two views has data (or none when it is empty).
struct QuantizeSource {
  MatrixView<const float> f32 = {};
  MatrixView<const uint16_t> bf16 = {};

  bool is_bf16() const { return bf16.data != nullptr; }
  int64_t rows() const { return is_bf16() ? bf16.rows : f32.rows; }
  int64_t cols() const { return is_bf16() ? bf16.cols : f32.cols; }
};

struct QuantizeArgs {
  QuantizeSource source = {};              // [R, C]
  int64_t block_rows = 1, block_cols = 1;  // the last block of a row or column may be smaller
  const float* pre_row = nullptr;          // [R]
  const float* pre_col = nullptr;          // [C]
  MatrixView<const float> noise = {};      // [R, C], strides may be 0; null data: none. Added in f32
  QuantizeSpec spec = {};
  MatrixView<float> scale = {};        // [ceil(R / block_rows), ceil(C / block_cols)], written (bf16 values for bf16)
  MatrixView<const int8_t> zero = {};  // like scale; only QuantizeWithScale reads it
  MatrixView<int8_t> codes = {};       // [R, C]
};

// Scale from absmax, then codes.
void Quantize(ThreadPool& pool, Isa isa, const QuantizeArgs& args);
void QuantizeReference(const QuantizeArgs& args);

// Only the scales, with the same rule.
void AbsMaxScale(ThreadPool& pool, Isa isa, const QuantizeArgs& args);
void AbsMaxScaleReference(const QuantizeArgs& args);
// Only the codes, from the scales (and zero points) given.
void QuantizeWithScale(ThreadPool& pool, Isa isa, const QuantizeArgs& args);
void QuantizeWithScaleReference(const QuantizeArgs& args);

// value = (code - zero) * scale, rounded in the type of the output.
struct DequantizeArgs {
  MatrixView<const int8_t> codes = {};  // [R, C]
  int64_t block_rows = 1, block_cols = 1;
  MatrixView<const float> scale = {};
  MatrixView<const int8_t> zero = {};  // null data: none
  MatrixView<float> f32 = {};          // exactly one of the two has data
  MatrixView<uint16_t> bf16 = {};
};
void Dequantize(ThreadPool& pool, Isa isa, const DequantizeArgs& args);
void DequantizeReference(const DequantizeArgs& args);

}  // namespace octavo::kernels
