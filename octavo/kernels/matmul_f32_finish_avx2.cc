// The end of an f32 product: scales, bias, accumulation, rounding to the stored type.
#include <immintrin.h>

#include <cstring>

#include "octavo/kernels/matmul_f32_tile.h"

namespace octavo::kernels::internal {
namespace {

// bf16 with one rounding to nearest even; NaN becomes the quiet NaN of its sign.
inline __m128i ToBF16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet =
      _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN)), _mm256_set1_epi32(0x7fc00000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m256i packed = _mm256_packus_epi32(high, high);
  return _mm_unpacklo_epi64(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
}

inline __m256 LoadC(const FinishF32& f, int64_t at) {
  if (f.stored == Stored::kF32) return _mm256_loadu_ps(static_cast<const float*>(f.c) + at);
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(f.c) + at));
  if (f.stored == Stored::kF16) return _mm256_cvtph_ps(half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

inline void StoreC(const FinishF32& f, int64_t at, __m256 value) {
  if (f.stored == Stored::kF32) {
    _mm256_storeu_ps(static_cast<float*>(f.c) + at, value);
    return;
  }
  const __m128i half = f.stored == Stored::kBF16 ? ToBF16(value) : _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<uint16_t*>(f.c) + at), half);
}

inline __m256 LoadVector(const float* data, int64_t stride, int64_t at) {
  if (stride == 0) return _mm256_set1_ps(*data);
  if (stride == 1) return _mm256_loadu_ps(data + at);
  alignas(32) float values[8];
  for (int i = 0; i < 8; ++i) values[i] = data[(at + i) * stride];
  return _mm256_load_ps(values);
}

inline __m256 Finished(const FinishF32& f, __m256 sum, int64_t row, int64_t col) {
  if (f.row_scale != nullptr) sum = _mm256_mul_ps(sum, _mm256_set1_ps(f.row_scale[row * f.row_scale_stride]));
  if (f.col_scale != nullptr) sum = _mm256_mul_ps(sum, LoadVector(f.col_scale, f.col_scale_stride, col));
  if (f.bias != nullptr) sum = _mm256_add_ps(sum, LoadVector(f.bias, f.bias_stride, col));
  if (f.accumulate) sum = _mm256_add_ps(LoadC(f, row * f.row_stride + col), sum);
  return sum;
}

// Fewer than 8 columns, or columns that are not neighbours: through a copy of 8.
void FinishFew(const FinishF32& f, const float* sums, int64_t row, int64_t col, int64_t count) {
  alignas(32) float padded[8] = {}, scale[8] = {}, bias[8] = {};
  alignas(32) char c[32] = {};
  const int64_t bytes = f.stored == Stored::kF32 ? 4 : 2;
  char* first = static_cast<char*>(f.c) + (row * f.row_stride + col * f.col_stride) * bytes;
  for (int64_t i = 0; i < count; ++i) {
    padded[i] = sums[i];
    if (f.col_scale != nullptr) scale[i] = f.col_scale[(col + i) * f.col_scale_stride];
    if (f.bias != nullptr) bias[i] = f.bias[(col + i) * f.bias_stride];
    if (f.accumulate) std::memcpy(c + i * bytes, first + i * f.col_stride * bytes, static_cast<size_t>(bytes));
  }
  FinishF32 few = f;
  few.c = c;
  few.row_stride = 0, few.col_stride = 1;
  few.col_scale_stride = few.bias_stride = 1;
  few.col_scale = f.col_scale == nullptr ? nullptr : scale;
  few.bias = f.bias == nullptr ? nullptr : bias;
  if (f.row_scale != nullptr) few.row_scale = f.row_scale + row * f.row_scale_stride;
  StoreC(few, 0, Finished(few, _mm256_load_ps(padded), 0, 0));
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(first + i * f.col_stride * bytes, c + i * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace

void FinishAvx2(const FinishF32& finish, const float* sums, int64_t sums_stride, int64_t rows, int64_t cols) {
  const bool neighbours = finish.col_stride == 1;
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = sums + r * sums_stride;
    int64_t n = 0;
    for (; neighbours && n + 8 <= cols; n += 8) {
      const __m256 value = Finished(finish, _mm256_loadu_ps(from + n), r, n);
      StoreC(finish, r * finish.row_stride + n, value);
    }
    for (; n < cols; n += 8) FinishFew(finish, from + n, r, n, cols - n < 8 ? cols - n : 8);
  }
}

}  // namespace octavo::kernels::internal
