#include "octavo/kernels/matmul_f32_tile.h"

#include <immintrin.h>

namespace octavo::kernels::internal {
namespace {

// One row of the tile at one k: broadcast an element of A, multiply-add the two vectors of B. Written as assembly
// because compilers spill or reorder the plain intrinsics; see the file comment of RunTile.
#define OCTAVO_ROW(offset, low, high, temp) \
  "vbroadcastss " offset "(%[a]), %[" temp  \
  "]\n\t"                                   \
  "vfmadd231ps %[b0], %[" temp "], %[" low  \
  "]\n\t"                                   \
  "vfmadd231ps %[b1], %[" temp "], %[" high "]\n\t"
#define OCTAVO_STEP(b0_at, b1_at, a0, a1, a2, a3, a4, a5)                                                      \
  "vmovaps " b0_at                                                                                             \
  "(%[b]), %[b0]\n\t"                                                                                          \
  "vmovaps " b1_at "(%[b]), %[b1]\n\t" OCTAVO_ROW(a0, "c00", "c01", "t0") OCTAVO_ROW(a1, "c10", "c11", "t1")   \
      OCTAVO_ROW(a2, "c20", "c21", "t0") OCTAVO_ROW(a3, "c30", "c31", "t1") OCTAVO_ROW(a4, "c40", "c41", "t0") \
          OCTAVO_ROW(a5, "c50", "c51", "t1")
#define OCTAVO_ZERO(name) "vxorps %[" name "], %[" name "], %[" name "]\n\t"

struct Tile {
  __m256 c[6][2];
};

// The sums of one leaf for 6 rows and 16 columns. All sixteen registers are named in one assembly block: g++ and clang
// then give the same code, without spills.
inline __attribute__((always_inline)) void SumLeaf(const float* a, const float* b, int64_t depth, Tile& tile) {
  __m256 c00, c01, c10, c11, c20, c21, c30, c31, c40, c41, c50, c51, b0, b1, t0, t1;
  int64_t quads = depth / 4, rest = depth % 4;
  asm volatile(
      // clang-format off
      OCTAVO_ZERO("c00") OCTAVO_ZERO("c01") OCTAVO_ZERO("c10") OCTAVO_ZERO("c11") OCTAVO_ZERO("c20") OCTAVO_ZERO("c21")
      OCTAVO_ZERO("c30") OCTAVO_ZERO("c31") OCTAVO_ZERO("c40") OCTAVO_ZERO("c41") OCTAVO_ZERO("c50") OCTAVO_ZERO("c51")
      "test %[quads], %[quads]\n\t"
      "jz 2f\n\t"
      ".p2align 5\n"
      "1:\n\t"
      OCTAVO_STEP("0", "32", "0", "4", "8", "12", "16", "20")
      OCTAVO_STEP("64", "96", "24", "28", "32", "36", "40", "44")
      OCTAVO_STEP("128", "160", "48", "52", "56", "60", "64", "68")
      OCTAVO_STEP("192", "224", "72", "76", "80", "84", "88", "92")
      "add $256, %[b]\n\t"
      "add $96, %[a]\n\t"
      "dec %[quads]\n\t"
      "jnz 1b\n"
      "2:\n\t"
      "test %[rest], %[rest]\n\t"
      "jz 4f\n"
      "3:\n\t"
      OCTAVO_STEP("0", "32", "0", "4", "8", "12", "16", "20")
      "add $64, %[b]\n\t"
      "add $24, %[a]\n\t"
      "dec %[rest]\n\t"
      "jnz 3b\n"
      "4:\n\t"
      // clang-format on
      : [c00] "=&x"(c00), [c01] "=&x"(c01), [c10] "=&x"(c10), [c11] "=&x"(c11), [c20] "=&x"(c20), [c21] "=&x"(c21),
        [c30] "=&x"(c30), [c31] "=&x"(c31), [c40] "=&x"(c40), [c41] "=&x"(c41), [c50] "=&x"(c50), [c51] "=&x"(c51),
        [b0] "=&x"(b0), [b1] "=&x"(b1), [t0] "=&x"(t0), [t1] "=&x"(t1), [a] "+r"(a), [b] "+r"(b), [quads] "+r"(quads),
        [rest] "+r"(rest)
      :
      : "cc", "memory");
  tile.c[0][0] = c00, tile.c[0][1] = c01, tile.c[1][0] = c10, tile.c[1][1] = c11;
  tile.c[2][0] = c20, tile.c[2][1] = c21, tile.c[3][0] = c30, tile.c[3][1] = c31;
  tile.c[4][0] = c40, tile.c[4][1] = c41, tile.c[5][0] = c50, tile.c[5][1] = c51;
}

#undef OCTAVO_ROW
#undef OCTAVO_STEP
#undef OCTAVO_ZERO

// A whole tile: sums, plus what came before, stored.
inline void WholeTile(const LeafJob& job, const float* a, const float* b, float* partial, float* out,
                      int64_t out_stride) {
  const int64_t stride = job.partial_stride;
  Tile tile;
  if (!job.first) {
    for (int r = 0; r < 6; ++r) _mm_prefetch(reinterpret_cast<const char*>(partial + r * stride), _MM_HINT_T0);
  }
  SumLeaf(a, b, job.depth, tile);
  if (job.first) {
    for (int r = 0; r < 6; ++r) {
      _mm256_storeu_ps(out + r * out_stride, tile.c[r][0]);
      _mm256_storeu_ps(out + r * out_stride + 8, tile.c[r][1]);
    }
  } else {
    for (int r = 0; r < 6; ++r) {
      const float* before = partial + r * stride;
      _mm256_storeu_ps(out + r * out_stride, _mm256_add_ps(_mm256_loadu_ps(before), tile.c[r][0]));
      _mm256_storeu_ps(out + r * out_stride + 8, _mm256_add_ps(_mm256_loadu_ps(before + 8), tile.c[r][1]));
    }
  }
}

// A tile that sticks out of C on the right or below.
void EdgeTile(const LeafJob& job, const float* a, const float* b, float* partial, float* out, int64_t out_stride,
              int64_t rows, int64_t cols) {
  alignas(32) float sums[6 * 16];
  Tile tile;
  SumLeaf(a, b, job.depth, tile);
  for (int r = 0; r < 6; ++r) {
    _mm256_store_ps(sums + r * 16, tile.c[r][0]);
    _mm256_store_ps(sums + r * 16 + 8, tile.c[r][1]);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = 0; n < cols; ++n) {
      const float sum = sums[r * 16 + n];
      out[r * out_stride + n] = job.first ? sum : partial[r * job.partial_stride + n] + sum;
    }
  }
}

}  // namespace

