#include <immintrin.h>

#include "octavo/kernels/limits_loops.h"
#include "octavo/kernels/tile_avx512.h"

namespace octavo::kernels::internal {
namespace {

// Fourteen rows of two sums each, as the products have them, without their loads.
// clang-format off
#define OCTAVO_L_ROW(OP, r, c0, c1, t) OP " %%zmm30, %%zmm28, %%zmm" c0 "\n\t" OP " %%zmm30, %%zmm29, %%zmm" c1 "\n\t"
#define OCTAVO_L_LOOP(OP) \
  asm volatile(OCTAVO_T_ROWS_14(OCTAVO_T_ZERO, "") \
               "vpxord %%zmm28, %%zmm28, %%zmm28\n\tvpxord %%zmm29, %%zmm29, %%zmm29\n\t" \
               "vpxord %%zmm30, %%zmm30, %%zmm30\n" \
               "1:\n\t" OCTAVO_T_ROWS_14(OCTAVO_L_ROW, OP) \
               "dec %0\n\t" \
               "jnz 1b" \
               : "+r"(left) : : OCTAVO_T_REGISTERS)
// clang-format on

}  // namespace

double FmaLoopAvx512(int64_t rounds) {
  int64_t left = rounds;
  OCTAVO_L_LOOP("vfmadd231ps");
  return static_cast<double>(rounds) * 28 * 16;
}

double DotLoopAvx512(int64_t rounds) {
  int64_t left = rounds;
  OCTAVO_L_LOOP("vpdpbusd");
  return static_cast<double>(rounds) * 28 * 64;
}

}  // namespace octavo::kernels::internal
