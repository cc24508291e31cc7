#include <immintrin.h>

#include "octavo/kernels/limits_loops.h"

namespace octavo::kernels::internal {

// Twelve independent chains hide the latency of two FMA pipes. The multiplier comes from memory the compiler cannot see
// through, so nothing is folded away.
double FmaLoopAvx2(int64_t rounds) {
  __m256 sum[12];
  for (auto& s : sum) s = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
  asm volatile("" : "+x"(x), "+x"(y));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) asm volatile("vfmadd231ps %1, %2, %0" : "+x"(sum[j]) : "x"(x), "x"(y));
  }
  return static_cast<double>(rounds) * 12 * 8;
}

double MaddLoopAvx2(int64_t rounds) {
  __m256i sum[10];
  for (auto& s : sum) s = _mm256_setzero_si256();
  __m256i x = _mm256_set1_epi16(3), y = _mm256_set1_epi16(5), t0, t1;
  asm volatile("" : "+x"(x), "+x"(y));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 5
    for (int j = 0; j < 10; j += 2) {
      asm volatile(
          "vpmaddwd %4, %5, %2\n\t"
          "vpmaddwd %4, %5, %3\n\t"
          "vpaddd %2, %0, %0\n\t"
          "vpaddd %3, %1, %1"
          : "+x"(sum[j]), "+x"(sum[j + 1]), "=&x"(t0), "=&x"(t1)
          : "x"(x), "x"(y));
    }
  }
  return static_cast<double>(rounds) * 10 * 16;
}

double ReadLoopAvx2(const float* data, int64_t bytes) {
  const auto* at = reinterpret_cast<const char*>(data);
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    __m256 t0, t1, t2, t3, t4, t5, t6, t7;
    asm volatile(
        "vmovaps 0(%8), %0\n\tvmovaps 32(%8), %1\n\tvmovaps 64(%8), %2\n\tvmovaps 96(%8), %3\n\t"
        "vmovaps 128(%8), %4\n\tvmovaps 160(%8), %5\n\tvmovaps 192(%8), %6\n\tvmovaps 224(%8), %7"
        : "=x"(t0), "=x"(t1), "=x"(t2), "=x"(t3), "=x"(t4), "=x"(t5), "=x"(t6), "=x"(t7)
        : "r"(at + i)
        : "memory");
  }
  return static_cast<double>(bytes);
}

}  // namespace octavo::kernels::internal
