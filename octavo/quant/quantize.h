// Float arrays to quantized ones and back, in four separate steps: Calibrate → ComputeScale → QuantizeWithScale →
// Dequantize. All arithmetic is in the dtype of the array (f32, bf16 or f16), rounded after each operation, so the
// numbers are those of the reference library (arithmetic.h has the switches). Used by quantized dots, converters and
// recipes. These are the general scalar versions and the reference of the fast ones in kernels/.
#pragma once

#include <optional>
#include <utility>

#include "octavo/quant/arithmetic.h"
#include "octavo/quant/how_to_quantize.h"
#include "octavo/tensor/qarray.h"
#include "octavo/tensor/tensor.h"

namespace octavo::quant {

// What calibration found: either absmax, or min and max (asymmetric). In the dtype of the array, of the scale's shape.
struct CalibrationRange {
  std::optional<Tensor> absmax, min, max;
  bool per_tensor = false;  // one range for everything was asked for

  static CalibrationRange Symmetric(Tensor absmax) { return {std::move(absmax), std::nullopt, std::nullopt, false}; }
  static CalibrationRange Between(Tensor min, Tensor max) {
    return {std::nullopt, std::move(min), std::move(max), false};
  }
};

// Reduces every axis that is not channelwise, tiles within themselves. "fixed" looks at no data and gives one range for
// the whole array. Errors: a dtype that is not a float, everything ScaleShape refuses, an asymmetric method with a
// format that has no zero point, non-finite values if `arithmetic` says so.
CalibrationRange Calibrate(const Tensor& array, const HowToQuantize& how, const Arithmetic& arithmetic = {});

struct ScaleAndZeroPoint {
  Tensor scale;
  std::optional<Tensor> zero_point;
};
// scale = absmax / bound, or (max - min) / (qmax - qmin) with zero point qmin - min / scale. A scale below the square
// root of the smallest normal number becomes 1. Block formats then round their scale to a power of two or to e4m3.
ScaleAndZeroPoint ComputeScale(const CalibrationRange& range, Format format, const Arithmetic& arithmetic = {});

// codes = array / scale + zero point (+ noise), converted. Scale and zero point have one shape, which divides that of
// the array on each axis. `noise` is f32 of the array's rank and repeats likewise; only full-range integers use it.
// The scale is kept in the dtype of the array.
QArray QuantizeWithScale(const Tensor& array, Format format, const ScaleAndZeroPoint& scale,
                         const Tensor* noise = nullptr, const Arithmetic& arithmetic = {});

// The three steps above.
QArray Quantize(const Tensor& array, const HowToQuantize& how, const Tensor* noise = nullptr,
                const Arithmetic& arithmetic = {});

// (qvalue - zero point) * scale in the dtype of the scale.
Tensor Dequantize(const QArray& array);

// The same codes with the scale in another dtype (they still correspond to the scale before it was rounded).
QArray WithScaleDType(const QArray& array, DType dtype);

// The gradient of quantization towards its input: `grad` where the input lay inside the calibrated range (ends
// included), else 0. Methods that never clip (absmax and minmax with a factor of at least 1) leave it as it is.
Tensor MaskGradient(const Tensor& grad, const Tensor& input, const CalibrationRange& range,
                    const Calibration& calibration);
// The input clipped to the calibrated range.
Tensor ClipToRange(const Tensor& input, const CalibrationRange& range);

// f32, bf16 or f16 to another of them, rounded once; subnormals are kept.
Tensor CastFloat(const Tensor& array, DType dtype);

}  // namespace octavo::quant
