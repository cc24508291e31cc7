// One thread's loops of limits.cc, one set per instruction set. Each returns the multiply-adds done, or the bytes read.
#pragma once

#include <cstdint>

namespace octavo::kernels::internal {

double FmaLoopAvx2(int64_t rounds);
double MaddLoopAvx2(int64_t rounds);
double FmaLoopAvx512(int64_t rounds);
double DotLoopAvx512(int64_t rounds);
double TileLoopAmx(int64_t rounds);
double ReadLoopAvx2(const float* data, int64_t bytes,
                    int64_t ahead);  // fetches `ahead` bytes ahead, 0: leaves it to the processor

}  // namespace octavo::kernels::internal
