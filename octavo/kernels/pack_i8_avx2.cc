// Packing of int8 operands: pairs of K together for panels, quads of K widened to int16 for strips, with the cross sums
// of pack_i8.h on the way. One path per contiguous direction, a plain one for any other strides.
#include <immintrin.h>

#include <cstring>

#include "octavo/kernels/int_block.h"

namespace octavo::kernels {
namespace {

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// Sum of lanes 0, 2, 4, 6: the odd lanes of a cross product repeat the even ones.
int32_t SumEven(__m256i v) {
  const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return _mm_cvtsi128_si32(half) + _mm_extract_epi32(half, 2);
}

int32_t SumAll(__m256i v) {
  const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
  return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
}

// a0 a2 + a1 a3 of each quad of int16, twice.
__m256i CrossOfQuads(__m256i quads) { return _mm256_madd_epi16(quads, _mm256_shuffle_epi32(quads, 0xB1)); }

// 16 codes from `p`, of which `count` are inside; the rest 0.
__m128i LoadCodes(const int8_t* p, int64_t count) {
  if (count >= 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  alignas(16) int8_t codes[16] = {};
  if (count > 0) std::memcpy(codes, p, static_cast<size_t>(count));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(codes));
}

// 4 rows x 4 quads of int16 to 4 units of 4 rows.
void TransposeQuads(const __m256i row[4], __m256i unit[4]) {
  const __m256i a = _mm256_unpacklo_epi64(row[0], row[1]), b = _mm256_unpackhi_epi64(row[0], row[1]);
  const __m256i c = _mm256_unpacklo_epi64(row[2], row[3]), d = _mm256_unpackhi_epi64(row[2], row[3]);
  unit[0] = _mm256_permute2x128_si256(a, c, 0x20);
  unit[1] = _mm256_permute2x128_si256(b, d, 0x20);
  unit[2] = _mm256_permute2x128_si256(a, c, 0x31);
  unit[3] = _mm256_permute2x128_si256(b, d, 0x31);
}

// One tile of a strip whose rows are contiguous in K.
void PackRowsAlongK(const MatrixView<const int8_t>& a, int64_t k0, int64_t length, const StripsTarget& t, int64_t tile,
                    uint8_t* to) {
  const int rows = static_cast<int>(a.rows);
  __m256i cross[4] = {}, sums[4] = {};
  const __m256i ones = _mm256_set1_epi16(1);
  int64_t unit = 0;
  if (rows == kStripRowsI8) {
    for (; unit * 4 + 16 <= length; unit += 4) {
      __m256i row[4], out[4];
      for (int r = 0; r < 4; ++r) {
        const int8_t* from = a.data + r * a.row_stride + k0 + unit * 4;
        row[r] = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
        cross[r] = _mm256_add_epi32(cross[r], CrossOfQuads(row[r]));
        if (t.row_sum != nullptr) sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(row[r], ones));
      }
      TransposeQuads(row, out);
      for (int u = 0; u < 4; ++u) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (unit + u) * 32), out[u]);
    }
  }
  for (; unit < t.units; unit += 4) {  // the last steps, or a short strip
    __m256i row[4] = {};
    for (int r = 0; r < rows; ++r) {
      row[r] = _mm256_cvtepi8_epi16(LoadCodes(a.data + r * a.row_stride + k0 + unit * 4, length - unit * 4));
      cross[r] = _mm256_add_epi32(cross[r], CrossOfQuads(row[r]));
      if (t.row_sum != nullptr) sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(row[r], ones));
    }
    const int64_t count = Least(4, t.units - unit);
    for (int r = 0; r < rows; ++r) {
      alignas(32) uint8_t quads[32];
      _mm256_store_si256(reinterpret_cast<__m256i*>(quads), row[r]);
      for (int64_t u = 0; u < count; ++u) std::memcpy(to + ((unit + u) * rows + r) * 8, quads + u * 8, 8);
    }
  }
  for (int r = 0; r < rows; ++r) {
    t.row_add[tile * rows + r] = -SumEven(cross[r]);
    if (t.row_sum != nullptr) t.row_sum[tile * rows + r] = SumAll(sums[r]);
  }
}

