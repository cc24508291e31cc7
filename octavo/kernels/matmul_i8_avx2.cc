// The int8 micro-kernel: 4 rows x 16 columns, 4 steps of K at a time, by Winograd's identity (pack_i8.h). Written as
// one asm loop per row count because compilers spill or reorder the intrinsics version; here both emit the same loop.
//
// Per unit: ymm8/9 = steps 0-1 of columns 0-7/8-15, ymm10/11 = steps 2-3, widened from int8. A row broadcasts its steps
// 2-3 (ymm12) and 0-1 (ymm13): (a2 + b0)(a0 + b2) + (a3 + b1)(a1 + b3) is one vpmaddwd of two sums. One multiplication
// to three additions keeps the four vector ports of Zen 3 busier than one to one does: 90 against 82 GMAC/s per core.
#include "octavo/kernels/int_epilogue_avx2.h"

namespace octavo::kernels {
namespace {

// clang-format off
#define OCTAVO_I8_ROW(low, high, c0, c1) \
  "vpbroadcastd " high "(%[a]), %%ymm12\n\t" \
  "vpbroadcastd " low "(%[a]), %%ymm13\n\t" \
  "vpaddw %%ymm8, %%ymm12, %%ymm14\n\t" \
  "vpaddw %%ymm10, %%ymm13, %%ymm15\n\t" \
  "vpaddw %%ymm9, %%ymm12, %%ymm12\n\t" \
  "vpaddw %%ymm11, %%ymm13, %%ymm13\n\t" \
  "vpmaddwd %%ymm14, %%ymm15, %%ymm14\n\t" \
  "vpmaddwd %%ymm12, %%ymm13, %%ymm12\n\t" \
  "vpaddd %%ymm14, %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vpaddd %%ymm12, %%ymm" c1 ", %%ymm" c1 "\n\t"
#define OCTAVO_I8_ROWS_1 OCTAVO_I8_ROW("0", "4", "0", "1")
#define OCTAVO_I8_ROWS_2 OCTAVO_I8_ROWS_1 OCTAVO_I8_ROW("8", "12", "2", "3")
#define OCTAVO_I8_ROWS_3 OCTAVO_I8_ROWS_2 OCTAVO_I8_ROW("16", "20", "4", "5")
#define OCTAVO_I8_ROWS_4 OCTAVO_I8_ROWS_3 OCTAVO_I8_ROW("24", "28", "6", "7")

// The loop for a row count: `bytes` of strip per unit.
#define OCTAVO_I8_LOOP(rows, bytes) \
  asm volatile( \
      "vpxor %%xmm0, %%xmm0, %%xmm0\n\t" \
      "vpxor %%xmm1, %%xmm1, %%xmm1\n\t" \
      "vpxor %%xmm2, %%xmm2, %%xmm2\n\t" \
      "vpxor %%xmm3, %%xmm3, %%xmm3\n\t" \
      "vpxor %%xmm4, %%xmm4, %%xmm4\n\t" \
      "vpxor %%xmm5, %%xmm5, %%xmm5\n\t" \
      "vpxor %%xmm6, %%xmm6, %%xmm6\n\t" \
      "vpxor %%xmm7, %%xmm7, %%xmm7\n\t" \
      ".p2align 6\n" \
      "1:\n\t" \
      "vpmovsxbw (%[b]), %%ymm8\n\t" \
      "vpmovsxbw 16(%[b]), %%ymm9\n\t" \
      "vpmovsxbw 32(%[b]), %%ymm10\n\t" \
      "vpmovsxbw 48(%[b]), %%ymm11\n\t" \
      "prefetcht0 512(%[b])\n\t" OCTAVO_I8_ROWS_##rows \
      "add $" bytes ", %[a]\n\t" \
      "add $64, %[b]\n\t" \
      "dec %[n]\n\t" \
      "jnz 1b\n\t" \
      "vmovdqa %%ymm0, (%[c])\n\t" \
      "vmovdqa %%ymm1, 32(%[c])\n\t" \
      "vmovdqa %%ymm2, 64(%[c])\n\t" \
      "vmovdqa %%ymm3, 96(%[c])\n\t" \
      "vmovdqa %%ymm4, 128(%[c])\n\t" \
      "vmovdqa %%ymm5, 160(%[c])\n\t" \
      "vmovdqa %%ymm6, 192(%[c])\n\t" \
      "vmovdqa %%ymm7, 224(%[c])\n\t" \
      : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(units) \
      : [c] "r"(acc) \
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
        "xmm13", "xmm14", "xmm15", "memory", "cc")
// clang-format on

struct MicroI8 {
  static constexpr int kRows = kStripRowsI8;
  static constexpr bool Scales(int64_t) { return false; }  // tiles are long enough to scale outside
  static void RunScaled(int, const uint8_t*, const uint8_t*, int64_t, int64_t, const int32_t*, const float*, int64_t,
                        TileScratch&) {}

  // acc [rows, 16] = raw sums of `units` >= 1 units.
  static void Run(int rows, const uint8_t* a, const uint8_t* b, int64_t units, TileScratch& scratch) {
    int32_t* acc = scratch.acc;
    switch (rows) {
      case 1:
        OCTAVO_I8_LOOP(1, "8");
        break;
      case 2:
        OCTAVO_I8_LOOP(2, "16");
        break;
      case 3:
        OCTAVO_I8_LOOP(3, "24");
        break;
      default:
        OCTAVO_I8_LOOP(4, "32");
        break;
    }
  }
};

}  // namespace

void BlockI8Avx2(const IntBlock& block, const IntRect& rect, uint8_t*) { RunBlock<MicroI8>(block, rect); }

}  // namespace octavo::kernels
