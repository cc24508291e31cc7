// The f32 product in AVX-512: register tiles of 14 rows x 32 columns over one leaf of K. An element's sum is the same
// ascending chain of fused multiply-adds as in every other kernel of the family.
#include <immintrin.h>

#include "octavo/kernels/matmul_f32_tile.h"
#include "octavo/kernels/tile_avx512.h"

namespace octavo::kernels::internal {
namespace {

constexpr int64_t kRows = kRowsOfTileAvx512, kPanel = kColsOfTile, kWide = 2 * kColsOfTile;

// One register tile: what it reads, and where sums go. `partial` (the leaves before this one) may be null.
struct Operands {
  const float* a;   // [depth][14]
  const float* b;   // [depth][16]
  int64_t b_panel;  // bytes to the second panel
  int64_t depth;
  const float* partial;
  int64_t partial_stride;  // bytes, like the one below
  float* out;
  int64_t out_stride;
};

// clang-format off
#define OCTAVO_T_ADD_2(x, r, c0, c1, t) \
  "vaddps (%[p]), %%zmm" c0 ", %%zmm" c0 "\n\tvaddps 64(%[p]), %%zmm" c1 ", %%zmm" c1 "\n\tadd %[ps], %[p]\n\t"
#define OCTAVO_T_ADD_1(x, r, c0, c1, t) "vaddps (%[p]), %%zmm" c0 ", %%zmm" c0 "\n\tadd %[ps], %[p]\n\t"
#define OCTAVO_T_PUT_2(x, r, c0, c1, t) \
  "vmovups %%zmm" c0 ", (%[o])\n\tvmovups %%zmm" c1 ", 64(%[o])\n\tadd %[os], %[o]\n\t"
#define OCTAVO_T_PUT_1(x, r, c0, c1, t) "vmovups %%zmm" c0 ", (%[o])\n\tadd %[os], %[o]\n\t"

#define OCTAVO_F32_TILE(name, rows, panels, ROW) \
  void name(const Operands& in) { \
    const float *a = in.a, *b = in.b, *partial = in.partial; \
    float* out = in.out; \
    int64_t n = in.depth; \
    asm volatile(OCTAVO_T_ROWS_##rows(OCTAVO_T_ZERO, "") \
                 OCTAVO_T_STEPS(OCTAVO_T_LINES_##panels, OCTAVO_T_FETCH_A, OCTAVO_T_ROWS_##rows(ROW, "vfmadd231ps")) \
                 "test %[p], %[p]\n\t" \
                 "jz 2f\n\t" OCTAVO_T_ROWS_##rows(OCTAVO_T_ADD_##panels, "") \
                 "2:\n\t" OCTAVO_T_ROWS_##rows(OCTAVO_T_PUT_##panels, "") \
                 : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [p] "+&r"(partial), [o] "+&r"(out) \
                 : [as] "i"(4 * kRows), [bs] "r"(in.b_panel), [ps] "r"(in.partial_stride), [os] "r"(in.out_stride) \
                 : OCTAVO_T_REGISTERS); \
  }
OCTAVO_F32_TILE(Pair14, 14, 2, OCTAVO_T_ROW)
OCTAVO_F32_TILE(Pair8, 8, 2, OCTAVO_T_ROW)
OCTAVO_F32_TILE(Pair4, 4, 2, OCTAVO_T_ROW)
OCTAVO_F32_TILE(Pair2, 2, 2, OCTAVO_T_ROW)
OCTAVO_F32_TILE(One14, 14, 1, OCTAVO_T_HALF)
OCTAVO_F32_TILE(One8, 8, 1, OCTAVO_T_HALF)
OCTAVO_F32_TILE(One4, 4, 1, OCTAVO_T_HALF)
OCTAVO_F32_TILE(One2, 2, 1, OCTAVO_T_HALF)
// clang-format on

// The smallest tile that holds `rows` rows; rows past the edge are zero in the packed operand.
struct Sized {
  int64_t rows;
  void (*pair)(const Operands&);
  void (*one)(const Operands&);
};
constexpr Sized kTiles[] = {{2, Pair2, One2}, {4, Pair4, One4}, {8, Pair8, One8}, {14, Pair14, One14}};

const Sized& TileFor(int64_t rows) {
  const Sized* tile = kTiles;
  while (tile->rows < rows) ++tile;
  return *tile;
}

void Run(const Sized& tile, bool pair, const Operands& in) { (pair ? tile.pair : tile.one)(in); }

// One tile of a job, at its row m and column n.
void RunTile(const LeafJob& job, int64_t m, int64_t n, bool finish) {
  const int64_t rows = job.rows - m < kRows ? job.rows - m : kRows;
  const int64_t cols = job.cols - n < kWide ? job.cols - n : kWide;
  const Sized& tile = TileFor(rows);
  float* partial = job.partial == nullptr ? nullptr : job.partial + m * job.partial_stride + n;
  Operands in;
  in.a = job.a + m * job.depth;
  in.b = job.b + n / kPanel * job.b_panel_stride;
  in.b_panel = job.b_panel_stride * 4;
  in.depth = job.depth;
  if (rows == tile.rows && cols % kPanel == 0 && !finish) {
    in.partial = job.first ? nullptr : partial;
    in.out = partial;
    in.partial_stride = in.out_stride = job.partial_stride * 4;
    return Run(tile, cols == kWide, in);
  }
  // An edge, or an end that is more than a store: through a copy.
  alignas(64) float sums[kRows * kWide];
  in.partial = nullptr;
  in.partial_stride = 0;
  in.out = sums;
  in.out_stride = kWide * 4;
  Run(tile, cols > kPanel, in);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; c += kPanel) {
      const int64_t left = cols - c;
      const __mmask16 inside =
          left >= kPanel ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1u << left) - 1);
      __m512 value = _mm512_load_ps(sums + r * kWide + c);
      float* at = partial == nullptr ? nullptr : partial + r * job.partial_stride + c;
      if (!job.first) value = _mm512_add_ps(_mm512_maskz_loadu_ps(inside, at), value);
      if (finish) {
        _mm512_store_ps(sums + r * kWide + c, value);
      } else {
        _mm512_mask_storeu_ps(at, inside, value);
      }
    }
  }
  if (finish) FinishAvx2(FinishAt(job.finish, m, n), sums, kWide, rows, cols);
}

}  // namespace

