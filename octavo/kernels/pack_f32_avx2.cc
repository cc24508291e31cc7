// Packing of A and B into panels. Transposes happen here and nowhere else.
#include <immintrin.h>

#include "octavo/kernels/matmul_f32_avx2.h"
#include "octavo/kernels/pack_f32.h"

namespace octavo::kernels::internal {
namespace {

// A view of f32 values with one unit stride, or with neither.
struct View {
  const float* data;
  int64_t row_stride, col_stride;
};

inline void Transpose8x8(__m256 (&v)[8]) {
  const __m256 a0 = _mm256_unpacklo_ps(v[0], v[1]), a1 = _mm256_unpackhi_ps(v[0], v[1]);
  const __m256 a2 = _mm256_unpacklo_ps(v[2], v[3]), a3 = _mm256_unpackhi_ps(v[2], v[3]);
  const __m256 a4 = _mm256_unpacklo_ps(v[4], v[5]), a5 = _mm256_unpackhi_ps(v[4], v[5]);
  const __m256 a6 = _mm256_unpacklo_ps(v[6], v[7]), a7 = _mm256_unpackhi_ps(v[6], v[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
  v[0] = _mm256_permute2f128_ps(b0, b4, 0x20), v[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
  v[1] = _mm256_permute2f128_ps(b1, b5, 0x20), v[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
  v[2] = _mm256_permute2f128_ps(b2, b6, 0x20), v[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
  v[3] = _mm256_permute2f128_ps(b3, b7, 0x20), v[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

// Any strides, and edges: one element at a time into a panel `width` wide, zeros outside.
void PanelPlain(const View& from, int64_t lanes, int64_t width, int64_t k_begin, int64_t k_end, float* out) {
  for (int64_t k = k_begin; k < k_end; ++k) {
    for (int64_t i = 0; i < width; ++i) {
      out[k * width + i] = i < lanes ? from.data[i * from.row_stride + k * from.col_stride] : 0.0f;
    }
  }
}

// A panel of 6 rows from rows that are contiguous along k. Each store writes eight floats, of which the next one
// overwrites two; the last two steps are done one by one so that nothing is written past the panel.
void RowPanelAlongK(const View& from, int64_t depth, float* out) {
  int64_t k = 0;
  for (; k + 9 <= depth; k += 8) {
    __m256 v[8];
    for (int i = 0; i < 6; ++i) v[i] = _mm256_loadu_ps(from.data + i * from.row_stride + k);
    v[6] = v[7] = _mm256_setzero_ps();
    Transpose8x8(v);
    for (int i = 0; i < 8; ++i) _mm256_storeu_ps(out + (k + i) * 6, v[i]);
  }
  PanelPlain(from, 6, 6, k, depth, out);
}

// A panel of 6 rows where the rows are neighbours in memory (A transposed).
void RowPanelAcross(const View& from, int64_t depth, float* out) {
  for (int64_t k = 0; k < depth; ++k) {
    const float* at = from.data + k * from.col_stride;
    _mm_storeu_ps(out + k * 6, _mm_loadu_ps(at));
    _mm_storel_pi(reinterpret_cast<__m64*>(out + k * 6 + 4),
                  _mm_castpd_ps(_mm_load_sd(reinterpret_cast<const double*>(at + 4))));
  }
}

void RowPanels(const View& from, int64_t rows, int64_t depth, float* out, int64_t panel_stride) {
  for (int64_t r = 0; r < rows; r += kRowsOfTile) {
    const View part{from.data + r * from.row_stride, from.row_stride, from.col_stride};
    float* panel = out + r / kRowsOfTile * panel_stride;
    const int64_t lanes = rows - r < kRowsOfTile ? rows - r : kRowsOfTile;
    if (lanes == kRowsOfTile && part.col_stride == 1) {
      RowPanelAlongK(part, depth, panel);
    } else if (lanes == kRowsOfTile && part.row_stride == 1) {
      RowPanelAcross(part, depth, panel);
    } else {
      PanelPlain(part, lanes, kRowsOfTile, 0, depth, panel);
    }
  }
}

// Columns that are neighbours in memory: whole rows of the source are read, 64 bytes go to each panel.
void ColPanelsAcross(const View& from, int64_t depth, int64_t panels, float* out, int64_t panel_stride) {
  constexpr int64_t kAhead = 8;  // rows may lie pages apart, which the hardware does not follow
  for (int64_t k = 0; k < depth; ++k) {
    const float* at = from.data + k * from.row_stride;
    const float* ahead = k + kAhead < depth ? at + kAhead * from.row_stride : at;
    for (int64_t p = 0; p < panels; ++p) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead + p * 16), _MM_HINT_T0);
      float* to = out + p * panel_stride + k * 16;
      _mm256_storeu_ps(to, _mm256_loadu_ps(at + p * 16));
      _mm256_storeu_ps(to + 8, _mm256_loadu_ps(at + p * 16 + 8));
    }
  }
}

// A panel of 16 columns from columns that are contiguous along k (B transposed).
void ColPanelAlongK(const View& from, int64_t depth, float* out) {
  int64_t k = 0;
  for (; k + 8 <= depth; k += 8) {
    for (int half = 0; half < 2; ++half) {
      __m256 v[8];
      for (int i = 0; i < 8; ++i) v[i] = _mm256_loadu_ps(from.data + (half * 8 + i) * from.col_stride + k);
      Transpose8x8(v);
      for (int i = 0; i < 8; ++i) _mm256_storeu_ps(out + (k + i) * 16 + half * 8, v[i]);
    }
  }
  PanelPlain({from.data, from.col_stride, 1}, 16, 16, k, depth, out);
}

void ColPanels(const View& from, int64_t depth, int64_t cols, float* out, int64_t panel_stride) {
  const int64_t whole = cols / kColsOfTile;
  if (from.col_stride == 1) {
    ColPanelsAcross(from, depth, whole, out, panel_stride);
  } else {
    for (int64_t p = 0; p < whole; ++p) {
      const View part{from.data + p * 16 * from.col_stride, from.row_stride, from.col_stride};
      if (from.row_stride == 1) {
        ColPanelAlongK(part, depth, out + p * panel_stride);
      } else {
        PanelPlain({part.data, part.col_stride, part.row_stride}, 16, 16, 0, depth, out + p * panel_stride);
      }
    }
  }
  if (const int64_t rest = cols % kColsOfTile; rest != 0) {
    const float* data = from.data + whole * 16 * from.col_stride;
    PanelPlain({data, from.col_stride, from.row_stride}, rest, 16, 0, depth, out + whole * panel_stride);
  }
}

// Codes are decoded block by block into a corner of the first cache, then packed like floats.
constexpr int64_t kBlockAlong = 64;   // of k
constexpr int64_t kBlockAcross = 96;  // rows or columns: a multiple of 6 and of 16
bool IsPlain(const FloatSource& s) { return s.stored == Stored::kF32 && s.scales.scale == nullptr; }

View ViewOf(const FloatSource& s, int64_t row, int64_t col) {
  return {static_cast<const float*>(s.data) + s.offset + row * s.row_stride + col * s.col_stride, s.row_stride,
          s.col_stride};
}

}  // namespace

void PackRowsAvx2(const FloatSource& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* out) {
  const int64_t panel_stride = kRowsOfTile * depth;
  if (IsPlain(a)) return RowPanels(ViewOf(a, row, k0), rows, depth, out, panel_stride);
  alignas(32) float block[kBlockAlong * kBlockAcross];
  for (int64_t r = 0; r < rows; r += kBlockAcross) {
    const int64_t some = rows - r < kBlockAcross ? rows - r : kBlockAcross;
    for (int64_t k = 0; k < depth; k += kBlockAlong) {
      const int64_t along = depth - k < kBlockAlong ? depth - k : kBlockAlong;
      const bool by_rows = DecodeBlockAvx2(a, row + r, some, k0 + k, along, block);
      const View view = by_rows ? View{block, along, 1} : View{block, 1, some};
      RowPanels(view, some, along, out + r * depth + k * kRowsOfTile, panel_stride);
    }
  }
}

void PackColsAvx2(const FloatSource& b, int64_t k0, int64_t depth, int64_t col, int64_t cols, float* out,
                  int64_t panel_stride) {
  if (IsPlain(b)) return ColPanels(ViewOf(b, k0, col), depth, cols, out, panel_stride);
  alignas(32) float block[kBlockAlong * kBlockAcross];
  for (int64_t n = 0; n < cols; n += kBlockAcross) {
    const int64_t some = cols - n < kBlockAcross ? cols - n : kBlockAcross;
    for (int64_t k = 0; k < depth; k += kBlockAlong) {
      const int64_t along = depth - k < kBlockAlong ? depth - k : kBlockAlong;
      const bool by_rows = DecodeBlockAvx2(b, k0 + k, along, col + n, some, block);
      const View view = by_rows ? View{block, some, 1} : View{block, 1, along};
      ColPanels(view, along, some, out + n / kColsOfTile * panel_stride + k * kColsOfTile, panel_stride);
    }
  }
}

}  // namespace octavo::kernels::internal
