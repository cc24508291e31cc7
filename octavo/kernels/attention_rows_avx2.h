// Moving rows for attention: stored keys and values to f32, heads of a token array from and to f32, 16 rows into one
// panel of lanes. For attention_*_avx2.cc only.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "octavo/kernels/attention_types.h"
#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kPanel = 16;  // rows that share a panel, one per lane

// Floats from one row of a local matrix to the next: whole panels, and one panel more, since power-of-two strides would
// put a column of the matrix into few sets of the cache.
inline int64_t LocalStride(int64_t width) { return RoundUp(width, kPanel) + kPanel; }

// Eight codes from byte `at` on; `count` < 8 only at the end of a row, whose bytes behind must not be touched.
OCTAVO_INLINE __m128i LoadBytes(const uint8_t* at, int64_t bytes) {
  if (bytes >= 8) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  uint64_t low = 0;
  std::memcpy(&low, at, static_cast<size_t>(bytes));
  return _mm_cvtsi64_si128(static_cast<int64_t>(low));
}

// Each reads elements c … c + 7 of a row of `width` elements; those past the end read as code 0.
struct KvF32 {
  static constexpr bool kScaled = false;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    const auto* at = reinterpret_cast<const float*>(row) + c;
    return width - c >= 8 ? F32x8::Load(at) : F32x8::LoadPart(at, width - c);
  }
};

struct KvBf16 {
  static constexpr bool kScaled = false;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    const auto* at = reinterpret_cast<const uint16_t*>(row) + c;
    return width - c >= 8 ? Bf16x8::Load(at) : Bf16x8::LoadPart(at, width - c);
  }
};

struct KvF16 {
  static constexpr bool kScaled = false;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    const auto* at = reinterpret_cast<const uint16_t*>(row) + c;
    return width - c >= 8 ? F16x8::Load(at) : F16x8::LoadPart(at, width - c);
  }
};

struct KvInt8 {
  static constexpr bool kScaled = true;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(LoadBytes(row + c, width - c)));
  }
};

OCTAVO_INLINE __m256 SignedNibbles(__m256i codes) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes, 28), 28));
}

struct KvInt4 {
  static constexpr bool kScaled = true;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    return SignedNibbles(_mm256_cvtepu8_epi32(LoadBytes(row + c, width - c)));
  }
};

struct KvInt4Packed {
  static constexpr bool kScaled = true;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    uint32_t bytes = 0;  // eight codes, the lowest four bits first
    if (width - c >= 8) {
      std::memcpy(&bytes, row + c / 2, 4);
    } else {
      std::memcpy(&bytes, row + c / 2, static_cast<size_t>((width - c + 1) / 2));
    }
    const __m256i shift = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    const __m256i top = _mm256_sllv_epi32(_mm256_set1_epi32(static_cast<int>(bytes)), shift);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
  }
};

// e5m2 is the upper half of an f16.
struct KvE5m2 {
  static constexpr bool kScaled = true;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    const __m128i codes = _mm_unpacklo_epi8(_mm_setzero_si128(), LoadBytes(row + c, width - c));
    return _mm256_cvtph_ps(codes);
  }
};

// e4m3fn shifted by one exponent bit is an f16 of 2^-8 the value, subnormals too; 127 and 255 are NaN.
struct KvE4m3fn {
  static constexpr bool kScaled = true;
  OCTAVO_INLINE __m256 Load(const uint8_t* row, int64_t c, int64_t width) {
    const __m128i codes = _mm_cvtepu8_epi16(LoadBytes(row + c, width - c));
    const __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(codes, _mm_set1_epi16(0x80)), 8);
    const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
    const __m128i half = _mm_or_si128(_mm_or_si128(sign, _mm_slli_epi16(magnitude, 7)), nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
  }
};

// Bytes of one stored vector.
inline int64_t BytesOf(const KvSide& side, int64_t width) {
  switch (side.format) {
    case Format::kF32:
      return width * 4;
    case Format::kBF16:
    case Format::kF16:
      return width * 2;
    default:
      return side.packed ? (width + 1) / 2 : width;
  }
}

