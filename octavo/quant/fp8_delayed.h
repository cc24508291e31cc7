// fp8 with delayed scaling: the scale of a tensor comes from the largest magnitudes of earlier steps. The state of a
// dot (three scales and histories) is a value: a step reads it and returns the new one, so replaying a step for
// recomputation, or merging several micro-steps by maximum, gives exactly one update. Used by the fp8 recipes.
//
// Order within a step: the new scale is made from the old history, used, and only then does the tensor of this step
// enter the history. `scale` is the factor that turns codes into values.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/quant/dot.h"
#include "octavo/quant/run.h"

namespace octavo::quant {

struct Fp8Meta {
  Tensor scale;         // f32 [1]
  Tensor amax_history;  // f32 [length], newest first, then oldest … newer (a ring, as the reference rolls it)
};
Fp8Meta InitialFp8Meta(int64_t history_length);

// 1 / (fp8_max / amax / 2^margin), or the old scale (through two reciprocals) when amax is not positive and finite.
float Fp8ScaleFromAmax(float amax, float scale, float fp8_max, int margin = 0);
// The scale for this step and the history with `amax` in it.
Fp8Meta UpdatedFp8Meta(const Fp8Meta& meta, float amax, Format format);
// max |x|, NaN propagated; alone or on threads.
float AmaxOf(const Tensor& tensor);
float AmaxOf(const Run& run, const Tensor& tensor);
// Merges two updates of one state (micro-steps, shards): equal scales, elementwise maximum of the histories.
Fp8Meta MergedFp8Meta(const Fp8Meta& a, const Fp8Meta& b);

// x / scale in the dtype of x (a true division), clipped to the format, as codes, alone or on threads; and back.
Codes QuantizeFp8(const Tensor& x, Format format, float scale);
Codes QuantizeFp8(const Run& run, const Tensor& x, Format format, float scale);
Tensor DequantizeFp8(const Codes& codes, float scale, DType dtype);

enum class Fp8DotForm : uint8_t {
  kDirect,  // products of codes, scales applied to sums
  kQdq,     // values rounded through fp8, ordinary products
};
struct Fp8DotConfig {
  Fp8DotForm form = Fp8DotForm::kDirect;
  Format forward = Format::kF8E4M3FN;  // of both operands
  Format gradient = Format::kF8E5M2;
};
struct Fp8DotState {
  Fp8Meta input, kernel, output_grad;
};
Fp8DotState InitialFp8DotState(int64_t history_length);

struct Fp8DotForward {
  Tensor out;
  Fp8Meta input, kernel;        // the state after this step
  DotOperand x, k;              // as multiplied: codes (direct) or rounded values (qdq)
  DType x_dtype = DType::kF32;  // of the original input; everything is computed in the kernel's
  DotDims dims;
};
Fp8DotForward Fp8Dot(const Run& run, const Tensor& x, const Tensor& kernel, const DotDims& dims,
                     const Fp8DotState& state, const Fp8DotConfig& config);

struct Fp8DotGradients {
  Tensor x, kernel;
  Fp8Meta output_grad;
};
// Straight through: no gradient is masked.
Fp8DotGradients Fp8DotBackward(const Run& run, const Fp8DotForward& forward, const Fp8DotState& state,
                               const Fp8DotConfig& config, const Tensor& grad);

}  // namespace octavo::quant
