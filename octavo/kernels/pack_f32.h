// Inside the F family: decoding stored numbers to f32, the first half of every pack. Plain declarations for
// instruction-set units.
#pragma once

#include <cstdint>

#include "octavo/kernels/float_source.h"

namespace octavo::kernels::internal {

// out[i] = decoded element number index + i of the source, i < count: neighbours in memory, no scale applied.
void DecodeRunAvx2(const FloatSource& source, int64_t index, int64_t count, float* out);

// The values of rows [row, row + rows) x columns [col, col + cols), scales applied. Written so that the axis that is
// contiguous in the source is contiguous in `out`: returns true for [rows][cols], false for [cols][rows].
bool DecodeBlockAvx2(const FloatSource& source, int64_t row, int64_t rows, int64_t col, int64_t cols, float* out);

}  // namespace octavo::kernels::internal
