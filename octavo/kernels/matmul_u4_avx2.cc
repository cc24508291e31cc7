// The int8 x int4 micro-kernel: 6 rows x 16 columns, 8 steps of K per line. vpmaddubsw multiplies the unsigned weight
// (code + 8) by four signed activations of a row; a pair of products is at most 2 * 15 * 128 = 3840, so int16 sums hold
// eight of them. Every 4 lines (32 steps) they are widened with vpmaddwd by ones and added to the int32 sums in memory.
// One asm loop per row count, for the reason given in matmul_i8_avx2.cc.
#include <cstddef>
#include <cstring>

#include "octavo/kernels/int_epilogue_avx2.h"

namespace octavo::kernels {
namespace {

// clang-format off
// ymm12/13 = weights of columns 0-7/8-15 for 4 steps of K: the low or the high nibbles of line `l`. The mask of low
// nibbles stays in ymm10 where the row count leaves a register, and is loaded to ymm14 where it does not.
#define OCTAVO_U4_MASK_KEPT ""
#define OCTAVO_U4_MASK_LOADED "vmovdqa (%[s]), %%ymm14\n\t"
#define OCTAVO_U4_LOW(mask, l) \
  "vpand 64*" l "(%[b]), %%ymm" mask ", %%ymm12\n\t" \
  "vpand 64*" l "+32(%[b]), %%ymm" mask ", %%ymm13\n\t" \
  "prefetcht0 64*" l "+512(%[b])\n\t"
#define OCTAVO_U4_HIGH(mask, l) \
  "vpandn 64*" l "(%[b]), %%ymm" mask ", %%ymm12\n\t" \
  "vpandn 64*" l "+32(%[b]), %%ymm" mask ", %%ymm13\n\t" \
  "vpsrlw $4, %%ymm12, %%ymm12\n\t" \
  "vpsrlw $4, %%ymm13, %%ymm13\n\t"

// One row of one quad: `at` is the row's byte inside the unit. The first quad of a block starts the int16 sums.
#define OCTAVO_U4_FIRST(at, c0, c1) \
  "vpbroadcastd " at "(%[a]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm" c0 "\n\t" \
  "vpmaddubsw %%ymm14, %%ymm13, %%ymm" c1 "\n\t"
#define OCTAVO_U4_NEXT(at, c0, c1) \
  "vpbroadcastd " at "(%[a]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm15\n\t" \
  "vpmaddubsw %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddw %%ymm15, %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vpaddw %%ymm14, %%ymm" c1 ", %%ymm" c1 "\n\t"

// All rows of a quad at byte `at` of the strip.
#define OCTAVO_U4_ROWS_1(ROW, at) ROW(at, "0", "1")
#define OCTAVO_U4_ROWS_2(ROW, at) OCTAVO_U4_ROWS_1(ROW, at) ROW(at "+8", "2", "3")
#define OCTAVO_U4_ROWS_3(ROW, at) OCTAVO_U4_ROWS_2(ROW, at) ROW(at "+16", "4", "5")
#define OCTAVO_U4_ROWS_4(ROW, at) OCTAVO_U4_ROWS_3(ROW, at) ROW(at "+24", "6", "7")
#define OCTAVO_U4_ROWS_5(ROW, at) OCTAVO_U4_ROWS_4(ROW, at) ROW(at "+32", "8", "9")
#define OCTAVO_U4_ROWS_6(ROW, at) OCTAVO_U4_ROWS_5(ROW, at) ROW(at "+40", "10", "11")

// One line: 8 steps of K. Four lines: a block.
#define OCTAVO_U4_LINE(rows, MASK, mask, ROW, l) \
  MASK OCTAVO_U4_LOW(mask, l) OCTAVO_U4_ROWS_##rows(ROW, "8*" #rows "*" l) MASK OCTAVO_U4_HIGH(mask, l) \
      OCTAVO_U4_ROWS_##rows(OCTAVO_U4_NEXT, "8*" #rows "*" l "+4")
#define OCTAVO_U4_FOUR(rows, MASK, mask) \
  OCTAVO_U4_LINE(rows, MASK, mask, OCTAVO_U4_FIRST, "0") \
  OCTAVO_U4_LINE(rows, MASK, mask, OCTAVO_U4_NEXT, "1") \
  OCTAVO_U4_LINE(rows, MASK, mask, OCTAVO_U4_NEXT, "2") OCTAVO_U4_LINE(rows, MASK, mask, OCTAVO_U4_NEXT, "3")

// The end of a block, row by row: widen the int16 sums and add them to what %[from] holds …
#define OCTAVO_U4_WIDEN_ONE(c) \
  "vpmaddwd 32(%[s]), %%ymm" c ", %%ymm" c "\n\t" \
  "vpaddd 32*" c "(%[from]), %%ymm" c ", %%ymm" c "\n\t" \
  "vmovdqa %%ymm" c ", 32*" c "(%[c])\n\t"
#define OCTAVO_U4_WIDEN(r, c0, c1) OCTAVO_U4_WIDEN_ONE(c0) OCTAVO_U4_WIDEN_ONE(c1)
// … or, when the block is a group: widen, add the row's constant, scale by row (ymm13) and column (ymm14/15), and add
// to the float sums.
#define OCTAVO_U4_SCALE_WITH(MORE, r, c0, c1) \
  "vpbroadcastd 4*" r "(%[add]), %%ymm12\n\t" \
  "vbroadcastss 1216+4*" r "(%[s]), %%ymm13\n\t" \
  "vpmaddwd 32(%[s]), %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vpmaddwd 32(%[s]), %%ymm" c1 ", %%ymm" c1 "\n\t" MORE(c0) MORE(c1) \
  "vpaddd %%ymm12, %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vpaddd %%ymm12, %%ymm" c1 ", %%ymm" c1 "\n\t" \
  "vcvtdq2ps %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vcvtdq2ps %%ymm" c1 ", %%ymm" c1 "\n\t" \
  "vmulps %%ymm13, %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vmulps %%ymm13, %%ymm" c1 ", %%ymm" c1 "\n\t" \
  "vmulps %%ymm14, %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vmulps %%ymm15, %%ymm" c1 ", %%ymm" c1 "\n\t" \
  "vaddps 832+32*" c0 "(%[s]), %%ymm" c0 ", %%ymm" c0 "\n\t" \
  "vaddps 832+32*" c1 "(%[s]), %%ymm" c1 ", %%ymm" c1 "\n\t" \
  "vmovaps %%ymm" c0 ", 832+32*" c0 "(%[s])\n\t" \
  "vmovaps %%ymm" c1 ", 832+32*" c1 "(%[s])\n\t"
#define OCTAVO_U4_NO_MORE(c) ""
#define OCTAVO_U4_MORE(c) "vpaddd 32*" c "(%[from]), %%ymm" c ", %%ymm" c "\n\t"
#define OCTAVO_U4_SCALE(r, c0, c1) OCTAVO_U4_SCALE_WITH(OCTAVO_U4_NO_MORE, r, c0, c1)
#define OCTAVO_U4_SCALE_LONG(r, c0, c1) OCTAVO_U4_SCALE_WITH(OCTAVO_U4_MORE, r, c0, c1)
static_assert(offsetof(TileScratch, nibble_mask) == 0 && offsetof(TileScratch, ones) == 32 &&
              offsetof(TileScratch, zeros) == 64 && offsetof(TileScratch, acc) == 448 &&
              offsetof(TileScratch, sum) == 832 && offsetof(TileScratch, row_scale) == 1216);

#define OCTAVO_U4_EACH_1(DO) DO("0", "0", "1")
#define OCTAVO_U4_EACH_2(DO) OCTAVO_U4_EACH_1(DO) DO("1", "2", "3")
#define OCTAVO_U4_EACH_3(DO) OCTAVO_U4_EACH_2(DO) DO("2", "4", "5")
#define OCTAVO_U4_EACH_4(DO) OCTAVO_U4_EACH_3(DO) DO("3", "6", "7")
#define OCTAVO_U4_EACH_5(DO) OCTAVO_U4_EACH_4(DO) DO("4", "8", "9")
#define OCTAVO_U4_EACH_6(DO) OCTAVO_U4_EACH_5(DO) DO("5", "10", "11")

#define OCTAVO_U4_REGISTERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15", "memory", "cc"

// ymm10 = mask: what the kept form needs, overwritten by the sums of row 6 in the loaded form.
#define OCTAVO_U4_LOOP(rows, lines, body) \
  asm volatile("vmovdqa (%[s]), %%ymm10\n\t" \
               ".p2align 6\n" \
               "1:\n\t" body OCTAVO_U4_EACH_##rows(OCTAVO_U4_WIDEN) \
               "mov %[c], %[from]\n\t" \
               "add $8*" #rows "*" #lines ", %[a]\n\t" \
               "add $64*" #lines ", %[b]\n\t" \
               "dec %[n]\n\t" \
               "jnz 1b\n\t" \
               : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [from] "+&r"(from) \
               : [c] "r"(scratch.acc), [s] "r"(&scratch) \
               : OCTAVO_U4_REGISTERS)

// Functions per row count. Micro: blocks of 4 lines, then the lines that are left one by one, to int32 sums. Scaled:
// groups of one block, to float sums. Long: groups of several blocks, to float sums.
#define OCTAVO_U4_KERNEL(rows, MASK, mask) \
  void Micro##rows(const uint8_t* a, const uint8_t* b, int64_t units, TileScratch& scratch) { \
    const int32_t* from = scratch.zeros; \
    int64_t n = units / 4; \
    if (n > 0) OCTAVO_U4_LOOP(rows, 4, OCTAVO_U4_FOUR(rows, MASK, mask)); \
    n = units % 4; \
    if (n > 0) OCTAVO_U4_LOOP(rows, 1, OCTAVO_U4_LINE(rows, MASK, mask, OCTAVO_U4_FIRST, "0")); \
  } \
  void Scaled##rows(const uint8_t* a, const uint8_t* b, int64_t n, const int32_t* add, const float* col, int64_t step, \
                    TileScratch& scratch) { \
    asm volatile("vmovdqa (%[s]), %%ymm10\n\t" \
                 ".p2align 6\n" \
                 "1:\n\t" OCTAVO_U4_FOUR(rows, MASK, mask) \
                 "vmovups (%[col]), %%ymm14\n\t" \
                 "vmovups 32(%[col]), %%ymm15\n\t" \
                 "prefetcht0 (%[col],%[step],8)\n\t" OCTAVO_U4_EACH_##rows(OCTAVO_U4_SCALE) \
                 "add %[step], %[col]\n\t" \
                 "add $4*" #rows ", %[add]\n\t" \
                 "add $8*" #rows "*4, %[a]\n\t" \
                 "add $256, %[b]\n\t" \
                 "dec %[n]\n\t" \
                 "jnz 1b\n\t" \
                 : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [add] "+&r"(add), [col] "+&r"(col) \
                 : [step] "r"(step * 4), [s] "r"(&scratch) \
                 : OCTAVO_U4_REGISTERS); \
  } \
  void Long##rows(const uint8_t* a, const uint8_t* b, int64_t n, int64_t blocks, const int32_t* add, const float* col, \
                  int64_t step, TileScratch& scratch) { \
    int64_t left = blocks; \
    const int32_t* from = scratch.zeros; \
    asm volatile("vmovdqa (%[s]), %%ymm10\n\t" \
                 ".p2align 6\n" \
                 "1:\n\t" OCTAVO_U4_FOUR(rows, MASK, mask) \
                 "add $8*" #rows "*4, %[a]\n\t" \
                 "add $256, %[b]\n\t" \
                 "dec %[left]\n\t" \
                 "jz 2f\n\t" OCTAVO_U4_EACH_##rows(OCTAVO_U4_WIDEN) \
                 "lea 448(%[s]), %[from]\n\t" \
                 "jmp 1b\n" \
                 "2:\n\t" \
                 "vmovups (%[col]), %%ymm14\n\t" \
                 "vmovups 32(%[col]), %%ymm15\n\t" \
                 "prefetcht0 (%[col],%[step],4)\n\t" OCTAVO_U4_EACH_##rows(OCTAVO_U4_SCALE_LONG) \
                 "add %[step], %[col]\n\t" \
                 "add $4*" #rows ", %[add]\n\t" \
                 "lea 64(%[s]), %[from]\n\t" \
                 "mov %[blocks], %[left]\n\t" \
                 "dec %[n]\n\t" \
                 "jnz 1b\n\t" \
                 : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [left] "+&r"(left), [from] "+&r"(from), [add] "+&r"(add), \
                   [col] "+&r"(col) \
                 : [blocks] "r"(blocks), [step] "r"(step * 4), [c] "r"(scratch.acc), [s] "r"(&scratch) \
                 : OCTAVO_U4_REGISTERS); \
  }
