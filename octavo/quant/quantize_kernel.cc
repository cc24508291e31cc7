#include "octavo/quant/quantize_kernel.h"

#include "octavo/base/float_mode.h"
#include "octavo/kernels/quantize.h"
#include "octavo/quant/element.h"
#include "octavo/quant/quantize_run.h"

namespace octavo::quant {
namespace {

// Signed integers stored in a byte, from f32 or bf16.
bool KernelsTake(const Tensor& array, Format format) {
  const FormatInfo& info = Info(format);
  return info.kind == FormatKind::kInteger && info.dtype == DType::kI8 &&
         (array.dtype() == DType::kF32 || array.dtype() == DType::kBF16) && !array.is_meta();
}

Tensor Matrix(const Tensor& tensor, const MatrixBlocks& b) { return tensor.Reshape({b.rows, b.cols}); }

template <typename T>
kernels::MatrixView<const T> View(const Tensor& matrix) {
  return {matrix.Data<T>(), matrix.dim(0), matrix.dim(1), matrix.stride(0), matrix.stride(1)};
}

template <typename T>
kernels::MatrixView<T> MutableView(Tensor& tensor, int64_t rows, int64_t cols) {
  return kernels::RowMajor(tensor.MutableData<T>(), rows, cols);
}

kernels::Division Of(bool reciprocal, DType dtype) {
  return reciprocal && dtype != DType::kBF16 ? kernels::Division::kReciprocal : kernels::Division::kTrue;
}

kernels::QuantizeSpec SpecOf(const Run& run, const Tensor& array, Format format, int64_t scales, bool per_tensor,
                             double factor) {
  const FormatInfo& info = Info(format);
  kernels::QuantizeSpec spec;
  spec.bound = info.symmetric_bound;
  spec.min_code = info.qmin;
  spec.max_code = info.qmax;
  const bool bf16 = array.dtype() == DType::kBF16;
  if (factor != 1.0) spec.factor = bf16 ? RoundToBF16(static_cast<float>(factor)) : static_cast<float>(factor);
  const DivisionRule rule = run.arithmetic.division;
  spec.scale_division = Of(ByReciprocal(rule, per_tensor, 1, scales), array.dtype());
  spec.code_division = Of(ByReciprocal(rule, false, scales, array.size()), array.dtype());
  return spec;
}

// The source and everything that varies per element. Keeps the tensors that the views point into.
struct Prepared {
  Tensor source, noise, factor;
  kernels::QuantizeArgs args;
};

// Noise is for integers whose codes fill their storage; the others ignore it.
bool TakesNoise(Format format) { return Info(format).storage == format; }

Prepared Prepare(const Tensor& array, Format format, const Tensor* noise, const MatrixBlocks& b) {
  Prepared p;
  p.source = Matrix(array, b);
  if (array.dtype() == DType::kF32) {
    p.args.source.f32 = View<float>(p.source);
  } else {
    p.args.source.bf16 = View<uint16_t>(p.source);
  }
  p.args.block_rows = b.block_rows;
  p.args.block_cols = b.block_cols;
  if (noise != nullptr && TakesNoise(format)) {
    p.noise = Matrix(noise->RepeatTo(GenericBroadcastShape("Quantize", array.shape(), noise->shape())), b);
    p.args.noise = View<float>(p.noise);
  }
  return p;
}

// A factor that varies only along rows, or only along columns; false for another.
bool FoldFactor(const Tensor& factor, const Tensor& array, const MatrixBlocks& b, Prepared& p) {
  if (factor.dtype() != array.dtype() || factor.rank() != array.rank()) return false;
  bool rows = false, cols = false;
  for (int axis = 0; axis < array.rank(); ++axis) {
    if (factor.dim(axis) != 1 && factor.dim(axis) != array.dim(axis)) return false;
    if (factor.dim(axis) != 1) (axis < b.split ? rows : cols) = true;
  }
  if (rows && cols) return false;
  std::vector<int64_t> dims(array.shape().begin(), array.shape().end());
  const int gone_begin = rows ? b.split : 0, gone_end = rows ? array.rank() : b.split;
  for (int axis = gone_begin; axis < gone_end; ++axis) dims[static_cast<size_t>(axis)] = 1;
  p.factor = CastFloat(factor, DType::kF32).BroadcastTo(Shape(dims)).Contiguous();
  (rows ? p.args.pre_row : p.args.pre_col) = p.factor.Data<float>();
  return true;
}

void RefuseNonFinite(const Run& run, const Tensor& array, const Tensor& scale) {
  if (run.arithmetic.non_finite == NonFinite::kPropagate) return;
  for (float value : scale.Values<float>()) {
    if (IsFiniteBits(value)) continue;
    throw Error(ErrorCode::kNumbers,
                fmt::format("{}: NaN or infinity in {}", run.arithmetic.Where("Quantize"), array.ToString()));
  }
}

}  // namespace

std::optional<QArray> TryKernelQuantize(const Run& run, const Tensor& array, const HowToQuantize& how,
                                        const Tensor* noise, const Tensor* factor) {
  if (!KernelsTake(array, how.format) || how.calibration.method != CalibrationMethod::kAbsMax) return std::nullopt;
  const Shape parts = ScaleShape("Quantize", array.shape(), how);
  const auto blocks = AsMatrixBlocks(array.shape(), parts);
  if (!blocks) return std::nullopt;
  const ScopedFloatMode mode;
  Prepared p = Prepare(array, how.format, noise, *blocks);
  if (factor != nullptr && !FoldFactor(*factor, array, *blocks, p)) return std::nullopt;
  const bool per_tensor = how.granularity.channelwise_axes.empty() && how.granularity.tiled_axes.empty();
  p.args.spec = SpecOf(run, array, how.format, parts.size(), per_tensor, how.calibration.factor);
  QArray result{Tensor::Empty(array.shape(), DType::kI8), Tensor::Empty(parts, DType::kF32), std::nullopt, how.format};
  p.args.scale = MutableView<float>(result.scale, blocks->rows / blocks->block_rows, blocks->cols / blocks->block_cols);
  p.args.codes = MutableView<int8_t>(result.qvalue, blocks->rows, blocks->cols);
  kernels::Quantize(run.pool, run.isa, p.args);
  RefuseNonFinite(run, array, result.scale);
  result.scale = CastFloat(result.scale, array.dtype());
  return result;
}

std::optional<QArray> TryKernelCodes(const Run& run, const Tensor& array, Format format, const ScaleAndZeroPoint& scale,
                                     const Tensor* noise) {
  if (!KernelsTake(array, format)) return std::nullopt;
  const auto blocks = AsMatrixBlocks(array.shape(), scale.scale.shape());
  if (!blocks || (scale.zero_point && scale.zero_point->shape() != scale.scale.shape())) return std::nullopt;
  const ScopedFloatMode mode;
  Prepared p = Prepare(array, format, noise, *blocks);
  p.args.spec = SpecOf(run, array, format, scale.scale.size(), false, 1.0);
  QArray result{Tensor::Empty(array.shape(), DType::kI8), CastFloat(scale.scale, array.dtype()), scale.zero_point,
                format};
  const int64_t rows = blocks->rows / blocks->block_rows, cols = blocks->cols / blocks->block_cols;
  Tensor wide = CastFloat(result.scale, DType::kF32).Clone();
  p.args.scale = MutableView<float>(wide, rows, cols);
  Tensor zero;
  if (scale.zero_point) {
    zero = scale.zero_point->Reshape({rows, cols});
    p.args.zero = View<int8_t>(zero);
  }
  p.args.codes = MutableView<int8_t>(result.qvalue, blocks->rows, blocks->cols);
  kernels::QuantizeWithScale(run.pool, run.isa, p.args);
  return result;
}

std::optional<Tensor> TryKernelReciprocalCodes(const Run& run, const Tensor& array, const Tensor& scale, int largest,
                                               const Tensor* noise) {
  const bool bf16 = array.dtype() == DType::kBF16;
  // The kernels add noise in f32; this arithmetic would round the sum to bf16.
  if (!KernelsTake(array, Format::kInt8) || (bf16 && noise != nullptr)) return std::nullopt;
  const auto blocks = AsMatrixBlocks(array.shape(), scale.shape());
  if (!blocks) return std::nullopt;
  const ScopedFloatMode mode;
  Tensor wide = CastFloat(scale, DType::kF32).Clone();
  for (float value : wide.Values<float>()) {
    if (!IsFiniteBits(1.0f / value)) return std::nullopt;  // has a rule of its own
  }
  Prepared p = Prepare(array, Format::kInt8, noise, *blocks);
  p.args.spec.code_division = kernels::Division::kReciprocal;
  p.args.spec.min_code = -largest;
  p.args.spec.max_code = largest;
  Tensor codes = Tensor::Empty(array.shape(), DType::kI8);
  p.args.scale = MutableView<float>(wide, blocks->rows / blocks->block_rows, blocks->cols / blocks->block_cols);
  p.args.codes = MutableView<int8_t>(codes, blocks->rows, blocks->cols);
  kernels::QuantizeWithScale(run.pool, run.isa, p.args);
  return codes;
}

std::optional<Tensor> TryKernelDequantize(const Run& run, const QArray& array) {
  Validate("Dequantize", array);
  const DType dtype = array.dtype();
  if (array.qvalue.dtype() != DType::kI8 || array.is_meta() || (dtype != DType::kF32 && dtype != DType::kBF16)) {
    return std::nullopt;
  }
  const auto blocks = AsMatrixBlocks(array.shape(), array.scale.shape());
  if (!blocks || (array.zero_point && array.zero_point->shape() != array.scale.shape())) return std::nullopt;
  const ScopedFloatMode mode;
  const int64_t rows = blocks->rows / blocks->block_rows, cols = blocks->cols / blocks->block_cols;
  const Tensor codes = Matrix(array.qvalue, *blocks), scale = CastFloat(array.scale, DType::kF32).Reshape({rows, cols});
  kernels::DequantizeArgs args;
  args.codes = View<int8_t>(codes);
  args.block_rows = blocks->block_rows;
  args.block_cols = blocks->block_cols;
  args.scale = View<float>(scale);
  Tensor zero;
  if (array.zero_point) {
    zero = array.zero_point->Reshape({rows, cols});
    args.zero = View<int8_t>(zero);
  }
  Tensor out = Tensor::Empty(array.shape(), dtype);
  if (dtype == DType::kF32) {
    args.f32 = MutableView<float>(out, blocks->rows, blocks->cols);
  } else {
    args.bf16 = MutableView<uint16_t>(out, blocks->rows, blocks->cols);
  }
  kernels::Dequantize(run.pool, run.isa, args);
  return out;
}

}  // namespace octavo::quant
