#include <immintrin.h>

#include "octavo/kernels/pack_f32.h"

namespace octavo::kernels::internal {
namespace {

void DecodeHalves(const uint16_t* from, bool bf16, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m256 values =
        bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16)) : _mm256_cvtph_ps(codes);
    _mm256_storeu_ps(out + i, values);
  }
  for (; i < count; ++i) {
    const __m128i code = _mm_cvtsi32_si128(from[i]);
    const __m128 value = bf16 ? _mm_castsi128_ps(_mm_slli_epi32(code, 16)) : _mm_cvtph_ps(code);
    out[i] = _mm_cvtss_f32(value);
  }
}

void DecodeI8(const int8_t* from, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(out + i, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)));
  }
  for (; i < count; ++i) out[i] = from[i];
}

// fp8 through f16: shift the magnitude under an f16 exponent, convert (exact, subnormals too), multiply by a power of
// two. The few codes for which that does not hold (NaN, infinity) are looked up.
void DecodeBytes(const uint8_t* from, const CodeTable& table, int64_t count, float* out) {
  int64_t i = 0;
  if (table.has_half) {
    const __m128i shift = _mm_cvtsi32_si128(table.half_shift);
    const __m256 factor = _mm256_set1_ps(table.half_factor);
    const __m128i most = _mm_set1_epi8(static_cast<char>(table.special_from - 1));
    const __m128i special = _mm_set1_epi8(static_cast<char>(table.special_code));
    const bool has_special_code = table.special_code >= 0;
    const __m256i magnitude_bits = _mm256_set1_epi16(0x7f), sign_bit = _mm256_set1_epi16(INT16_MIN);
    for (; i + 16 <= count; i += 16) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
      const __m256i wide = _mm256_cvtepi8_epi16(codes);
      const __m256i magnitude = _mm256_sll_epi16(_mm256_and_si256(wide, magnitude_bits), shift);
      const __m256i half = _mm256_or_si256(magnitude, _mm256_and_si256(wide, sign_bit));
      _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), factor));
      _mm256_storeu_ps(out + i + 8, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), factor));
      __m128i odd = _mm_cmpgt_epi8(_mm_and_si128(codes, _mm_set1_epi8(0x7f)), most);
      if (has_special_code) odd = _mm_or_si128(odd, _mm_cmpeq_epi8(codes, special));
      int mask = _mm_movemask_epi8(odd);
      for (; mask != 0; mask &= mask - 1) {
        const int lane = __builtin_ctz(static_cast<unsigned>(mask));
        out[i + lane] = table.value[from[i + lane]];
      }
    }
  }
  for (; i < count; ++i) out[i] = table.value[from[i]];
}

void DecodeNibbles(const uint8_t* from, int64_t index, const CodeTable& table, int64_t count, float* out) {
  int64_t i = 0;
  if (index % 2 != 0 && count > 0) out[i++] = table.value[from[index / 2] >> 4];
  const uint8_t* bytes = from + (index + i) / 2;
  const __m256 low = _mm256_loadu_ps(table.value), high = _mm256_loadu_ps(table.value + 8);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  for (; i + 8 <= count; i += 8, bytes += 4) {
    int word;
    __builtin_memcpy(&word, bytes, 4);
    const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);  // permutes look at three bits only
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28));    // bit 3 as the sign: which table
    const __m256 values =
        _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, codes), _mm256_permutevar8x32_ps(high, codes), upper);
    _mm256_storeu_ps(out + i, values);
  }
  for (int half = 0; i < count; ++i, ++half) {
    out[i] = table.value[half % 2 == 0 ? bytes[half / 2] & 15 : bytes[half / 2] >> 4];
  }
}

float DecodeOne(const FloatSource& s, int64_t index) {
  float value;
  DecodeRunAvx2(s, index, 1, &value);
  return value;
}

