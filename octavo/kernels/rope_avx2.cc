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

// The io of the two groups of eight that hold `count` (1 … 7) pairs, that is 2 * count elements.
inline PartOfEight Group(PartOfEight io, int group) {
  const int64_t left = 2 * io.count - 8 * group;
  return {left < 0 ? 0 : left > 8 ? 8 : left};
}
inline WholeEight Group(WholeEight io, int) { return io; }

// Pairs i … i+7 of a head, or as many of them as io says.
template <typename E, bool kHalves, typename Io>
inline Pair8 LoadPairs(const typename E::Type* p, int64_t i, int64_t pairs, Io io) {
  if constexpr (kHalves) {
    return {io.template Load<E>(p + i), io.template Load<E>(p + i + pairs)};
  } else {
    return Split(Group(io, 0).template Load<E>(p + 2 * i), Group(io, 1).template Load<E>(p + 2 * i + 8));
  }
}

template <typename E, bool kHalves, typename Io>
inline void StorePairs(typename E::Type* p, int64_t i, int64_t pairs, Io io, Pair8 v) {
  if constexpr (kHalves) {
    io.template Store<E>(p + i, v.a);
    io.template Store<E>(p + i + pairs, v.b);
  } else {
    const Pair8 merged = Merge(v);
    Group(io, 0).template Store<E>(p + 2 * i, merged.a);
    Group(io, 1).template Store<E>(p + 2 * i + 8, merged.b);
  }
}

template <typename E, bool kInHalves, bool kOutHalves>
void Rotate(const RopeArgs& args, int64_t begin, int64_t end) {
  using T = typename E::Type;
  const int64_t pairs = args.rotary_dim / 2, heads = args.heads;
  // The gradient turns the other way: the sine with its sign flipped, which is exact.
  const __m256 flip = _mm256_set1_ps(args.direction == RopeDirection::kBackward ? -0.0f : 0.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float* cos = args.cos + (args.position[t] - args.table_first) * pairs;
    const float* sin = args.sin + (args.position[t] - args.table_first) * pairs;
    for (int64_t h = 0; h < heads; ++h) {
      const T* in = static_cast<const T*>(args.in) + t * args.in_token_stride + h * args.in_head_stride;
      T* out = static_cast<T*>(args.out) + t * args.out_token_stride + h * args.out_head_stride;
      ForEights(pairs, [&](int64_t i, auto io) {
        const Pair8 v = LoadPairs<E, kInHalves>(in, i, pairs, io);
        const __m256 c = io.template Load<F32x8>(cos + i);
        const __m256 s = _mm256_xor_ps(io.template Load<F32x8>(sin + i), flip);
        const __m256 a = _mm256_sub_ps(_mm256_mul_ps(v.a, c), _mm256_mul_ps(v.b, s));
        const __m256 b = _mm256_add_ps(_mm256_mul_ps(v.b, c), _mm256_mul_ps(v.a, s));
        StorePairs<E, kOutHalves>(out, i, pairs, io, {a, b});
      });
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
