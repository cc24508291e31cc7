// The loops of softmax.h, eight elements at a time.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/math_avx2.h"
#include "octavo/kernels/softmax_rows.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = __builtin_inff();

inline float LargestLane(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// -inf in the lanes that hold no element.
inline __m256 OrMinusInf(WholeEight, __m256 v) { return v; }
inline __m256 OrMinusInf(PartOfEight io, __m256 v) {
  return _mm256_blendv_ps(Fill8(-kInf), v, _mm256_castsi256_ps(FirstLanes(io.count)));
}

template <typename E>
TileSum SumTile(const typename E::Type* x, int64_t count) {
  __m256 largest[2] = {Fill8(-kInf), Fill8(-kInf)};
  ForLanes(count, [&](int64_t at, auto io, int half) {
    largest[half] = _mm256_max_ps(OrMinusInf(io, io.template Load<E>(x + at)), largest[half]);
  });
  // + 0: which of two zeros came out must not depend on the lanes.
  const float max = LargestLane(_mm256_max_ps(largest[0], largest[1])) + 0.0f;
  const __m256 shift = Fill8(max == -kInf ? 0.0f : max);
  Lanes16 sum;
  ForLanes(count, [&](int64_t at, auto io, int half) {
    const __m256 e = ExpNotPositive8(_mm256_sub_ps(OrMinusInf(io, io.template Load<E>(x + at)), shift));
    sum.half[half] = _mm256_add_ps(sum.half[half], e);
  });
  return {max, sum.Fold()};
}

}  // namespace

TileSum TileSumAvx2(const void* x, DType dtype, int64_t count) {
  TileSum out{-kInf, 0};
  WithElement8(dtype, [&](auto element) {
    using E = decltype(element);
    out = SumTile<E>(static_cast<const typename E::Type*>(x), count);
  });
  return out;
}

void ExpScaleAvx2(const void* x, void* y, DType dtype, int64_t count, float shift, float factor) {
  const __m256 shift8 = Fill8(shift), factor8 = Fill8(factor);
  WithElement8(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* from = static_cast<const typename E::Type*>(x);
    auto* to = static_cast<typename E::Type*>(y);
    ForEights(count, [&](int64_t at, auto io) {
      const __m256 e = ExpNotPositive8(_mm256_sub_ps(io.template Load<E>(from + at), shift8));
      io.template Store<E>(to + at, _mm256_mul_ps(e, factor8));
    });
  });
}

void SoftmaxGradRowAvx2(const void* y, const void* grad_y, void* grad_x, DType dtype, int64_t count) {
  WithElement8(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* p = static_cast<const typename E::Type*>(y);
    const auto* g = static_cast<const typename E::Type*>(grad_y);
    auto* out = static_cast<typename E::Type*>(grad_x);
    Lanes16 dot;
    ForLanes(count, [&](int64_t at, auto io, int half) {
      dot.half[half] = Fma8(io.template Load<E>(p + at), io.template Load<E>(g + at), dot.half[half]);
    });
    const __m256 mean = Fill8(dot.Fold());
    ForEights(count, [&](int64_t at, auto io) {
      const __m256 centred = _mm256_sub_ps(io.template Load<E>(g + at), mean);
      io.template Store<E>(out + at, _mm256_mul_ps(io.template Load<E>(p + at), centred));
    });
  });
}

}  // namespace octavo::kernels
