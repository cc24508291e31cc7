// How each packing is decoded: one block (one k of a panel) at a time, eight columns after the other, before zero
// points and scales. use(v, w) gets columns 8 v … 8 v + 7; v is a compile-time constant. One vector is finished before
// the next is begun, so that few registers are in use and the sums stay in theirs. Included by the units that decode
// panels, nowhere else.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/weight_only_codec.h"

namespace octavo::kernels::internal {

inline const __m256i* Vectors(const uint8_t* at) { return reinterpret_cast<const __m256i*>(at); }
inline const __m128i* Halves(const uint8_t* at) { return reinterpret_cast<const __m128i*>(at); }

struct CodecF32 {
  static constexpr Packing kPacking = Packing::kF32;
  explicit CodecF32(const PackedView&) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    use(Constant<0>(), Constant<0>(), _mm256_loadu_ps(reinterpret_cast<const float*>(at)));
    use(Constant<0>(), Constant<1>(), _mm256_loadu_ps(reinterpret_cast<const float*>(at) + 8));
  }
};

struct CodecBF16 {
  static constexpr Packing kPacking = Packing::kBF16;
  explicit CodecBF16(const PackedView&) {}
  static __m256 Wide(__m128i codes) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16)); }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    use(Constant<0>(), Constant<0>(), Wide(_mm_loadu_si128(Halves(at))));
    use(Constant<0>(), Constant<1>(), Wide(_mm_loadu_si128(Halves(at) + 1)));
  }
};

struct CodecF16 {
  static constexpr Packing kPacking = Packing::kF16;
  explicit CodecF16(const PackedView&) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    use(Constant<0>(), Constant<0>(), _mm256_cvtph_ps(_mm_loadu_si128(Halves(at))));
    use(Constant<0>(), Constant<1>(), _mm256_cvtph_ps(_mm_loadu_si128(Halves(at) + 1)));
  }
};

struct CodecTableByte {
  static constexpr Packing kPacking = Packing::kTableByte;
  explicit CodecTableByte(const PackedView& view) : values(view.table.value) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    alignas(32) float decoded[16];
    for (int i = 0; i < 16; ++i) decoded[i] = values[at[i]];
    use(Constant<0>(), Constant<0>(), _mm256_load_ps(decoded));
    use(Constant<0>(), Constant<1>(), _mm256_load_ps(decoded + 8));
  }
  const float* values;
};

// fp8 as f16: the upper byte of each word is in place already, the lower one is moved there; then the magnitude slides
// down to its place under the f16 exponent. The words go through memory: vcvtph2ps from memory needs no shuffle, and
// the pipe that shuffles is the one that is short here.
template <int kSlide>
struct CodecHalfByte {
  static constexpr Packing kPacking = Packing::kHalfByte;
  static constexpr int kPlaces = kSlide;
  explicit CodecHalfByte(const PackedView& view)
      : keep(_mm256_set1_epi16(static_cast<int16_t>(0x8000 | 0x7f << (8 - kSlide)))),
        factor(_mm256_set1_ps(view.table.half_factor)),
        has_factor(!view.has_scales) {}
  __m256 Float(const __m128i& half) const {
    __m256 value;
    asm("vcvtph2ps %1, %0" : "=x"(value) : "m"(half));
    return has_factor ? _mm256_mul_ps(value, factor) : value;
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m256i codes = _mm256_loadu_si256(Vectors(at));
    alignas(32) __m128i half[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(half),
                       _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), kSlide), keep));
    _mm256_store_si256(reinterpret_cast<__m256i*>(half + 2), _mm256_and_si256(_mm256_srai_epi16(codes, kSlide), keep));
    use(Constant<0>(), Constant<0>(), Float(half[0]));
    use(Constant<0>(), Constant<1>(), Float(half[1]));
    use(Constant<0>(), Constant<2>(), Float(half[2]));
    use(Constant<0>(), Constant<3>(), Float(half[3]));
  }
  __m256i keep;
  __m256 factor;
  bool has_factor;
};

// Codes of the offset packings come out as whole numbers times kFactor to the power of v: they are masked in the place
// where they are, not shifted down, since shifts share a pipe with the multiplies. The scales make up for it.
struct alignas(32) LoopConstants {
  __m256i mask[4];  // of columns 8 v … 8 v + 7
  __m256i nibble, table;
};

