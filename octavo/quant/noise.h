// Noise for stochastic rounding: explicit arrays made from a key, so that a result depends on key and index only.
#pragma once

#include <span>

#include "octavo/base/rng.h"
#include "octavo/quant/how_to_quantize.h"
#include "octavo/tensor/tensor.h"

namespace octavo::quant {

// f32 noise in about (-0.5, 0.5) for an array of `shape`: it varies along `axes` and has length 1 on the others.
// Element i is a function of key and i alone.
Tensor MakeNoise(RngKey key, const Shape& shape, Rounding rounding, std::span<const int> axes);

}  // namespace octavo::quant
