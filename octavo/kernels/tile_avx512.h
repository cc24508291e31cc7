// The register tile that the f32 and the integer products share: up to 14 rows x 2 panels of 16 columns, one line of 64
// bytes per panel and step (16 floats, or 16 columns x 4 bytes), one broadcast of 4 bytes per row and step. Written as
// assembly with every register named, because compilers spill such loops; g++ and clang then run the same code. For
// *_avx512.cc units only. The macros end with the file that includes this header.
//
// zmm0 … zmm27 hold the sums, row r in zmm(2r) and zmm(2r + 1); zmm28 and zmm29 the lines; zmm30 and zmm31 the rows.
#pragma once

// clang-format off
#define OCTAVO_T_ROW(OP, r, c0, c1, t) \
  "vbroadcastss 4*" r "(%[a]), %%zmm" t "\n\t" \
  OP " %%zmm" t ", %%zmm28, %%zmm" c0 "\n\t" \
  OP " %%zmm" t ", %%zmm29, %%zmm" c1 "\n\t"
// One panel only: sums keep the even registers.
#define OCTAVO_T_HALF(OP, r, c0, c1, t) \
  "vbroadcastss 4*" r "(%[a]), %%zmm" t "\n\t" \
  OP " %%zmm" t ", %%zmm28, %%zmm" c0 "\n\t"

// DO(x, row, first register, second register, register of the row) for the rows of a tile.
#define OCTAVO_T_ROWS_1(DO, x) DO(x, "0", "0", "1", "30")
#define OCTAVO_T_ROWS_2(DO, x) OCTAVO_T_ROWS_1(DO, x) DO(x, "1", "2", "3", "31")
#define OCTAVO_T_ROWS_4(DO, x) OCTAVO_T_ROWS_2(DO, x) DO(x, "2", "4", "5", "30") DO(x, "3", "6", "7", "31")
#define OCTAVO_T_ROWS_7(DO, x) OCTAVO_T_ROWS_4(DO, x) \
  DO(x, "4", "8", "9", "30") DO(x, "5", "10", "11", "31") DO(x, "6", "12", "13", "30")
#define OCTAVO_T_ROWS_8(DO, x) OCTAVO_T_ROWS_7(DO, x) DO(x, "7", "14", "15", "31")
#define OCTAVO_T_ROWS_14(DO, x) OCTAVO_T_ROWS_8(DO, x) \
  DO(x, "8", "16", "17", "30") DO(x, "9", "18", "19", "31") DO(x, "10", "20", "21", "30") \
  DO(x, "11", "22", "23", "31") DO(x, "12", "24", "25", "30") DO(x, "13", "26", "27", "31")

#define OCTAVO_T_ZERO(x, r, c0, c1, t) \
  "vpxord %%zmm" c0 ", %%zmm" c0 ", %%zmm" c0 "\n\tvpxord %%zmm" c1 ", %%zmm" c1 ", %%zmm" c1 "\n\t"

// The steps: %[a] walks by %[as] bytes, %[b] by lines; the second panel is %[bs] bytes behind the first. `fetch` is what
// to prefetch in a step.
#define OCTAVO_T_LINES_2 "vmovups (%[b]), %%zmm28\n\tvmovups (%[b],%[bs]), %%zmm29\n\t"
#define OCTAVO_T_LINES_1 "vmovups (%[b]), %%zmm28\n\t"
#define OCTAVO_T_STEPS(lines, fetch, body) \
  ".p2align 6\n" \
  "1:\n\t" lines fetch body \
  "add %[as], %[a]\n\t" \
  "add $64, %[b]\n\t" \
  "dec %[n]\n\t" \
  "jnz 1b\n\t"

#define OCTAVO_T_FETCH_A "prefetcht0 448(%[a])\n\t"
// … and a line of what comes next, at %[f], which walks by %[fs] bytes.
#define OCTAVO_T_FETCH_BOTH OCTAVO_T_FETCH_A "prefetcht1 (%[f])\n\tadd %[fs], %[f]\n\t"

#define OCTAVO_T_REGISTERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", \
      "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "memory", "cc"
// clang-format on