struct CodecOffsetByte {
  static constexpr Packing kPacking = Packing::kOffsetByte;
  static constexpr float kFactor = 256;
  explicit CodecOffsetByte(const PackedView&) {
    for (int v = 0; v < 4; ++v) constants.mask[v] = _mm256_set1_epi32(static_cast<int32_t>(0xffu << (8 * v)));
  }
  template <int kStep, typename Use>
  OCTAVO_INLINE void Bytes(__m256i bytes, const Use& use) const {
    use(Constant<kStep>(), Constant<0>(), _mm256_cvtepi32_ps(_mm256_and_si256(bytes, constants.mask[0])));
    use(Constant<kStep>(), Constant<1>(), _mm256_cvtepi32_ps(_mm256_and_si256(bytes, constants.mask[1])));
    use(Constant<kStep>(), Constant<2>(), _mm256_cvtepi32_ps(_mm256_and_si256(bytes, constants.mask[2])));
    use(Constant<kStep>(), Constant<3>(), _mm256_cvtepi32_ps(_mm256_and_si256(bytes, constants.mask[3])));
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    Bytes<0>(_mm256_loadu_si256(Vectors(at)), use);
  }
  LoopConstants constants{};
};

struct CodecOffsetNibble {
  static constexpr Packing kPacking = Packing::kOffsetNibble;
  static constexpr float kFactor = 16;
  explicit CodecOffsetNibble(const PackedView&) {
    for (int v = 0; v < 4; ++v) constants.mask[v] = _mm256_set1_epi32(0xf << (4 * v));
  }
  template <int kStep, typename Use>
  OCTAVO_INLINE void Nibbles(__m256i codes, const Use& use) const {
    use(Constant<kStep>(), Constant<0>(), _mm256_cvtepi32_ps(_mm256_and_si256(codes, constants.mask[0])));
    use(Constant<kStep>(), Constant<1>(), _mm256_cvtepi32_ps(_mm256_and_si256(codes, constants.mask[1])));
    use(Constant<kStep>(), Constant<2>(), _mm256_cvtepi32_ps(_mm256_and_si256(codes, constants.mask[2])));
    use(Constant<kStep>(), Constant<3>(), _mm256_cvtepi32_ps(_mm256_and_si256(codes, constants.mask[3])));
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m256i codes = _mm256_loadu_si256(Vectors(at));
    Nibbles<0>(codes, use);
    Nibbles<1>(_mm256_srli_epi32(codes, 16), use);
  }
  LoopConstants constants{};
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

struct CodecOffsetLookup : CodecOffsetByte {
  static constexpr Packing kPacking = Packing::kOffsetLookup;
  explicit CodecOffsetLookup(const PackedView& view) : CodecOffsetByte(view) {
    alignas(16) uint8_t small[16];
    for (int c = 0; c < 16; ++c) small[c] = static_cast<uint8_t>(view.table.value[c]);
    constants.table = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(small)));
    constants.nibble = _mm256_set1_epi8(15);
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m256i codes = _mm256_loadu_si256(Vectors(at)), nibble = constants.nibble;
    Bytes<0>(_mm256_shuffle_epi8(constants.table, _mm256_and_si256(codes, nibble)), use);
    Bytes<1>(_mm256_shuffle_epi8(constants.table, _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)), use);
  }
};

