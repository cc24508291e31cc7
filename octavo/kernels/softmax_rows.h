// The loops behind softmax.h and cross_entropy.h. Plain structs only: an instruction-set unit includes this.
#pragma once

#include <cstdint>

#include "octavo/numerics/dtype.h"

namespace octavo::kernels {

inline constexpr int64_t kVocabTile = 1024;

struct TileSum {
  float max, sum;
};
// At most kVocabTile elements. The maximum passes over NaN (the sum does not); a tile of -inf has sum 0.
TileSum TileSumRef(const void* x, DType dtype, int64_t count);
TileSum TileSumAvx2(const void* x, DType dtype, int64_t count);

// y = e^(x - shift) * factor; no x is above shift. x and y have one dtype and may be the same memory.
void ExpScaleRef(const void* x, void* y, DType dtype, int64_t count, float shift, float factor);
void ExpScaleAvx2(const void* x, void* y, DType dtype, int64_t count, float shift, float factor);

// One row of SoftmaxBackward.
void SoftmaxGradRowRef(const void* y, const void* grad_y, void* grad_x, DType dtype, int64_t count);
void SoftmaxGradRowAvx2(const void* y, const void* grad_y, void* grad_x, DType dtype, int64_t count);

}  // namespace octavo::kernels
