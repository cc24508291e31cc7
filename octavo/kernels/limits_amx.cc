#include <immintrin.h>

#include "octavo/kernels/limits_loops.h"

namespace octavo::kernels::internal {

// Four squares of sums from two left and two right tiles, as the products have them, without their loads.
double TileLoopAmx(int64_t rounds) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  int64_t left = rounds;
  asm volatile(
      "ldtilecfg %1\n"
      "1:\n\t"
      "tdpbssd %%tmm6, %%tmm4, %%tmm0\n\ttdpbssd %%tmm7, %%tmm4, %%tmm1\n\t"
      "tdpbssd %%tmm6, %%tmm5, %%tmm2\n\ttdpbssd %%tmm7, %%tmm5, %%tmm3\n\t"
      "dec %0\n\t"
      "jnz 1b\n\t"
      "tilerelease"
      : "+r"(left)
      : "m"(config));
  return static_cast<double>(rounds) * 4 * 16 * 16 * 64;
}

}  // namespace octavo::kernels::internal