// One tile of a strip, any strides.
void PackRowsAnyhow(const MatrixView<const int8_t>& a, int64_t k0, int64_t length, const StripsTarget& t, int64_t tile,
                    uint8_t* to) {
  for (int64_t r = 0; r < a.rows; ++r) {
    int32_t cross = 0, sum = 0;
    for (int64_t unit = 0; unit < t.units; ++unit) {
      int16_t quad[4];
      for (int64_t i = 0; i < 4; ++i) quad[i] = unit * 4 + i < length ? a.at(r, k0 + unit * 4 + i) : int8_t{0};
      std::memcpy(to + (unit * a.rows + r) * 8, quad, 8);
      cross += quad[0] * quad[2] + quad[1] * quad[3];
      sum += quad[0] + quad[1] + quad[2] + quad[3];
    }
    t.row_add[tile * a.rows + r] = -cross;
    if (t.row_sum != nullptr) t.row_sum[tile * a.rows + r] = sum;
  }
}

// [step][16 rows] bytes to 4 strips of [row][step] int16.
void TransposeSteps(const __m128i step[4], __m256i strip[4]) {
  const __m128i low01 = _mm_unpacklo_epi8(step[0], step[1]), high01 = _mm_unpackhi_epi8(step[0], step[1]);
  const __m128i low23 = _mm_unpacklo_epi8(step[2], step[3]), high23 = _mm_unpackhi_epi8(step[2], step[3]);
  strip[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi16(low01, low23));
  strip[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi16(low01, low23));
  strip[2] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi16(high01, high23));
  strip[3] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi16(high01, high23));
}

// 4 strips whose 16 rows are next to each other (a transposed operand): one load serves them all.
void PackRowsAcrossK(const MatrixView<const int8_t>& a, const StripsTarget& t, int64_t first) {
  const int64_t strip_bytes = t.tiles * t.units * kUnitRowBytes * kStripRowsI8;
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t tile = 0; tile < t.tiles; ++tile) {
    const int64_t k0 = tile * t.tile_length, length = Least(t.tile_length, a.cols - k0);
    uint8_t* to = t.strips + first * strip_bytes + tile * t.units * 32;
    __m256i cross[4] = {}, sums[4] = {};
    for (int64_t unit = 0; unit < t.units; ++unit) {
      __m128i step[4] = {};
      const int8_t* from = a.data + (k0 + unit * 4) * a.col_stride + first * kStripRowsI8;
      for (int64_t i = 0; i < Least(4, length - unit * 4); ++i) {
        step[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * a.col_stride));
      }
      __m256i quads[4];
      TransposeSteps(step, quads);
      for (int s = 0; s < 4; ++s) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + s * strip_bytes + unit * 32), quads[s]);
        cross[s] = _mm256_add_epi32(cross[s], CrossOfQuads(quads[s]));
        if (t.row_sum != nullptr) sums[s] = _mm256_add_epi32(sums[s], _mm256_madd_epi16(quads[s], ones));
      }
    }
    for (int s = 0; s < 4; ++s) {
      alignas(32) int32_t c[8], both[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(c), cross[s]);
      _mm256_store_si256(reinterpret_cast<__m256i*>(both), sums[s]);
      for (int r = 0; r < 4; ++r) {
        const int64_t at = ((first + s) * t.tiles + tile) * kStripRowsI8 + r;
        t.row_add[at] = -c[2 * r];
        if (t.row_sum != nullptr) t.row_sum[at] = both[2 * r] + both[2 * r + 1];
      }
    }
  }
}