OCTAVO_U4_KERNEL(1, OCTAVO_U4_MASK_KEPT, "10")
OCTAVO_U4_KERNEL(2, OCTAVO_U4_MASK_KEPT, "10")
OCTAVO_U4_KERNEL(3, OCTAVO_U4_MASK_KEPT, "10")
OCTAVO_U4_KERNEL(4, OCTAVO_U4_MASK_KEPT, "10")
OCTAVO_U4_KERNEL(5, OCTAVO_U4_MASK_KEPT, "10")
OCTAVO_U4_KERNEL(6, OCTAVO_U4_MASK_LOADED, "14")
// clang-format on

struct MicroU4 {
  static constexpr int kRows = kStripRowsU4;

  // acc [rows, 16] = raw sums of `units` >= 1 lines, weights unsigned.
  static void Run(int rows, const uint8_t* a, const uint8_t* b, int64_t units, TileScratch& scratch) {
    constexpr void (*kMicro[kRows])(const uint8_t*, const uint8_t*, int64_t, TileScratch&) = {Micro1, Micro2, Micro3,
                                                                                              Micro4, Micro5, Micro6};
    kMicro[rows - 1](a, b, units, scratch);
  }

  // Groups of whole blocks are scaled before they leave the registers.
  static constexpr bool Scales(int64_t units) { return units % 4 == 0; }
  static void RunScaled(int rows, const uint8_t* a, const uint8_t* b, int64_t groups, int64_t units, const int32_t* add,
                        const float* col, int64_t step, TileScratch& scratch) {
    constexpr void (*kScaled[kRows])(const uint8_t*, const uint8_t*, int64_t, const int32_t*, const float*, int64_t,
                                     TileScratch&) = {Scaled1, Scaled2, Scaled3, Scaled4, Scaled5, Scaled6};
    constexpr void (*kLong[kRows])(const uint8_t*, const uint8_t*, int64_t, int64_t, const int32_t*, const float*,
                                   int64_t, TileScratch&) = {Long1, Long2, Long3, Long4, Long5, Long6};
    if (units == 4) return kScaled[rows - 1](a, b, groups, add, col, step, scratch);
    kLong[rows - 1](a, b, groups, units / 4, add, col, step, scratch);
  }
};

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// `length` codes of a row contiguous in K, in units of 8 to every `step` bytes of `to`; returns their sum.
int32_t PackRowAlongK(const int8_t* from, int64_t length, int64_t units, uint8_t* to, int64_t step) {
  // Signed bytes times unsigned ones: pairs of int16, then of int32.
  const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
  __m256i sums = _mm256_setzero_si256();
  int64_t unit = 0;
  for (; unit * 8 + 32 <= length; unit += 4) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + unit * 8));
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(ones8, codes), ones16));
    const __m128i low = _mm256_castsi256_si128(codes), high = _mm256_extracti128_si256(codes, 1);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + unit * step), low);
    _mm_storeh_pd(reinterpret_cast<double*>(to + (unit + 1) * step), _mm_castsi128_pd(low));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + (unit + 2) * step), high);
    _mm_storeh_pd(reinterpret_cast<double*>(to + (unit + 3) * step), _mm_castsi128_pd(high));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  int32_t sum = lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
  for (; unit < units; ++unit) {
    int8_t codes[8] = {};
    const int64_t inside = Least(8, length - unit * 8);
    if (inside > 0) std::memcpy(codes, from + unit * 8, static_cast<size_t>(inside));
    for (const int8_t code : codes) sum += code;
    std::memcpy(to + unit * step, codes, 8);
  }
  return sum;
}