// Calls work(loader) with the loader of a stored format.
template <typename Work>
inline void WithKvLoader(const KvSide& side, Work work) {
  switch (side.format) {
    case Format::kBF16:
      return work(KvBf16());
    case Format::kF16:
      return work(KvF16());
    case Format::kInt8:
      return work(KvInt8());
    case Format::kInt4:
      return side.packed ? work(KvInt4Packed()) : work(KvInt4());
    case Format::kF8E5M2:
      return work(KvE5m2());
    case Format::kF8E4M3FN:
      return work(KvE4m3fn());
    default:
      return work(KvF32());
  }
}

// Keys (or values) k0 … k0 + count - 1 into rows 0 … count - 1 of dst, and zeros into the rows up to `rows` and into
// the columns up to the next multiple of 16.
inline void LoadKvBlock(const KvSide& side, const AttentionSequence& sequence, int64_t head, int64_t k0, int64_t count,
                        int64_t rows, int64_t width, float* dst, int64_t stride) {
  const int64_t padded = RoundUp(width, kPanel);
  if (count > 0) {
    // A block never leaves its page, so its rows have one stride.
    const uint8_t* first = KvRow(side, sequence, head, k0);
    const float* scales = side.scale == nullptr ? nullptr : KvScaleAt(side, sequence, head, k0);
    WithKvLoader(side, [&](auto loader) {
      for (int64_t j = 0; j < count; ++j) {
        const uint8_t* row = first + j * side.key_stride;
        const __m256 scale = _mm256_set1_ps(scales == nullptr ? 1.0f : scales[j * side.scale_key_stride]);
        float* to = dst + j * stride;
        int64_t c = 0;
        if (side.scale == nullptr) {
          for (; c < width; c += 8) _mm256_store_ps(to + c, loader.Load(row, c, width));
        } else {
          for (; c < width; c += 8) _mm256_store_ps(to + c, _mm256_mul_ps(loader.Load(row, c, width), scale));
        }
        for (; c < padded; c += 8) _mm256_store_ps(to + c, _mm256_setzero_ps());
      }
    });
  }
  for (int64_t j = count; j < rows; ++j) std::memset(dst + j * stride, 0, static_cast<size_t>(padded) * sizeof(float));
}

// One head of one token, times `factor`, with zeros up to the next multiple of 16.
inline void LoadHead(const ConstHeads& heads, int64_t token, int64_t head, int64_t width, float factor, float* dst) {
  const int64_t at = token * heads.token_stride + head * heads.head_stride;
  const __m256 times = _mm256_set1_ps(factor);
  WithElement8(heads.dtype, [&](auto element) {
    using E = decltype(element);
    const auto* row = static_cast<const typename E::Type*>(heads.data) + at;
    ForEights(width, [&](int64_t c, auto io) {
      _mm256_store_ps(dst + c, _mm256_mul_ps(io.template Load<E>(row + c), times));
    });
  });
  for (int64_t c = RoundUp(width, 8); c < RoundUp(width, kPanel); c += 8) _mm256_store_ps(dst + c, _mm256_setzero_ps());
}

// dst = src * factor + 0, as the dtype of the heads.
inline void StoreHead(const MutHeads& heads, int64_t token, int64_t head, int64_t width, __m256 factor,
                      const float* src) {
  const int64_t at = token * heads.token_stride + head * heads.head_stride;
  WithElement8(heads.dtype, [&](auto element) {
    using E = decltype(element);
    auto* row = static_cast<typename E::Type*>(heads.data) + at;
    ForEights(width, [&](int64_t c, auto io) {
      const __m256 v = _mm256_mul_ps(_mm256_load_ps(src + c), factor);
      io.template Store<E>(row + c, _mm256_add_ps(v, _mm256_setzero_ps()));
    });
  });
}

inline void Transpose8(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_load_ps(src + i * src_stride);
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i + 0] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_store_ps(dst + i * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_store_ps(dst + (i + 4) * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

// Rows of 16 tokens become the lanes of a panel: panel[c * 16 + r] = src[r * stride + c], c < width rounded up to 16.
inline void TransposePanel(const float* src, int64_t stride, int64_t width, float* panel) {
  for (int64_t c = 0; c < RoundUp(width, kPanel); c += 8) {
    Transpose8(src + c, stride, panel + c * kPanel, kPanel);
    Transpose8(src + 8 * stride + c, stride, panel + c * kPanel + 8, kPanel);
  }
}

}  // namespace
}  // namespace octavo::kernels
