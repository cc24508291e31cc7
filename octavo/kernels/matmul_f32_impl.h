// Inside the F family: the entries that matmul_f32.cc chooses from. Not for callers.
#pragma once

#include <span>

#include "octavo/kernels/matmul_f32.h"

namespace octavo::kernels {

// The plain loops that define the bits. Every other kernel of the family is compared with this one.
void MatMulF32Reference(ThreadPool& pool, const MatMulF32Args& args);

}  // namespace octavo::kernels
