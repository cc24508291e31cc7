// The left operand of the integer products for VNNI: strips of 14 rows, four codes of K together, as they are; the
// constants of the rows on the way.
#include <cstring>

#include "octavo/kernels/int_block.h"
#include "octavo/kernels/transpose_avx512.h"

namespace octavo::kernels {
namespace {

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// The tile of one strip: where its elements go, and its sums.
struct Target {
  int64_t row, rows, k0, length;
  uint8_t* to;
  int32_t *row_add, *row_sum;
};

Target TargetOf(const MatrixView<const int8_t>& a, const StripsTarget& t, int64_t lines, int64_t strip, int64_t tile) {
  const int64_t row = strip * kStripRowsAvx512, rows = Least(kStripRowsAvx512, a.rows - row);
  const int64_t k0 = tile * t.tile_length, steps = t.units * lines, at = row * t.tiles + tile * rows;
  return {row,
          rows,
          k0,
          Least(t.tile_length, a.cols - k0),
          t.strips + (row * t.tiles + tile * rows) * steps * 4,
          t.row_add + at,
          t.row_sum == nullptr ? nullptr : t.row_sum + at};
}

void StoreSums(const Target& target, __m512i sums, int32_t offset) {
  const __mmask16 inside = FirstLanes(target.rows);
  _mm512_mask_storeu_epi32(target.row_add, inside, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-offset)));
  if (target.row_sum != nullptr) _mm512_mask_storeu_epi32(target.row_sum, inside, sums);
}

void PackAlongK(const MatrixView<const int8_t>& a, const Target& target, int64_t steps, int32_t offset) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums = _mm512_setzero_si512();
  const auto* from = reinterpret_cast<const uint8_t*>(a.data + target.row * a.row_stride + target.k0);
  PackElements(from, a.row_stride, target.rows, target.length, steps, target.to,
               [&](__m512i codes) { sums = _mm512_dpbusd_epi32(sums, ones, codes); });
  StoreSums(target, sums, offset);
}

// One row is in order already.
void PackOneRow(const MatrixView<const int8_t>& a, const Target& target, int64_t steps, int32_t offset) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums = _mm512_setzero_si512();
  const int8_t* from = a.data + target.row * a.row_stride + target.k0;
  const auto first_bytes = [](int64_t count) {
    return count >= 64 ? ~__mmask64{0} : count <= 0 ? __mmask64{0} : ~__mmask64{0} >> (64 - count);
  };
  for (int64_t k = 0; k < steps * 4; k += 64) {
    const __m512i codes = _mm512_maskz_loadu_epi8(first_bytes(target.length - k), from + k);
    _mm512_mask_storeu_epi8(target.to + k, first_bytes(steps * 4 - k), codes);
    sums = _mm512_dpbusd_epi32(sums, ones, codes);
  }
  const int32_t sum = _mm512_reduce_add_epi32(sums);
  target.row_add[0] = -offset * sum;
  if (target.row_sum != nullptr) target.row_sum[0] = sum;
}

// Rows that are neighbours in memory (a transposed): four steps of 16 rows to 16 elements.
void PackAcrossK(const MatrixView<const int8_t>& a, const Target& target, int64_t steps, int32_t offset) {
  const __m512i ones = _mm512_set1_epi8(1);
  const __mmask16 inside = FirstLanes(target.rows);
  __m512i sums = _mm512_setzero_si512();
  for (int64_t step = 0; step < steps; ++step) {
    const int8_t* from = a.data + (target.k0 + step * 4) * a.col_stride + target.row;
    __m128i k[4];
    for (int i = 0; i < 4; ++i) {
      const __mmask16 mask = step * 4 + i < target.length ? inside : static_cast<__mmask16>(0);
      k[i] = _mm_maskz_loadu_epi8(mask, from + i * a.col_stride);
      _mm_prefetch(reinterpret_cast<const char*>(from + (i + 32) * a.col_stride), _MM_HINT_T0);
    }
    const __m128i low01 = _mm_unpacklo_epi8(k[0], k[1]), high01 = _mm_unpackhi_epi8(k[0], k[1]);
    const __m128i low23 = _mm_unpacklo_epi8(k[2], k[3]), high23 = _mm_unpackhi_epi8(k[2], k[3]);
    __m512i codes = _mm512_castsi128_si512(_mm_unpacklo_epi16(low01, low23));
    codes = _mm512_inserti32x4(codes, _mm_unpackhi_epi16(low01, low23), 1);
    codes = _mm512_inserti32x4(codes, _mm_unpacklo_epi16(high01, high23), 2);
    codes = _mm512_inserti32x4(codes, _mm_unpackhi_epi16(high01, high23), 3);
    _mm512_mask_storeu_epi32(target.to + step * target.rows * 4, inside, codes);
    sums = _mm512_dpbusd_epi32(sums, ones, codes);
  }
  StoreSums(target, sums, offset);
}

void PackAnyhow(const MatrixView<const int8_t>& a, const Target& target, int64_t steps, int32_t offset) {
  for (int64_t r = 0; r < target.rows; ++r) {
    int32_t sum = 0;
    for (int64_t step = 0; step < steps; ++step) {
      int8_t codes[4];
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t k = step * 4 + i;
        codes[i] = k < target.length ? a.at(target.row + r, target.k0 + k) : int8_t{0};
        sum += codes[i];
      }
      std::memcpy(target.to + (step * target.rows + r) * 4, codes, 4);
    }
    target.row_add[r] = -offset * sum;
    if (target.row_sum != nullptr) target.row_sum[r] = sum;
  }
}

void PackStrips(const MatrixView<const int8_t>& a, const StripsTarget& t, int64_t lines, int32_t offset, int64_t begin,
                int64_t end) {
  const int64_t steps = t.units * lines;
  for (int64_t strip = begin; strip < end; ++strip) {
    for (int64_t tile = 0; tile < t.tiles; ++tile) {
      const Target target = TargetOf(a, t, lines, strip, tile);
      if (a.col_stride == 1 && target.rows == 1) {
        PackOneRow(a, target, steps, offset);
      } else if (a.col_stride == 1) {
        PackAlongK(a, target, steps, offset);
      } else if (a.row_stride == 1) {
        PackAcrossK(a, target, steps, offset);
      } else {
        PackAnyhow(a, target, steps, offset);
      }
    }
  }
}

}  // namespace

void PackStripsI8Avx512(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end) {
  PackStrips(a, target, 1, 128, begin, end);
}
void PackStripsU4Avx512(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end) {
  PackStrips(a, target, 2, 8, begin, end);
}

}  // namespace octavo::kernels
