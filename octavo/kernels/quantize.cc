#include "octavo/kernels/quantize.h"

#include "octavo/base/error.h"
#include "octavo/kernels/quantize_check.h"

namespace octavo::kernels {
namespace {

template <typename T>
void CheckShape(const char* who, const char* what, const MatrixView<T>& view, int64_t rows, int64_t cols) {
  if (view.rows == rows && view.cols == cols && (view.data != nullptr || rows * cols == 0)) return;
  ThrowUsage("{}: {} is [{}, {}]{}, expected [{}, {}]", who, what, view.rows, view.cols,
             view.data == nullptr ? " without data" : "", rows, cols);
}

int64_t Blocks(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

}  // namespace

void CheckQuantize(const QuantizeArgs& args, QuantizeStep step) {
  const int64_t rows = args.source.rows(), cols = args.source.cols();
  if (args.source.f32.data != nullptr && args.source.bf16.data != nullptr) {
    ThrowUsage("Quantize: the source has both f32 and bf16 values, expected one");
  }
  if (args.block_rows < 1 || args.block_cols < 1) {
    ThrowUsage("Quantize: blocks of {} x {}, expected at least 1 x 1", args.block_rows, args.block_cols);
  }
  if (args.pre_row != nullptr && args.pre_col != nullptr) {
    ThrowUsage("Quantize: values are multiplied by a row and a column factor, expected at most one");
  }
  if (args.spec.min_code < -128 || args.spec.max_code > 127 || args.spec.min_code > args.spec.max_code) {
    ThrowUsage("Quantize: codes {} … {}, expected a range inside -128 … 127", args.spec.min_code, args.spec.max_code);
  }
  CheckShape("Quantize", "scale", args.scale, Blocks(rows, args.block_rows), Blocks(cols, args.block_cols));
  if (step == QuantizeStep::kScale) return;
  CheckShape("Quantize", "codes", args.codes, rows, cols);
  if (args.noise.data != nullptr) CheckShape("Quantize", "noise", args.noise, rows, cols);
  if (step == QuantizeStep::kCodes && args.zero.data != nullptr) {
    CheckShape("Quantize", "zero", args.zero, args.scale.rows, args.scale.cols);
  }
}

void CheckDequantize(const DequantizeArgs& args) {
  if (args.block_rows < 1 || args.block_cols < 1) {
    ThrowUsage("Dequantize: blocks of {} x {}, expected at least 1 x 1", args.block_rows, args.block_cols);
  }
  const int64_t rows = args.codes.rows, cols = args.codes.cols;
  const int64_t scale_rows = Blocks(rows, args.block_rows), scale_cols = Blocks(cols, args.block_cols);
  CheckShape("Dequantize", "scale", args.scale, scale_rows, scale_cols);
  if (args.zero.data != nullptr) CheckShape("Dequantize", "zero", args.zero, scale_rows, scale_cols);
  if (args.f32.data != nullptr && args.bf16.data != nullptr) ThrowUsage("Dequantize: two outputs, expected one");
  if (args.bf16.data != nullptr) {
    CheckShape("Dequantize", "output", args.bf16, rows, cols);
  } else {
    CheckShape("Dequantize", "output", args.f32, rows, cols);
  }
}

QuantizeSpec LikeReference(QuantizeSpec spec, bool bf16, int64_t scales, int64_t values) {
  spec.scale_division = bf16 || scales <= 1 ? Division::kTrue : Division::kReciprocal;
  spec.code_division = bf16 || scales >= values ? Division::kTrue : Division::kReciprocal;
  return spec;
}

}  // namespace octavo::kernels
