// The operands of the integer products for AMX. A left block is rows of consecutive steps: copied from rows that are
// contiguous along K, transposed from a transposed operand. A right block is lines of 16 columns x 4 steps: interleaved
// from rows of columns, transposed from a transposed operand.
#include "octavo/kernels/int_block.h"
#include "octavo/kernels/transpose_avx512.h"

namespace octavo::kernels {
namespace {

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

constexpr int kTogether = 4;  // strips or panels that share the cache lines of a matrix contiguous across K

// Four steps of 64 rows (or columns), a register each, to quads: to[i] has the four steps of rows 16 i … 16 i + 15.
inline void Interleave(const __m512i (&step)[4], __m512i (&to)[kTogether]) {
  const __m512i low01 = _mm512_unpacklo_epi8(step[0], step[1]), high01 = _mm512_unpackhi_epi8(step[0], step[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(step[2], step[3]), high23 = _mm512_unpackhi_epi8(step[2], step[3]);
  // quads[j]: rows 4 j … 4 j + 3 of each sixteen.
  const __m512i quads[4] = {_mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
                            _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
  const __m512i a = _mm512_shuffle_i32x4(quads[0], quads[1], 0x44), b = _mm512_shuffle_i32x4(quads[2], quads[3], 0x44);
  const __m512i c = _mm512_shuffle_i32x4(quads[0], quads[1], 0xEE), d = _mm512_shuffle_i32x4(quads[2], quads[3], 0xEE);
  to[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  to[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
  to[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  to[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
}

// Four steps from `from`, of which `left` are inside; `inside` says which of the 64 bytes of a step are.
inline void LoadSteps(const int8_t* from, int64_t stride, int64_t left, __mmask64 inside, __m512i (&step)[4]) {
  for (int i = 0; i < 4; ++i) {
    step[i] = i < left ? _mm512_maskz_loadu_epi8(inside, from + i * stride) : _mm512_setzero_si512();
  }
}

// One tile of K of some strips or panels: `begin` … `end` of them, each `bytes` from the next in memory.
struct TileOfK {
  int64_t k0, length;  // in the operand
  AmxCut cut;
  uint8_t* to;  // of the first strip or panel
  int64_t bytes;
};

// ---- strips ----

// Rows that are contiguous along K: one strip.
void CopyRows(const MatrixView<const int8_t>& a, int64_t row, const TileOfK& tile, int32_t* row_sum) {
  const __m512i ones = _mm512_set1_epi8(1);
  const int64_t rows = Least(kStripRowsAmx, a.rows - row), width = tile.cut.row_bytes();
  const __mmask64 whole = FirstBytes(width);
  for (int64_t block = 0; block < tile.cut.blocks; ++block) {
    uint8_t* to = tile.to + block * tile.cut.block_bytes();
    const __mmask64 inside = FirstBytes(Least(width, tile.length - block * width));
    const int8_t* from = a.data + row * a.row_stride + tile.k0 + block * width;
    for (int64_t r = 0; r < kStripRowsAmx; ++r) {
      const __m512i codes =
          r < rows ? _mm512_maskz_loadu_epi8(inside, from + r * a.row_stride) : _mm512_setzero_si512();
      _mm512_mask_storeu_epi8(to + r * width, whole, codes);
      if (row_sum == nullptr) continue;
      const int32_t sum = _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, codes));
      row_sum[r] = (block == 0 ? 0 : row_sum[r]) + sum;
    }
  }
}

// Rows that are neighbours in memory (a transposed): up to four strips, whose row sums are `sum_step` apart.
void TurnRows(const MatrixView<const int8_t>& a, int64_t row, int64_t strips, const TileOfK& tile, int32_t* row_sum,
              int64_t sum_step) {
  const __m512i ones = _mm512_set1_epi8(1);
  const __mmask64 inside = FirstBytes(a.rows - row), whole = FirstBytes(tile.cut.row_bytes());
  __m512i sums[kTogether] = {};
  for (int64_t block = 0; block < tile.cut.blocks; ++block) {
    __m512i quads[kTogether][16];
    for (int64_t line = 0; line < 16; ++line) {
      const int64_t k = (block * tile.cut.lines + line) * 4;
      __m512i step[4], four[kTogether];
      const int64_t left = line < tile.cut.lines ? tile.length - k : 0;
      LoadSteps(a.data + (tile.k0 + k) * a.col_stride + row, a.col_stride, left, inside, step);
      Interleave(step, four);
      for (int s = 0; s < kTogether; ++s) {
        quads[s][line] = four[s];
        if (row_sum != nullptr) sums[s] = _mm512_dpbusd_epi32(sums[s], ones, four[s]);
      }
    }
    for (int64_t s = 0; s < strips; ++s) {
      Transpose16x16(quads[s]);
      uint8_t* to = tile.to + s * tile.bytes + block * tile.cut.block_bytes();
      for (int r = 0; r < 16; ++r) _mm512_mask_storeu_epi8(to + r * tile.cut.row_bytes(), whole, quads[s][r]);
    }
  }
  if (row_sum == nullptr) return;
  for (int64_t s = 0; s < strips; ++s) _mm512_storeu_si512(row_sum + s * sum_step, sums[s]);
}

// Any strides.
void GatherRows(const MatrixView<const int8_t>& a, int64_t row, const TileOfK& tile, int32_t* row_sum) {
  const int64_t width = tile.cut.row_bytes();
  for (int64_t r = 0; r < kStripRowsAmx; ++r) {
    int32_t sum = 0;
    for (int64_t k = 0; k < tile.cut.blocks * width; ++k) {
      const int8_t code = row + r < a.rows && k < tile.length ? a.at(row + r, tile.k0 + k) : int8_t{0};
      tile.to[k / width * tile.cut.block_bytes() + r * width + k % width] = static_cast<uint8_t>(code);
      sum += code;
    }
    if (row_sum != nullptr) row_sum[r] = sum;
  }
}

void PackStrips(const MatrixView<const int8_t>& a, const StripsTarget& t, int64_t lines, int64_t begin, int64_t end) {
  const AmxCut cut = CutAmx(t.units * lines);
  const int64_t strip_bytes = t.tiles * cut.tile_bytes(), sums = t.tiles * kStripRowsAmx;
  const bool turned = a.row_stride == 1 && a.col_stride != 1;
  const int64_t run = turned ? kTogether : 1;
  for (int64_t strip = begin; strip < end; strip += run) {
    for (int64_t tile = 0; tile < t.tiles; ++tile) {
      const int64_t k0 = tile * t.tile_length, row = strip * kStripRowsAmx;
      const TileOfK one{k0, Least(t.tile_length, a.cols - k0), cut,
                        t.strips + strip * strip_bytes + tile * cut.tile_bytes(), strip_bytes};
      int32_t* row_sum = t.row_sum == nullptr ? nullptr : t.row_sum + strip * sums + tile * kStripRowsAmx;
      if (turned) {
        TurnRows(a, row, Least(run, end - strip), one, row_sum, sums);
      } else if (a.col_stride == 1) {
        CopyRows(a, row, one, row_sum);
      } else {
        GatherRows(a, row, one, row_sum);
      }
    }
  }
}

// ---- panels ----

// Columns that are neighbours in memory: up to four panels. sums[p] gets the column sums.
void InterleaveColumns(const MatrixView<const int8_t>& b, int64_t n, int64_t panels, const TileOfK& tile,
                       __m512i (&sums)[kTogether]) {
  const __m512i ones = _mm512_set1_epi8(1);
  const __mmask64 inside = FirstBytes(b.cols - n);
  const int64_t lines = (tile.length + 3) / 4;
  for (int64_t line = 0; line < lines; ++line) {
    __m512i step[4], four[kTogether];
    const int8_t* from = b.data + (tile.k0 + line * 4) * b.row_stride + n;
    LoadSteps(from, b.row_stride, tile.length - line * 4, inside, step);
    Interleave(step, four);
    for (int64_t p = 0; p < panels; ++p) {
      _mm512_storeu_si512(tile.to + p * tile.bytes + line * kLineBytes, four[p]);
      sums[p] = _mm512_dpbusd_epi32(sums[p], ones, four[p]);
    }
  }
}

// Columns that are contiguous along K (a transposed weight): one panel.
void TurnColumns(const MatrixView<const int8_t>& b, int64_t n, const TileOfK& tile, __m512i& sums) {
  const __m512i ones = _mm512_set1_epi8(1);
  const int64_t columns = Least(kPanelColumns, b.cols - n), lines = (tile.length + 3) / 4;
  for (int64_t line = 0; line < lines; line += 16) {
    const __mmask64 inside = FirstBytes(tile.length - line * 4);
    const int8_t* from = b.data + tile.k0 + line * 4 + n * b.col_stride;
    __m512i v[16];
    for (int c = 0; c < 16; ++c) {
      v[c] = c < columns ? _mm512_maskz_loadu_epi8(inside, from + c * b.col_stride) : _mm512_setzero_si512();
    }
    Transpose16x16(v);
    for (int64_t i = 0; i < Least(16, lines - line); ++i) {
      _mm512_storeu_si512(tile.to + (line + i) * kLineBytes, v[i]);
      sums = _mm512_dpbusd_epi32(sums, ones, v[i]);
    }
  }
}

void GatherColumns(const MatrixView<const int8_t>& b, int64_t n, const TileOfK& tile, __m512i& sums) {
  alignas(64) int32_t sum[kPanelColumns] = {};
  for (int64_t k = 0; k < (tile.length + 3) / 4 * 4; ++k) {
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      const int8_t code = k < tile.length && n + c < b.cols ? b.at(tile.k0 + k, n + c) : int8_t{0};
      tile.to[k / 4 * kLineBytes + c * 4 + k % 4] = static_cast<uint8_t>(code);
      sum[c] += code;
    }
  }
  sums = _mm512_load_si512(sum);
}

}  // namespace

void PackStripsI8Amx(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end) {
  PackStrips(a, target, 1, begin, end);
}
void PackStripsU4Amx(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end) {
  PackStrips(a, target, 2, begin, end);
}

void PackPanelsI8Amx(const MatrixView<const int8_t>& b, const PanelsTarget& t, int64_t begin, int64_t end) {
  const AmxCut cut = CutAmx(t.units);
  const int64_t panel_bytes = t.tiles * cut.tile_bytes();
  const bool beside = b.col_stride == 1;
  const int64_t run = beside ? kTogether : 1;
  for (int64_t panel = begin; panel < end; panel += run) {
    const int64_t panels = Least(run, end - panel), n = panel * kPanelColumns;
    for (int64_t tile = 0; tile < t.tiles; ++tile) {
      const int64_t k0 = tile * t.tile_length;
      const TileOfK one{k0, Least(t.tile_length, b.rows - k0), cut,
                        reinterpret_cast<uint8_t*>(t.data) + panel * panel_bytes + tile * cut.tile_bytes(),
                        panel_bytes};
      __m512i sums[kTogether] = {};
      if (beside) {
        InterleaveColumns(b, n, panels, one, sums);
      } else if (b.row_stride == 1) {
        TurnColumns(b, n, one, sums[0]);
      } else {
        GatherColumns(b, n, one, sums[0]);
      }
      if (t.col_sums == nullptr) continue;
      for (int64_t p = 0; p < panels; ++p) {
        _mm512_storeu_si512(t.col_sums + tile * t.padded + (panel + p) * kPanelColumns, sums[p]);
      }
    }
  }
}

}  // namespace octavo::kernels