// One strip of up to 4 rows, tile by tile.
void PackStrip(const MatrixView<const int8_t>& a, const StripsTarget& t, int64_t strip) {
  const int64_t row = strip * kStripRowsI8;
  const MatrixView<const int8_t> rows = {a.data + row * a.row_stride, Least(kStripRowsI8, a.rows - row), a.cols,
                                         a.row_stride, a.col_stride};
  StripsTarget one = t;
  one.row_add += row * t.tiles;
  if (one.row_sum != nullptr) one.row_sum += row * t.tiles;
  for (int64_t tile = 0; tile < t.tiles; ++tile) {
    const int64_t k0 = tile * t.tile_length, length = Least(t.tile_length, a.cols - k0);
    uint8_t* to = t.strips + t.tiles * t.units * kUnitRowBytes * row + tile * t.units * kUnitRowBytes * rows.rows;
    if (a.col_stride == 1) {
      PackRowsAlongK(rows, k0, length, one, tile, to);
    } else {
      PackRowsAnyhow(rows, k0, length, one, tile, to);
    }
  }
}

// ---- panels ----

// Running sums of one panel's 16 columns over a tile.
struct PanelSums {
  __m256i cross[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};

  // A line: [step 0-1 | step 2-3] x [columns 0-7 | 8-15], pairs of int8.
  void Take(const __m128i line[4], bool with_sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int half = 0; half < 2; ++half) {
      const __m256i low = _mm256_cvtepi8_epi16(line[half]), high = _mm256_cvtepi8_epi16(line[2 + half]);
      cross[half] = _mm256_add_epi32(cross[half], _mm256_madd_epi16(low, high));
      if (with_sums) {
        sums[half] = _mm256_add_epi32(sums[half], _mm256_madd_epi16(_mm256_add_epi16(low, high), ones));
      }
    }
  }
};

void StoreSums(const PanelSums& sums, const PanelsTarget& t, int64_t tile, int64_t panel) {
  const int64_t at = tile * t.padded + panel * kPanelColumns;
  const __m256i zero = _mm256_setzero_si256();
  for (int half = 0; half < 2; ++half) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.col_add + at + half * 8),
                        _mm256_sub_epi32(zero, sums.cross[half]));
    if (t.col_sums != nullptr) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.col_sums + at + half * 8), sums.sums[half]);
    }
  }
}

void StoreLine(int8_t* to, const __m128i line[4]) {
  for (int i = 0; i < 4; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), line[i]);
}

// Up to 4 neighbouring panels of a b that is contiguous along N: whole cache lines of each row are used.
void PackPanelsAlongN(const MatrixView<const int8_t>& b, const PanelsTarget& t, int64_t begin, int64_t end) {
  const int count = static_cast<int>(end - begin);
  const bool whole = end * kPanelColumns <= b.cols;
  for (int64_t tile = 0; tile < t.tiles; ++tile) {
    const int64_t k0 = tile * t.tile_length, length = Least(t.tile_length, b.rows - k0);
    PanelSums sums[4];
    int64_t unit = 0;
    for (; whole && unit * 4 + 4 <= length; ++unit) {
      const int8_t* from = b.data + (k0 + unit * 4) * b.row_stride + begin * kPanelColumns;
      for (int p = 0; p < count; ++p, from += kPanelColumns) {
        __m128i row[4];
        for (int i = 0; i < 4; ++i) row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * b.row_stride));
        const __m128i line[4] = {_mm_unpacklo_epi8(row[0], row[1]), _mm_unpackhi_epi8(row[0], row[1]),
                                 _mm_unpacklo_epi8(row[2], row[3]), _mm_unpackhi_epi8(row[2], row[3])};
        StoreLine(t.data + (((begin + p) * t.tiles + tile) * t.units + unit) * kLineBytes, line);
        sums[p].Take(line, t.col_sums != nullptr);
      }
    }
    for (; unit < t.units; ++unit) {  // the last steps, or panels at the edge
      const int64_t inside = Least(4, length - unit * 4);
      for (int p = 0; p < count; ++p) {
        const int64_t n = (begin + p) * kPanelColumns;
        __m128i row[4] = {};
        for (int64_t i = 0; i < inside; ++i) {
          row[i] = LoadCodes(b.data + (k0 + unit * 4 + i) * b.row_stride + n, b.cols - n);
        }
        const __m128i line[4] = {_mm_unpacklo_epi8(row[0], row[1]), _mm_unpackhi_epi8(row[0], row[1]),
                                 _mm_unpacklo_epi8(row[2], row[3]), _mm_unpackhi_epi8(row[2], row[3])};
        StoreLine(t.data + (((begin + p) * t.tiles + tile) * t.units + unit) * kLineBytes, line);
        sums[p].Take(line, t.col_sums != nullptr);
      }
    }
    for (int p = 0; p < count; ++p) StoreSums(sums[p], t, tile, begin + p);
  }
}