// values[i] = (values[i] - zero) * scale along a run of columns starting at column `col` of row `row`.
void ScaleRun(const TileScales& s, int64_t row, int64_t col, int64_t count, float* values) {
  const int64_t row_at = (row + s.row0) / s.tile_rows * s.row_stride;
  int64_t i = 0;
  while (i < count) {
    const int64_t tile = (col + i + s.col0) / s.tile_cols;
    const int64_t tile_end = s.col_stride == 0 ? count : (tile + 1) * s.tile_cols - s.col0 - col;
    if (s.col_stride == 1 && s.tile_cols == 1) {  // a scale of its own for each column
      const float* scale = s.scale + row_at + tile;
      const float* zero = s.zero_point == nullptr ? nullptr : s.zero_point + row_at + tile;
      for (; i + 8 <= count; i += 8, scale += 8) {
        __m256 value = _mm256_loadu_ps(values + i);
        if (zero != nullptr) value = _mm256_sub_ps(value, _mm256_loadu_ps(zero)), zero += 8;
        _mm256_storeu_ps(values + i, _mm256_mul_ps(value, _mm256_loadu_ps(scale)));
      }
      for (; i < count; ++i, ++scale) {
        if (zero != nullptr) values[i] -= *zero++;
        values[i] *= *scale;
      }
      return;
    }
    const int64_t at = row_at + tile * s.col_stride;
    const int64_t end = tile_end < count ? tile_end : count;
    const __m256 scale = _mm256_set1_ps(s.scale[at]);
    const __m256 zero = _mm256_set1_ps(s.zero_point == nullptr ? 0.0f : s.zero_point[at]);
    for (; i + 8 <= end; i += 8) {
      __m256 value = _mm256_loadu_ps(values + i);
      if (s.zero_point != nullptr) value = _mm256_sub_ps(value, zero);
      _mm256_storeu_ps(values + i, _mm256_mul_ps(value, scale));
    }
    for (; i < end; ++i) {
      if (s.zero_point != nullptr) values[i] -= s.zero_point[at];
      values[i] *= s.scale[at];
    }
  }
}

}  // namespace

void DecodeRunAvx2(const FloatSource& s, int64_t index, int64_t count, float* out) {
  switch (s.stored) {
    case Stored::kF32: {
      const float* from = static_cast<const float*>(s.data) + index;
      for (int64_t i = 0; i < count; ++i) out[i] = from[i];
      return;
    }
    case Stored::kBF16:
    case Stored::kF16:
      return DecodeHalves(static_cast<const uint16_t*>(s.data) + index, s.stored == Stored::kBF16, count, out);
    case Stored::kI8:
      return DecodeI8(static_cast<const int8_t*>(s.data) + index, count, out);
    case Stored::kByte:
      return DecodeBytes(static_cast<const uint8_t*>(s.data) + index, *s.table, count, out);
    case Stored::kNibble:
      return DecodeNibbles(static_cast<const uint8_t*>(s.data), index, *s.table, count, out);
  }
}

bool DecodeBlockAvx2(const FloatSource& s, int64_t row, int64_t rows, int64_t col, int64_t cols, float* out) {
  const bool by_cols = s.col_stride != 1 && s.row_stride == 1;
  const FloatSource t = by_cols ? s.Transposed() : s;
  const int64_t r0 = by_cols ? col : row, c0 = by_cols ? row : col;
  const int64_t outer = by_cols ? cols : rows, inner = by_cols ? rows : cols;
  for (int64_t r = 0; r < outer; ++r) {
    float* run = out + r * inner;
    const int64_t index = t.offset + (r0 + r) * t.row_stride + c0 * t.col_stride;
    if (t.col_stride == 1) {
      DecodeRunAvx2(t, index, inner, run);
    } else {
      for (int64_t c = 0; c < inner; ++c) run[c] = DecodeOne(t, index + c * t.col_stride);
    }
    if (t.scales.scale != nullptr) ScaleRun(t.scales, r0 + r, c0, inner, run);
  }
  return !by_cols;
}

}  // namespace octavo::kernels::internal
