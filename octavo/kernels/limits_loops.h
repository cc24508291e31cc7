// One thread's loops of limits.cc, one set per instruction set. Each returns the multiply-adds done, or the bytes read.
#pragma once

#include <cstdint>

namespace octavo::kernels::internal {

double FmaLoopAvx2(int64_t rounds);
double MaddLoopAvx2(int64_t rounds);
double FmaLoopAvx512(int64_t rounds);
double DotLoopAvx512(int64_t rounds);
double TileLoopAmx(int64_t rounds);
double ReadLoopAvx2(const float* data, int64_t bytes);

}  // namespace octavo::kernels::internal