// Any sixteen values: four lookups, one per byte.
struct CodecNibbleTable {
  static constexpr Packing kPacking = Packing::kNibbleTable;
  explicit CodecNibbleTable(const PackedView& view) : nibble(_mm256_set1_epi8(15)) {
    for (int b = 0; b < 4; ++b) plane[b] = BytePlane(view.table, b);
  }
  template <int kFirst, typename Use>
  OCTAVO_INLINE void Words(__m256i low, __m256i high, const Use& use) const {
    use(Constant<0>(), Constant<kFirst>(), _mm256_castsi256_ps(_mm256_unpacklo_epi16(low, high)));
    use(Constant<0>(), Constant<kFirst + 1>(), _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, high)));
  }
  template <int kFirst, typename Use>
  OCTAVO_INLINE void Codes(__m256i codes, const Use& use) const {
    const __m256i b0 = _mm256_shuffle_epi8(plane[0], codes), b1 = _mm256_shuffle_epi8(plane[1], codes);
    const __m256i b2 = _mm256_shuffle_epi8(plane[2], codes), b3 = _mm256_shuffle_epi8(plane[3], codes);
    Words<kFirst>(_mm256_unpacklo_epi8(b0, b1), _mm256_unpacklo_epi8(b2, b3), use);
    Words<kFirst + 2>(_mm256_unpackhi_epi8(b0, b1), _mm256_unpackhi_epi8(b2, b3), use);
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m256i codes = _mm256_loadu_si256(Vectors(at));
    Codes<0>(_mm256_and_si256(codes, nibble), use);
    Codes<4>(_mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble), use);
  }
  __m256i plane[4], nibble;
};

// Scales or zero points of one group of one panel: `count` vectors.
inline void LoadEntries(const PackedView& view, const void* entries, int64_t panel, int64_t group, int count,
                        __m256* out) {
  const int64_t at = (panel * view.groups + group) * count * 8;
  for (int v = 0; v < count; ++v) {
    if (view.short_scales) {
      const auto* codes = static_cast<const uint16_t*>(entries) + at + 8 * v;
      const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
      out[v] = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    } else {
      out[v] = _mm256_loadu_ps(static_cast<const float*>(entries) + at + 8 * v);
    }
  }
}

// What turns decoded codes into weights, for the vectors of one group of one panel. Without zero points an offset codec
// has w = code * scale + shift; with them, and for the others, w = (code - zero) * scale.
template <bool kZeroPoints, typename Codec>
inline void LoadScales(const PackedView& view, int64_t panel, int64_t group, __m256* scale, __m256* shift) {
  constexpr int kVectors = static_cast<int>(PanelCols(Codec::kPacking) / 8);
  LoadEntries(view, view.scales, panel, group, kVectors, scale);
  if constexpr (kZeroPoints) LoadEntries(view, view.zero_points, panel, group, kVectors, shift);
  if constexpr (kHasOffset<Codec>) {
    const __m256 unit = _mm256_set1_ps(view.unit);
    float factor = 1;
    for (int v = 0; v < kVectors; ++v, factor *= Codec::kFactor) {
      // The last column of a byte block has no offset.
      const bool has_offset = Codec::kPacking != Packing::kOffsetByte || v < 3;
      const __m256 offset = _mm256_set1_ps(has_offset ? view.offset : 0.0f);
      if constexpr (kZeroPoints) {
        scale[v] = _mm256_mul_ps(scale[v], unit);
        const __m256 zero = _mm256_add_ps(_mm256_div_ps(shift[v], unit), offset);
        shift[v] = _mm256_mul_ps(zero, _mm256_set1_ps(factor));
        scale[v] = _mm256_mul_ps(scale[v], _mm256_set1_ps(1 / factor));
      } else {
        shift[v] = _mm256_mul_ps(scale[v], _mm256_set1_ps(has_offset ? -view.offset * view.unit : -0.0f));
        scale[v] = _mm256_mul_ps(scale[v], _mm256_set1_ps(view.unit / factor));
      }
    }
  }
}

// The weights of one vector of decoded codes.
template <bool kScaled, bool kZeroPoints, typename Codec>
OCTAVO_INLINE __m256 Scaled(__m256 codes, const __m256& scale, const __m256& shift) {
  if constexpr (!kScaled) {
    return codes;
  } else if constexpr (kHasOffset<Codec> && !kZeroPoints) {
    return _mm256_fmadd_ps(codes, scale, shift);
  } else if constexpr (kZeroPoints) {
    return _mm256_mul_ps(_mm256_sub_ps(codes, shift), scale);
  } else {
    return _mm256_mul_ps(codes, scale);
  }
}

using Codecs = CodecList<CodecF32, CodecBF16, CodecF16, CodecTableByte, CodecHalfByte<0>, CodecHalfByte<1>,
                         CodecHalfByte<2>, CodecOffsetByte, CodecOffsetNibble, CodecOffsetLookup, CodecNibbleTable>;

}  // namespace octavo::kernels::internal