// 8 columns x 8 pairs of K to 8 pairs x 8 columns.
void TransposePairs(__m128i v[8]) {
  __m128i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm_unpacklo_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 1] = _mm_unpackhi_epi32(a[4 * i], a[4 * i + 2]);
    b[4 * i + 2] = _mm_unpacklo_epi32(a[4 * i + 1], a[4 * i + 3]);
    b[4 * i + 3] = _mm_unpackhi_epi32(a[4 * i + 1], a[4 * i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm_unpacklo_epi64(b[i], b[4 + i]);
    v[2 * i + 1] = _mm_unpackhi_epi64(b[i], b[4 + i]);
  }
}

// One panel of a b that is contiguous along K (a transposed weight).
void PackPanelAlongK(const MatrixView<const int8_t>& b, const PanelsTarget& t, int64_t panel) {
  const int64_t n = panel * kPanelColumns, columns = Least(kPanelColumns, b.cols - n);
  for (int64_t tile = 0; tile < t.tiles; ++tile) {
    const int64_t k0 = tile * t.tile_length, length = Least(t.tile_length, b.rows - k0);
    PanelSums sums;
    for (int64_t unit = 0; unit < t.units; unit += 4) {
      __m128i pairs[2][8];
      for (int c = 0; c < kPanelColumns; ++c) {
        pairs[c / 8][c % 8] = c < columns
                                  ? LoadCodes(b.data + k0 + unit * 4 + (n + c) * b.col_stride, length - unit * 4)
                                  : _mm_setzero_si128();
      }
      TransposePairs(pairs[0]);
      TransposePairs(pairs[1]);
      int8_t* to = t.data + ((panel * t.tiles + tile) * t.units + unit) * kLineBytes;
      for (int64_t u = 0; u < Least(4, t.units - unit); ++u) {
        const __m128i line[4] = {pairs[0][2 * u], pairs[1][2 * u], pairs[0][2 * u + 1], pairs[1][2 * u + 1]};
        StoreLine(to + u * kLineBytes, line);
        sums.Take(line, t.col_sums != nullptr);
      }
    }
    StoreSums(sums, t, tile, panel);
  }
}

}  // namespace

void PackStripsI8Avx2(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end) {
  const bool across = a.row_stride == 1 && a.col_stride != 1;
  for (int64_t strip = begin; strip < end;) {
    if (across && strip + 4 <= end && (strip + 4) * kStripRowsI8 <= a.rows) {
      PackRowsAcrossK(a, target, strip);
      strip += 4;
    } else {
      PackStrip(a, target, strip++);
    }
  }
}

void PackPanelsI8Avx2(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end) {
  if (b.col_stride == 1) {
    for (int64_t panel = begin; panel < end; panel += 4) PackPanelsAlongN(b, target, panel, Least(panel + 4, end));
  } else if (b.row_stride == 1) {
    for (int64_t panel = begin; panel < end; ++panel) PackPanelAlongK(b, target, panel);
  } else {
    PackPanelsI8Reference(b, target, begin, end);
  }
}

}  // namespace octavo::kernels
