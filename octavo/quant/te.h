// The quantizers of Transformer Engine's recipes: one scale per tensor (delayed or current), mxfp8 blocks of 32, nvfp4
// blocks of 16 with a second scale per tensor. A scale here multiplies the input; arrays keep its reciprocal, as
// everywhere else. Written from the published formulas; the reference was not run, so equality to it is not tested bit
// for bit.
#pragma once

#include <optional>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/quant/fp8_delayed.h"
#include "octavo/tensor/qarray.h"

namespace octavo::quant {

// (largest number of the format / amax), or `otherwise` when amax is not positive and finite. Never infinite.
float TeScale(float amax, Format format, float otherwise);

// codes = cast(clip(f32(x) * scale)), array scale 1 / scale.
QArray TeQuantizeTensor(const Tensor& x, Format format, float scale);
// The same with the scale of x itself.
QArray TeQuantizeCurrent(const Tensor& x, Format format);

// Delayed scaling: the state's scale multiplies. The amax of a step enters the history first and decides the next
// step's scale; slot 0 is scratch.
Fp8Meta TeUpdatedMeta(const Fp8Meta& meta, float amax, Format format);

// Blocks of 32 along the contracted axis that is listed last, e4m3fn codes, scales that are powers of two (rounded up).
QArray TeQuantizeMx(const Tensor& x, const std::vector<int>& contract);
// The exponent code of e8m0 for amax / 448, rounded up.
uint8_t TeMxExponent(float amax);

// Blocks of 16 along the contracted axis that is listed last, e2m1 codes, block scales in e4m3fn under one scale for
// the tensor. `square` makes the blocks 16 x 16 with the last kept axis. With a key, codes are rounded stochastically.
QArray TeQuantizeNv(const Tensor& x, const std::vector<int>& contract, bool square, std::optional<RngKey> key);

// Sixteen neighbours along `axis` times a fixed orthogonal matrix (random signs, Hadamard, 1/4), rounded to bf16
// values. Applied to both operands of a product that sums over the axis, it leaves the product as it is.
Tensor TeRotated(const Tensor& x, int axis);

}  // namespace octavo::quant
