#include "octavo/kernels/math_array_avx2.h"

#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

// The tail runs through the same eight lanes, so there is no scalar code to agree with.
template <typename F>
void Apply(const float* x, float* y, int64_t count, F f) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, f(_mm256_loadu_ps(x + i)));
  if (i == count) return;
  alignas(32) float tail[8] = {};
  for (int64_t j = i; j < count; ++j) tail[j - i] = x[j];
  _mm256_store_ps(tail, f(_mm256_load_ps(tail)));
  for (int64_t j = i; j < count; ++j) y[j] = tail[j - i];
}

}  // namespace

void ExpAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return Exp8(v); });
}
void LogAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return Log8(v); });
}
void TanhAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return Tanh8(v); });
}
void SigmoidAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return Sigmoid8(v); });
}
void ErfAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return Erf8(v); });
}
void SinAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return Sin8(v); });
}
void CosAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return Cos8(v); });
}
void ExpNotPositiveAvx2(const float* x, float* y, int64_t count) {
  Apply(x, y, count, [](__m256 v) { return ExpNotPositive8(v); });
}

}  // namespace octavo::kernels
