// Rotates pairs of features of every head by the angle of the token's position, or back (the gradient). Used by
// ops/rope and the decoder step. The table is made by rope_table.h.
//
//   forward:   a' = a * cos - b * sin     b' = b * cos + a * sin
//   backward:  a' = a * cos + b * sin     b' = b * cos - a * sin        each operation rounded to f32, the result to
//   dtype
#pragma once

#include <cstdint>

#include "octavo/kernels/isa.h"
#include "octavo/kernels/rope_rows.h"

namespace octavo {
class ThreadPool;
}

namespace octavo::kernels {

void Rope(ThreadPool& pool, Isa isa, const RopeArgs& args);

}  // namespace octavo::kernels
