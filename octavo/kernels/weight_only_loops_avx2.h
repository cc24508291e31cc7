// The inner loops of one row times offset-packed weights, in assembly: g++ and clang both spill the sums or the scales
// of the same loops written with intrinsics, which costs up to half of the speed. Included by weight_only_gemv_avx2.cc
// only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/weight_only_codec_avx2.h"

namespace octavo::kernels::internal {

// clang-format off
// One vector: mask, convert, scale and take the offset away, multiply and add.
#define OCTAVO_VECTOR(v)                                      \
  "vpand 32*" #v "(%[constants]), %[codes], %[temp]\n\t"      \
  "vcvtdq2ps %[temp], %[temp]\n\t"                            \
  "vfmadd132ps %[scale" #v "], %[shift" #v "], %[temp]\n\t"   \
  "vfmadd231ps %[temp], %[x], %[sum" #v "]\n\t"
#define OCTAVO_STEP(offset_of_a)                              \
  "vbroadcastss " #offset_of_a "(%[a]), %[x]\n\t"             \
  OCTAVO_VECTOR(0) OCTAVO_VECTOR(1) OCTAVO_VECTOR(2) OCTAVO_VECTOR(3)
// A loop over `blocks`; `bytes_of_a` is what one block uses of a.
#define OCTAVO_LOOP(body, bytes_of_a)                                                                                 \
  __m256 x, temp;                                                                                                     \
  __m256i codes;                                                                                                      \
  asm volatile(                                                                                                       \
      ".p2align 5\n"                                                                                                  \
      "1:\n\t"                                                                                                        \
      "prefetcht0 1024(%[at])\n\t"                                                                                    \
      body                                                                                                            \
      "add $32, %[at]\n\t"                                                                                            \
      "add $" #bytes_of_a ", %[a]\n\t"                                                                                \
      "dec %[blocks]\n\t"                                                                                             \
      "jnz 1b"                                                                                                        \
      : [sum0] "+x"(sum[0]), [sum1] "+x"(sum[1]), [sum2] "+x"(sum[2]), [sum3] "+x"(sum[3]), [x] "=&x"(x),             \
        [temp] "=&x"(temp), [codes] "=&x"(codes), [at] "+r"(at), [a] "+r"(a), [blocks] "+r"(blocks)                   \
      : [scale0] "x"(scale[0]), [scale1] "x"(scale[1]), [scale2] "x"(scale[2]), [scale3] "x"(scale[3]),               \
        [shift0] "x"(shift[0]), [shift1] "x"(shift[1]), [shift2] "x"(shift[2]), [shift3] "x"(shift[3]),               \
        [constants] "r"(&codec.constants)                                                                                   \
      : "cc", "memory")
// clang-format on

// sum[v] += a[k] * (code * scale[v] + shift[v]) for `blocks` >= 1 blocks of a panel from `at`.
inline void OffsetLoop(const CodecOffsetByte& codec, const uint8_t* at, const float* a, int64_t blocks,
                       const __m256* scale, const __m256* shift, __m256* sum) {
  OCTAVO_LOOP("vmovdqu (%[at]), %[codes]\n\t" OCTAVO_STEP(0), 4);
}

inline void OffsetLoop(const CodecOffsetNibble& codec, const uint8_t* at, const float* a, int64_t blocks,
                       const __m256* scale, const __m256* shift, __m256* sum) {
  OCTAVO_LOOP("vmovdqu (%[at]), %[codes]\n\t" OCTAVO_STEP(0) "vpsrld $16, %[codes], %[codes]\n\t" OCTAVO_STEP(4), 8);
}

inline void OffsetLoop(const CodecOffsetLookup& codec, const uint8_t* at, const float* a, int64_t blocks,
                       const __m256* scale, const __m256* shift, __m256* sum) {
  // clang-format off
  OCTAVO_LOOP(
      "vmovdqu (%[at]), %[codes]\n\t"
      "vmovdqa 160(%[constants]), %[temp]\n\t"
      "vpand 128(%[constants]), %[codes], %[codes]\n\t"
      "vpshufb %[codes], %[temp], %[codes]\n\t"
      OCTAVO_STEP(0)
      "vmovdqu (%[at]), %[codes]\n\t"
      "vmovdqa 160(%[constants]), %[temp]\n\t"
      "vpsrlw $4, %[codes], %[codes]\n\t"
      "vpand 128(%[constants]), %[codes], %[codes]\n\t"
      "vpshufb %[codes], %[temp], %[codes]\n\t"
      OCTAVO_STEP(4), 8);
  // clang-format on
}

#undef OCTAVO_VECTOR
#undef OCTAVO_STEP
#undef OCTAVO_LOOP

}  // namespace octavo::kernels::internal
