// Packing of A into panels of 14 rows, [panel][k][14]. Panels of B are the same for every instruction set.
#include "octavo/kernels/matmul_f32_tile.h"
#include "octavo/kernels/pack_f32.h"
#include "octavo/kernels/transpose_avx512.h"

namespace octavo::kernels::internal {
namespace {

constexpr int64_t kRows = kRowsOfTileAvx512;

// A view of f32 values.
struct View {
  const float* data;
  int64_t row_stride, col_stride;
};

// A panel of `rows` <= 14 rows whose elements along k are neighbours; the rest of the 14 are zero.
void PanelAlongK(const View& from, int64_t rows, int64_t depth, float* out) {
  const __mmask16 inside = FirstLanes(kRows);
  for (int64_t k = 0; k < depth; k += 16) {
    const __mmask16 mask = FirstLanes(depth - k);
    __m512i v[16];
    for (int r = 0; r < 16; ++r) {
      v[r] = r < rows ? _mm512_maskz_loadu_epi32(mask, from.data + r * from.row_stride + k) : _mm512_setzero_si512();
    }
    Transpose16x16(v);
    float* at = out + k * kRows;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (k + i >= depth) break;
      _mm512_mask_storeu_epi32(at + i * kRows, inside, v[i]);
    }
  }
}

constexpr int64_t kAhead = 8;  // rows may lie pages apart, which the hardware does not follow

// All panels where the rows are neighbours in memory (A transposed): whole stretches of the source are read.
void PanelsAcross(const View& from, int64_t rows, int64_t depth, float* out, int64_t panel_stride) {
  const __mmask16 whole = FirstLanes(kRows);
  for (int64_t k = 0; k < depth; ++k) {
    const float* at = from.data + k * from.col_stride;
    if (k + kAhead < depth) {
      const float* ahead = at + kAhead * from.col_stride;
      for (int64_t i = 0; i < rows; i += 16) _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T0);
    }
    float* to = out + k * kRows;
    for (int64_t r = 0; r < rows; r += kRows, to += panel_stride) {
      const __mmask16 inside = static_cast<__mmask16>(FirstLanes(rows - r) & whole);
      _mm512_mask_storeu_ps(to, whole, _mm512_maskz_loadu_ps(inside, at + r));
    }
  }
}

void PanelAnyhow(const View& from, int64_t rows, int64_t depth, float* out) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < kRows; ++i) {
      out[k * kRows + i] = i < rows ? from.data[i * from.row_stride + k * from.col_stride] : 0.0f;
    }
  }
}

void Panels(const View& from, int64_t rows, int64_t depth, float* out, int64_t panel_stride) {
  if (from.col_stride != 1 && from.row_stride == 1) return PanelsAcross(from, rows, depth, out, panel_stride);
  for (int64_t r = 0; r < rows; r += kRows, out += panel_stride) {
    const View part{from.data + r * from.row_stride, from.row_stride, from.col_stride};
    const int64_t some = rows - r < kRows ? rows - r : kRows;
    from.col_stride == 1 ? PanelAlongK(part, some, depth, out) : PanelAnyhow(part, some, depth, out);
  }
}

// Codes are decoded block by block into a corner of the first cache, then packed like floats.
constexpr int64_t kBlockAlong = 64, kBlockAcross = 7 * kRows;

}  // namespace

void PackRowsAvx512(const FloatSource& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* out) {
  const int64_t panel_stride = kRows * depth;
  if (a.stored == Stored::kF32 && a.scales.scale == nullptr) {
    const float* data = static_cast<const float*>(a.data) + a.offset + row * a.row_stride + k0 * a.col_stride;
    return Panels({data, a.row_stride, a.col_stride}, rows, depth, out, panel_stride);
  }
  alignas(64) float block[kBlockAlong * kBlockAcross];
  for (int64_t r = 0; r < rows; r += kBlockAcross) {
    const int64_t some = rows - r < kBlockAcross ? rows - r : kBlockAcross;
    for (int64_t k = 0; k < depth; k += kBlockAlong) {
      const int64_t along = depth - k < kBlockAlong ? depth - k : kBlockAlong;
      const bool by_rows = DecodeBlockAvx2(a, row + r, some, k0 + k, along, block);
      const View view = by_rows ? View{block, along, 1} : View{block, 1, some};
      Panels(view, some, along, out + r * depth + k * kRows, panel_stride);
    }
  }
}

}  // namespace octavo::kernels::internal