void RunLeafAvx512(const LeafJob& job) {
  const bool finish = job.last && !job.plain;
  const int64_t tiles = (job.rows + kRows - 1) / kRows;
  // The next panels of B come from a far cache: fetch them in equal parts while these are used.
  const int64_t lines = (2 * job.depth + tiles - 1) / tiles;
  for (int64_t n = 0; n < job.cols; n += kWide) {
    const float* next = job.b + (n / kPanel + 2) * job.b_panel_stride;
    const int64_t ahead = n + kWide < job.cols ? (n + kWide + kPanel < job.cols ? 2 : 1) * job.depth : 0;
    for (int64_t m = 0, tile = 0; m < job.rows; m += kRows, ++tile) {
      for (int64_t line = tile * lines; line < (tile + 1) * lines && line < ahead; ++line) {
        const float* panel = line < job.depth ? next : next + job.b_panel_stride - job.depth * kPanel;
        _mm_prefetch(reinterpret_cast<const char*>(panel + line * kPanel), _MM_HINT_T1);
      }
      if (!job.first && m + kRows < job.rows) {
        const float* below = job.partial + (m + kRows) * job.partial_stride + n;
        for (int64_t r = 0; r < kRows && m + kRows + r < job.rows; ++r) {
          _mm_prefetch(reinterpret_cast<const char*>(below + r * job.partial_stride), _MM_HINT_T0);
          _mm_prefetch(reinterpret_cast<const char*>(below + r * job.partial_stride + kPanel), _MM_HINT_T0);
        }
      }
      RunTile(job, m, n, finish);
    }
  }
}

}  // namespace octavo::kernels::internal
