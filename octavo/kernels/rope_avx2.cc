// Eight pairs at a time, and four positions' worth of double cosines at a time for the table.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/math_avx2.h"
#include "octavo/kernels/rope_rows.h"

namespace octavo::kernels {
namespace {

struct Pair8 {
  __m256 a, b;
};

// Sixteen neighbours x y x y … to x x … and y y …, and back.
inline Pair8 Split(__m256 low, __m256 high) {
  const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
  const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
  return {_mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)), _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))};
}
inline Pair8 Merge(Pair8 v) {
  const __m256 low = _mm256_unpacklo_ps(v.a, v.b), high = _mm256_unpackhi_ps(v.a, v.b);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}

// Part n of `count` elements that are read as two groups of eight.
inline int64_t PartOf(int64_t count, int group) {
  const int64_t left = count - 8 * group;
  return left < 0 ? 0 : left > 8 ? 8 : left;
}

// Pairs i … i+7 of a head; only `count` of them exist.
template <typename E, bool kHalves>
Pair8 LoadPairs(const typename E::Type* p, int64_t i, int64_t pairs, int64_t count) {
  if constexpr (kHalves) {
    if (count == 8) return {E::Load(p + i), E::Load(p + i + pairs)};
    return {E::LoadPart(p + i, count), E::LoadPart(p + i + pairs, count)};
  } else {
    p += 2 * i;
    if (count == 8) return Split(E::Load(p), E::Load(p + 8));
    return Split(E::LoadPart(p, PartOf(2 * count, 0)), E::LoadPart(p + 8, PartOf(2 * count, 1)));
  }
}

template <typename E, bool kHalves>
void StorePairs(typename E::Type* p, int64_t i, int64_t pairs, int64_t count, Pair8 v) {
  if constexpr (kHalves) {
    if (count == 8) {
      E::Store(p + i, v.a);
      E::Store(p + i + pairs, v.b);
    } else {
      E::StorePart(p + i, v.a, count);
      E::StorePart(p + i + pairs, v.b, count);
    }
  } else {
    p += 2 * i;
    const Pair8 merged = Merge(v);
    if (count == 8) {
      E::Store(p, merged.a);
      E::Store(p + 8, merged.b);
    } else {
      E::StorePart(p, merged.a, PartOf(2 * count, 0));
      E::StorePart(p + 8, merged.b, PartOf(2 * count, 1));
    }
  }
}

template <typename E, bool kInHalves, bool kOutHalves>
void Rotate(const RopeArgs& args, int64_t begin, int64_t end) {
  using T = typename E::Type;
  const int64_t pairs = args.rotary_dim / 2;
  // The gradient turns the other way: the sine with its sign flipped, which is exact.
  const __m256 flip = _mm256_set1_ps(args.direction == RopeDirection::kBackward ? -0.0f : 0.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float* cos = args.cos + (args.position[t] - args.table_first) * pairs;
    const float* sin = args.sin + (args.position[t] - args.table_first) * pairs;
    for (int64_t h = 0; h < args.heads; ++h) {
      const T* in = static_cast<const T*>(args.in) + t * args.in_token_stride + h * args.in_head_stride;
      T* out = static_cast<T*>(args.out) + t * args.out_token_stride + h * args.out_head_stride;
      for (int64_t i = 0; i < pairs; i += 8) {
        const int64_t count = pairs - i < 8 ? pairs - i : 8;
        const Pair8 v = LoadPairs<E, kInHalves>(in, i, pairs, count);
        const __m256 c = count == 8 ? F32x8::Load(cos + i) : F32x8::LoadPart(cos + i, count);
        const __m256 s = _mm256_xor_ps(count == 8 ? F32x8::Load(sin + i) : F32x8::LoadPart(sin + i, count), flip);
        const __m256 a = _mm256_sub_ps(_mm256_mul_ps(v.a, c), _mm256_mul_ps(v.b, s));
        const __m256 b = _mm256_add_ps(_mm256_mul_ps(v.b, c), _mm256_mul_ps(v.a, s));
        StorePairs<E, kOutHalves>(out, i, pairs, count, {a, b});
      }
      for (int64_t c = args.rotary_dim; c < args.head_dim; ++c) out[c] = in[c];
    }
  }
}

}  // namespace

void RopeAvx2(const RopeArgs& args, int64_t begin, int64_t end) {
  WithElement8(args.dtype, [&](auto element) {
    using E = decltype(element);
    if (args.layout == RopeLayout::kHalves) {
      Rotate<E, true, true>(args, begin, end);
    } else if (args.layout == RopeLayout::kPairs) {
      Rotate<E, false, false>(args, begin, end);
    } else if (args.direction == RopeDirection::kForward) {
      Rotate<E, false, true>(args, begin, end);
    } else {
      Rotate<E, true, false>(args, begin, end);
    }
  });
}

void RopeTableAvx2(const RopeTableRows& args, int64_t begin, int64_t end) {
  const __m256d factor = _mm256_set1_pd(args.attention_factor);
  for (int64_t row = begin; row < end; ++row) {
    const double position = static_cast<double>(args.first + row);
    for (int64_t i = 0; i < args.pairs; i += 4) {
      const int64_t count = args.pairs - i < 4 ? args.pairs - i : 4;
      const __m256i mask = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(FirstLanes(count)));
      const __m256d inverse = _mm256_maskload_pd(args.inverse + i, mask);
      const SinCos4Result turned = SinCos4(_mm256_mul_pd(_mm256_set1_pd(position), inverse));
      const __m128i mask32 = _mm256_castsi256_si128(FirstLanes(count));
      const int64_t at = row * args.pairs + i;
      _mm_maskstore_ps(args.cos + at, mask32, _mm256_cvtpd_ps(_mm256_mul_pd(turned.cos, factor)));
      _mm_maskstore_ps(args.sin + at, mask32, _mm256_cvtpd_ps(_mm256_mul_pd(turned.sin, factor)));
    }
  }
}

}  // namespace octavo::kernels
