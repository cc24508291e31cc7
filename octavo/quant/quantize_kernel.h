// The int8 quantizing kernels behind quantize_run.h: each function returns nullopt when the kernels do not offer what
// is asked, and the caller goes the general way. Only files of quant/ include this.
#pragma once

#include <optional>

#include "octavo/quant/quantize.h"
#include "octavo/quant/run.h"

namespace octavo::quant {

std::optional<QArray> TryKernelQuantize(const Run& run, const Tensor& array, const HowToQuantize& how,
                                        const Tensor* noise, const Tensor* factor);
std::optional<QArray> TryKernelCodes(const Run& run, const Tensor& array, Format format, const ScaleAndZeroPoint& scale,
                                     const Tensor* noise);
// value * fl(1 / scale), rounded and saturated to ±largest: AQT's codes.
std::optional<Tensor> TryKernelReciprocalCodes(const Run& run, const Tensor& array, const Tensor& scale, int largest,
                                               const Tensor* noise);
std::optional<Tensor> TryKernelDequantize(const Run& run, const QArray& array);

}  // namespace octavo::quant
