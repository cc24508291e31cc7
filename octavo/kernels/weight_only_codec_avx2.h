// How each packing is decoded: `kSteps` consecutive k of one panel at a time, from `at`, into w[step][0 or 1] (columns
// 0 … 7 and 8 … 15), before zero points and scales. Included by the two units that decode panels, nowhere else.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/weight_only_view.h"

namespace octavo::kernels::internal {

struct CodecF32 {
  static constexpr int kSteps = 1, kBytes = 64;
  explicit CodecF32(const PackedView&) {}
  void Decode(const uint8_t* at, __m256 (&w)[1][2]) const {
    w[0][0] = _mm256_loadu_ps(reinterpret_cast<const float*>(at));
    w[0][1] = _mm256_loadu_ps(reinterpret_cast<const float*>(at) + 8);
  }
};

struct CodecBF16 {
  static constexpr int kSteps = 1, kBytes = 32;
  explicit CodecBF16(const PackedView&) {}
  void Decode(const uint8_t* at, __m256 (&w)[1][2]) const {
    const auto* halves = reinterpret_cast<const __m128i*>(at);
    for (int h = 0; h < 2; ++h) {
      const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(halves + h));
      w[0][h] = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
  }
};

struct CodecF16 {
  static constexpr int kSteps = 1, kBytes = 32;
  explicit CodecF16(const PackedView&) {}
  void Decode(const uint8_t* at, __m256 (&w)[1][2]) const {
    const auto* halves = reinterpret_cast<const __m128i*>(at);
    for (int h = 0; h < 2; ++h) w[0][h] = _mm256_cvtph_ps(_mm_loadu_si128(halves + h));
  }
};

struct CodecI8 {
  static constexpr int kSteps = 1, kBytes = 16;
  explicit CodecI8(const PackedView&) {}
  void Decode(const uint8_t* at, __m256 (&w)[1][2]) const {
    for (int h = 0; h < 2; ++h) {
      const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 8 * h));
      w[0][h] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    }
  }
};

struct CodecTableByte {
  static constexpr int kSteps = 1, kBytes = 16;
  explicit CodecTableByte(const PackedView& view) : values(view.table.value) {}
  void Decode(const uint8_t* at, __m256 (&w)[1][2]) const {
    alignas(32) float decoded[16];
    for (int i = 0; i < 16; ++i) decoded[i] = values[at[i]];
    w[0][0] = _mm256_load_ps(decoded);
    w[0][1] = _mm256_load_ps(decoded + 8);
  }
  const float* values;
};

// fp8 as f16: the code of the odd k is in the upper byte of each word already, that of the even k is moved there; then
// the magnitude slides down to its place under the f16 exponent.
struct CodecHalfByte {
  static constexpr int kSteps = 2, kBytes = 32;
  explicit CodecHalfByte(const PackedView& view)
      : slide(_mm_cvtsi32_si128(8 - view.table.half_shift)),
        keep(_mm256_set1_epi16(static_cast<int16_t>(0x8000 | 0x7f << view.table.half_shift))),
        factor(_mm256_set1_ps(view.table.half_factor)),
        has_factor(!view.has_scales) {}
  void Decode(const uint8_t* at, __m256 (&w)[2][2]) const {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i both[2] = {_mm256_slli_epi16(codes, 8), codes};
    for (int j = 0; j < 2; ++j) {
      const __m256i half = _mm256_and_si256(_mm256_sra_epi16(both[j], slide), keep);
      w[j][0] = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
      w[j][1] = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
      if (has_factor) w[j][0] = _mm256_mul_ps(w[j][0], factor), w[j][1] = _mm256_mul_ps(w[j][1], factor);
    }
  }
  __m128i slide;
  __m256i keep;
  __m256 factor;
  bool has_factor;
};

// Byte `byte` of the sixteen values, for vpshufb.
inline __m256i BytePlane(const CodeTable& table, int byte) {
  alignas(16) uint8_t plane[16];
  for (int c = 0; c < 16; ++c) {
    uint32_t bits;
    __builtin_memcpy(&bits, &table.value[c], 4);
    plane[c] = static_cast<uint8_t>(bits >> (8 * byte));
  }
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(plane)));
}

