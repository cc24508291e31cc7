#include <immintrin.h>

#include "octavo/kernels/limits_loops.h"

namespace octavo::kernels::internal {

// Twelve independent chains hide the latency of two FMA pipes. The whole loop is assembly: compilers keep an array of
// vectors in memory, which halves the rate.
double FmaLoopAvx2(int64_t rounds) {
  int64_t left = rounds;
  asm volatile(
      "vzeroall\n"
      "1:\n\t"
      "vfmadd231ps %%ymm0, %%ymm1, %%ymm2\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm3\n\t"
      "vfmadd231ps %%ymm0, %%ymm1, %%ymm4\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm5\n\t"
      "vfmadd231ps %%ymm0, %%ymm1, %%ymm6\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm7\n\t"
      "vfmadd231ps %%ymm0, %%ymm1, %%ymm8\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm9\n\t"
      "vfmadd231ps %%ymm0, %%ymm1, %%ymm10\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm11\n\t"
      "vfmadd231ps %%ymm0, %%ymm1, %%ymm12\n\tvfmadd231ps %%ymm0, %%ymm1, %%ymm13\n\t"
      "dec %0\n\t"
      "jnz 1b"
      : "+r"(left)
      :
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15");
  return static_cast<double>(rounds) * 12 * 8;
}

// Eight sums, each fed by a product of its own.
double MaddLoopAvx2(int64_t rounds) {
  int64_t left = rounds;
  asm volatile(
      "vzeroall\n"
      "1:\n\t"
      "vpmaddwd %%ymm0, %%ymm1, %%ymm2\n\tvpmaddwd %%ymm0, %%ymm1, %%ymm3\n\t"
      "vpmaddwd %%ymm0, %%ymm1, %%ymm4\n\tvpmaddwd %%ymm0, %%ymm1, %%ymm5\n\t"
      "vpaddd %%ymm2, %%ymm6, %%ymm6\n\tvpaddd %%ymm3, %%ymm7, %%ymm7\n\t"
      "vpaddd %%ymm4, %%ymm8, %%ymm8\n\tvpaddd %%ymm5, %%ymm9, %%ymm9\n\t"
      "vpmaddwd %%ymm0, %%ymm1, %%ymm2\n\tvpmaddwd %%ymm0, %%ymm1, %%ymm3\n\t"
      "vpmaddwd %%ymm0, %%ymm1, %%ymm4\n\tvpmaddwd %%ymm0, %%ymm1, %%ymm5\n\t"
      "vpaddd %%ymm2, %%ymm10, %%ymm10\n\tvpaddd %%ymm3, %%ymm11, %%ymm11\n\t"
      "vpaddd %%ymm4, %%ymm12, %%ymm12\n\tvpaddd %%ymm5, %%ymm13, %%ymm13\n\t"
      "dec %0\n\t"
      "jnz 1b"
      : "+r"(left)
      :
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15");
  return static_cast<double>(rounds) * 8 * 16;
}

double ReadLoopAvx2(const float* data, int64_t bytes, int64_t ahead) {
  const auto* at = reinterpret_cast<const char*>(data);
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    if (ahead > 0) {
      for (int64_t line = 0; line < 256; line += 64) _mm_prefetch(at + i + ahead + line, _MM_HINT_T0);
    }
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