void RunLeafAvx2(const LeafJob& job) {
  const bool finish = job.last && !job.plain;
  alignas(32) float sums[6 * 16];
  for (int64_t n = 0; n < job.cols; n += kColsOfTile) {
    const float* b = job.b + n / kColsOfTile * job.b_panel_stride;
    const float* next_b = n + kColsOfTile < job.cols ? b + job.b_panel_stride : b;
    const int64_t cols = job.cols - n < kColsOfTile ? job.cols - n : kColsOfTile;
    // The next panel of B comes from a far cache: fetch it in equal parts while this one is used.
    const int64_t panels = (job.rows + kRowsOfTile - 1) / kRowsOfTile;
    const int64_t lines = (job.depth + panels - 1) / panels;
    for (int64_t m = 0, panel = 0; m < job.rows; m += kRowsOfTile, ++panel) {
      const float* a = job.a + m * job.depth;
      const int64_t rows = job.rows - m < kRowsOfTile ? job.rows - m : kRowsOfTile;
      for (int64_t line = panel * lines; line < (panel + 1) * lines && line < job.depth; ++line) {
        _mm_prefetch(reinterpret_cast<const char*>(next_b + line * kColsOfTile), _MM_HINT_T1);
      }
      float* partial = job.partial == nullptr ? nullptr : job.partial + m * job.partial_stride + n;
      float* out = finish ? sums : partial;
      const int64_t out_stride = finish ? kColsOfTile : job.partial_stride;
      if (rows == kRowsOfTile && cols == kColsOfTile) {
        WholeTile(job, a, b, partial, out, out_stride);
      } else {
        EdgeTile(job, a, b, partial, out, out_stride, rows, cols);
      }
      if (finish) FinishAvx2(FinishAt(job.finish, m, n), sums, kColsOfTile, rows, cols);
    }
  }
}

}  // namespace octavo::kernels::internal
