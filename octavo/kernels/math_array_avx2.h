// The AVX2 side of math_array.cc.
#pragma once

#include <cstdint>

namespace octavo::kernels {

void ExpAvx2(const float* x, float* y, int64_t count);
void LogAvx2(const float* x, float* y, int64_t count);
void TanhAvx2(const float* x, float* y, int64_t count);
void SigmoidAvx2(const float* x, float* y, int64_t count);
void ErfAvx2(const float* x, float* y, int64_t count);
void SinAvx2(const float* x, float* y, int64_t count);
void CosAvx2(const float* x, float* y, int64_t count);

// ExpNotPositive8 of math_avx2.h on its own, for its test.
void ExpNotPositiveAvx2(const float* x, float* y, int64_t count);

}  // namespace octavo::kernels
