// Packing of A and B into panels. Transposes happen here and nowhere else.
#include <immintrin.h>

#include "octavo/kernels/matmul_f32_tile.h"
#include "octavo/kernels/pack_f32.h"
#include "octavo/kernels/transpose_avx2.h"

namespace octavo::kernels::internal {
namespace {

// A view of f32 values with one unit stride, or with neither.
struct View {
  const float* data;
  int64_t row_stride, col_stride;
};

// Any strides, and edges: one element at a time into a panel `width` wide, zeros outside.
void PanelPlain(const View& from, int64_t lanes, int64_t width, int64_t k_begin, int64_t k_end, float* out) {
  for (int64_t k = k_begin; k < k_end; ++k) {
    for (int64_t i = 0; i < width; ++i) {
      out[k * width + i] = i < lanes ? from.data[i * from.row_stride + k * from.col_stride] : 0.0f;
    }
  }
}

// A panel of 6 rows from rows that are contiguous along k: six rows by eight k at a time, stored as 4 + 2 per k.
// `next` is the panel that will be packed after this one; its lines are fetched meanwhile.
void RowPanelAlongK(const View& from, int64_t depth, const float* next, float* out) {
  const int64_t stride = from.row_stride;
  int64_t k = 0;
  for (; k + 8 <= depth; k += 8) {
    if (next != nullptr && k % 16 == 0) {
      for (int i = 0; i < 6; ++i) _mm_prefetch(reinterpret_cast<const char*>(next + i * stride + k), _MM_HINT_T0);
    }
    const float* at = from.data + k;
    const __m256 r0 = _mm256_loadu_ps(at), r1 = _mm256_loadu_ps(at + stride);
    const __m256 r2 = _mm256_loadu_ps(at + 2 * stride), r3 = _mm256_loadu_ps(at + 3 * stride);
    const __m256 r4 = _mm256_loadu_ps(at + 4 * stride), r5 = _mm256_loadu_ps(at + 5 * stride);
    const __m256 a0 = _mm256_unpacklo_ps(r0, r1), a1 = _mm256_unpackhi_ps(r0, r1);
    const __m256 a2 = _mm256_unpacklo_ps(r2, r3), a3 = _mm256_unpackhi_ps(r2, r3);
    const __m256 pairs[2] = {_mm256_unpacklo_ps(r4, r5), _mm256_unpackhi_ps(r4, r5)};
    const __m256 quads[4] = {_mm256_shuffle_ps(a0, a2, 0x44), _mm256_shuffle_ps(a0, a2, 0xee),
                             _mm256_shuffle_ps(a1, a3, 0x44), _mm256_shuffle_ps(a1, a3, 0xee)};
    float* to = out + k * 6;
    for (int i = 0; i < 4; ++i) {
      const __m256 pair = pairs[i / 2];
      const __m128 low = _mm256_castps256_ps128(pair), high = _mm256_extractf128_ps(pair, 1);
      auto* to_low = reinterpret_cast<__m64*>(to + i * 6 + 4);
      auto* to_high = reinterpret_cast<__m64*>(to + (i + 4) * 6 + 4);
      _mm_storeu_ps(to + i * 6, _mm256_castps256_ps128(quads[i]));
      _mm_storeu_ps(to + (i + 4) * 6, _mm256_extractf128_ps(quads[i], 1));
      if (i % 2 == 0) {
        _mm_storel_pi(to_low, low);
        _mm_storel_pi(to_high, high);
      } else {
        _mm_storeh_pi(to_low, low);
        _mm_storeh_pi(to_high, high);
      }
    }
  }
  PanelPlain(from, 6, 6, k, depth, out);
}

constexpr int64_t kAhead = 8;  // rows may lie pages apart, which the hardware does not follow

// Panels of 6 rows where the rows are neighbours in memory (A transposed): whole stretches of the source are read.
void RowPanelsAcross(const View& from, int64_t panels, int64_t depth, float* out, int64_t panel_stride) {
  for (int64_t k = 0; k < depth; ++k) {
    const float* at = from.data + k * from.col_stride;
    const float* ahead = k + kAhead < depth ? at + kAhead * from.col_stride : at;
    for (int64_t i = 0; i < panels * 6; i += 16) _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T0);
    float* to = out + k * 6;
    for (int64_t p = 0; p < panels; ++p, at += 6, to += panel_stride) {
      _mm_storeu_ps(to, _mm_loadu_ps(at));
      _mm_storel_pi(reinterpret_cast<__m64*>(to + 4),
                    _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 4))));
    }
  }
}

void RowPanels(const View& from, int64_t rows, int64_t depth, float* out, int64_t panel_stride) {
  const int64_t whole = rows / kRowsOfTile;
  if (from.col_stride != 1 && from.row_stride == 1) {
    RowPanelsAcross(from, whole, depth, out, panel_stride);
  } else {
    for (int64_t p = 0; p < whole; ++p) {
      const View part{from.data + p * 6 * from.row_stride, from.row_stride, from.col_stride};
      if (from.col_stride == 1) {
        const float* next = p + 1 < whole ? part.data + 6 * from.row_stride : nullptr;
        RowPanelAlongK(part, depth, next, out + p * panel_stride);
      } else {
        PanelPlain(part, 6, 6, 0, depth, out + p * panel_stride);
      }
    }
  }
  if (const int64_t rest = rows % kRowsOfTile; rest != 0) {
    const View part{from.data + whole * 6 * from.row_stride, from.row_stride, from.col_stride};
    PanelPlain(part, rest, kRowsOfTile, 0, depth, out + whole * panel_stride);
  }
}

// Columns that are neighbours in memory: whole rows of the source are read, 64 bytes go to each panel.
void ColPanelsAcross(const View& from, int64_t depth, int64_t panels, float* out, int64_t panel_stride) {
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