// Values that bf16 holds: two lookups give the upper two bytes of 32 floats.
struct CodecNibbleShort {
  static constexpr int kSteps = 4, kBytes = 32;
  explicit CodecNibbleShort(const PackedView& view)
      : low(BytePlane(view.table, 2)), high(BytePlane(view.table, 3)), nibble(_mm256_set1_epi8(15)) {}
  void Decode(const uint8_t* at, __m256 (&w)[4][2]) const {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i halves[2] = {_mm256_and_si256(codes, nibble), _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
    const __m256i upper_half = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000));
    for (int h = 0; h < 2; ++h) {
      const __m256i l = _mm256_shuffle_epi8(low, halves[h]), u = _mm256_shuffle_epi8(high, halves[h]);
      const __m256i words[2] = {_mm256_unpacklo_epi8(l, u), _mm256_unpackhi_epi8(l, u)};
      for (int q = 0; q < 2; ++q) {
        w[2 * q][h] = _mm256_castsi256_ps(_mm256_slli_epi32(words[q], 16));
        w[2 * q + 1][h] = _mm256_castsi256_ps(_mm256_and_si256(words[q], upper_half));
      }
    }
  }
  __m256i low, high, nibble;
};

// Any sixteen values: four lookups, one per byte.
struct CodecNibbleLong {
  static constexpr int kSteps = 4, kBytes = 32;
  explicit CodecNibbleLong(const PackedView& view) : nibble(_mm256_set1_epi8(15)) {
    for (int b = 0; b < 4; ++b) plane[b] = BytePlane(view.table, b);
  }
  void Decode(const uint8_t* at, __m256 (&w)[4][2]) const {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i halves[2] = {_mm256_and_si256(codes, nibble), _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
    for (int h = 0; h < 2; ++h) {
      const __m256i b0 = _mm256_shuffle_epi8(plane[0], halves[h]), b1 = _mm256_shuffle_epi8(plane[1], halves[h]);
      const __m256i b2 = _mm256_shuffle_epi8(plane[2], halves[h]), b3 = _mm256_shuffle_epi8(plane[3], halves[h]);
      const __m256i low_words[2] = {_mm256_unpacklo_epi8(b0, b1), _mm256_unpackhi_epi8(b0, b1)};
      const __m256i high_words[2] = {_mm256_unpacklo_epi8(b2, b3), _mm256_unpackhi_epi8(b2, b3)};
      for (int q = 0; q < 2; ++q) {
        w[2 * q][h] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(low_words[q], high_words[q]));
        w[2 * q + 1][h] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(low_words[q], high_words[q]));
      }
    }
  }
  __m256i plane[4], nibble;
};

// Scales or zero points of one group of one panel.
inline void LoadEntries(const PackedView& view, const void* entries, int64_t panel, int64_t group, __m256 (&out)[2]) {
  const int64_t at = (panel * view.groups + group) * kPanelCols;
  for (int h = 0; h < 2; ++h) {
    if (view.short_scales) {
      const auto* codes = static_cast<const uint16_t*>(entries) + at + 8 * h;
      const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
      out[h] = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    } else {
      out[h] = _mm256_loadu_ps(static_cast<const float*>(entries) + at + 8 * h);
    }
  }
}

// Calls work(codec) with the codec of the view's packing.
template <typename Work>
void WithCodec(const PackedView& view, Work work) {
  switch (view.packing) {
    case Packing::kF32:
      return work(CodecF32(view));
    case Packing::kBF16:
      return work(CodecBF16(view));
    case Packing::kF16:
      return work(CodecF16(view));
    case Packing::kI8:
      return work(CodecI8(view));
    case Packing::kHalfByte:
      return work(CodecHalfByte(view));
    case Packing::kTableByte:
      return work(CodecTableByte(view));
    case Packing::kNibbleShort:
      return work(CodecNibbleShort(view));
    case Packing::kNibbleLong:
      return work(CodecNibbleLong(view));
  }
}

}  // namespace octavo::kernels::internal