int32_t PackRowAnyhow(const int8_t* from, int64_t stride, int64_t length, int64_t units, uint8_t* to, int64_t step) {
  int32_t sum = 0;
  for (int64_t unit = 0; unit < units; ++unit) {
    int8_t codes[8];
    for (int64_t i = 0; i < 8; ++i) {
      codes[i] = unit * 8 + i < length ? from[(unit * 8 + i) * stride] : int8_t{0};
      sum += codes[i];
    }
    std::memcpy(to + unit * step, codes, 8);
  }
  return sum;
}

}  // namespace

void BlockU4Avx2(const IntBlock& block, const IntRect& rect, uint8_t*) { RunBlock<MicroU4>(block, rect); }

void PackStripsU4Avx2(const MatrixView<const int8_t>& a, const StripsTarget& t, int64_t begin, int64_t end) {
  for (int64_t strip = begin; strip < end; ++strip) {
    const int64_t row = strip * kStripRowsU4, rows = Least(kStripRowsU4, a.rows - row);
    for (int64_t tile = 0; tile < t.tiles; ++tile) {
      const int64_t k0 = tile * t.tile_length, length = Least(t.tile_length, a.cols - k0);
      uint8_t* to = t.strips + t.tiles * t.units * kUnitRowBytes * row + tile * t.units * kUnitRowBytes * rows;
      for (int64_t r = 0; r < rows; ++r) {
        const int8_t* from = a.data + (row + r) * a.row_stride + k0 * a.col_stride;
        uint8_t* unit = to + r * kUnitRowBytes;
        const int64_t step = rows * kUnitRowBytes;
        const int32_t sum = a.col_stride == 1 ? PackRowAlongK(from, length, t.units, unit, step)
                                              : PackRowAnyhow(from, a.col_stride, length, t.units, unit, step);
        const int64_t at = row * t.tiles + tile * rows + r;
        t.row_add[at] = -8 * sum;
        if (t.row_sum != nullptr) t.row_sum[at] = sum;
      }
    }
  }
}

}  // namespace octavo::kernels
