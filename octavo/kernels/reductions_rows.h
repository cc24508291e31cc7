// The loops behind reductions.h. Plain structs only: an instruction-set unit includes this.
#pragma once

#include <cstdint>

#include "octavo/kernels/rows.h"

namespace octavo::kernels {

inline constexpr int64_t kChunk = 4096;  // elements of one double partial sum

enum class SumOf : uint8_t { kValues, kSquares };

// The largest bit pattern of |x|: an integer comparison orders magnitudes, and NaN above infinity.
uint32_t AbsMaxBitsRef(const ConstRows& x);
uint32_t AbsMaxBitsAvx2(const ConstRows& x);

// One chunk (at most kChunk elements).
double ChunkSumRef(SumOf what, const void* x, DType dtype, int64_t count);
double ChunkSumAvx2(SumOf what, const void* x, DType dtype, int64_t count);

}  // namespace octavo::kernels
