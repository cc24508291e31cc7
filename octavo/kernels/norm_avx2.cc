// The norms, eight features at a time. A row is read from memory once and again from the first-level cache.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/norm_rows.h"

namespace octavo::kernels {
namespace {

struct RowStats {
  float mean, inv;
};

template <typename E, bool kLayer>
RowStats StatsOf(const typename E::Type* x, int64_t n, float epsilon) {
  const float count = static_cast<float>(n);
  float mean = 0;
  if constexpr (kLayer) {
    Lanes16 sum;
    ForLanes(n, [&](int64_t at, auto io, int half) {
      sum.half[half] = _mm256_add_ps(sum.half[half], io.template Load<E>(x + at));
    });
    mean = sum.Fold() / count;
  }
  const __m256 centre = _mm256_set1_ps(mean);
  Lanes16 squares;
  ForLanes(n, [&](int64_t at, auto io, int half) {
    __m256 d = io.template Load<E>(x + at);
    if constexpr (kLayer) d = io.Keep(_mm256_sub_ps(d, centre));
    squares.half[half] = _mm256_fmadd_ps(d, d, squares.half[half]);
  });
  const float variance = squares.Fold() / count + epsilon;
  const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(variance)));
  return {mean, 1.0f / root};
}

template <typename E, bool kLayer>
void Forward(const NormRows& args, int64_t begin, int64_t end) {
  using T = typename E::Type;
  const int64_t n = args.x.cols;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = RowOf<E>(args.x, r);
    T* y = RowOf<E>(args.out, r);
    const RowStats stats = StatsOf<E, kLayer>(x, n, args.epsilon);
    if (args.inv != nullptr) args.inv[r] = stats.inv;
    if (args.mean != nullptr) args.mean[r] = stats.mean;
    const __m256 mean = _mm256_set1_ps(stats.mean), inv = _mm256_set1_ps(stats.inv);
    ForEights(n, [&](int64_t at, auto io) {
      __m256 v = io.template Load<E>(x + at);
      if constexpr (kLayer) v = _mm256_sub_ps(v, mean);
      v = _mm256_mul_ps(v, inv);
      if (args.round_before_weight) v = E::Round(v);
      if (args.weight != nullptr) v = _mm256_mul_ps(v, io.template Load<F32x8>(args.weight + at));
      if (args.bias != nullptr) v = _mm256_add_ps(v, io.template Load<F32x8>(args.bias + at));
      io.template Store<E>(y + at, v);
    });
  }
}

template <typename E, bool kLayer>
void Backward(const NormRows& args, int64_t begin, int64_t end, float* weight_leaf, float* bias_leaf) {
  using T = typename E::Type;
  const int64_t n = args.x.cols;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = RowOf<E>(args.x, r);
    const T* grad_y = RowOf<E>(args.grad_y, r);
    T* out = args.out.data == nullptr ? nullptr : RowOf<E>(args.out, r);
    const __m256 mean = _mm256_set1_ps(kLayer ? args.mean[r] : 0.0f), inv = _mm256_set1_ps(args.inv[r]);
    const auto normalized = [&](__m256 v) {
      if constexpr (kLayer) v = _mm256_sub_ps(v, mean);
      return _mm256_mul_ps(v, inv);
    };
    Lanes16 plain, dotted;
    ForLanes(n, [&](int64_t at, auto io, int half) {
      __m256 g = io.template Load<E>(grad_y + at);
      if (args.weight != nullptr) g = _mm256_mul_ps(g, io.template Load<F32x8>(args.weight + at));
      if constexpr (kLayer) plain.half[half] = _mm256_add_ps(plain.half[half], g);
      const __m256 xhat = io.Keep(normalized(io.template Load<E>(x + at)));
      dotted.half[half] = _mm256_fmadd_ps(g, xhat, dotted.half[half]);
    });
    const __m256 mean_g = _mm256_set1_ps(plain.Fold() / static_cast<float>(n));
    const __m256 mean_gx = _mm256_set1_ps(dotted.Fold() / static_cast<float>(n));
    ForEights(n, [&](int64_t at, auto io) {
      const __m256 y_grad = io.template Load<E>(grad_y + at);
      const __m256 xhat = normalized(io.template Load<E>(x + at));
      if (weight_leaf != nullptr) {
        const __m256 rounded = args.round_before_weight ? E::Round(xhat) : xhat;
        const __m256 sum = io.template Load<F32x8>(weight_leaf + at);
        io.template Store<F32x8>(weight_leaf + at, _mm256_fmadd_ps(y_grad, rounded, sum));
      }
      if (bias_leaf != nullptr) {
        const __m256 sum = io.template Load<F32x8>(bias_leaf + at);
        io.template Store<F32x8>(bias_leaf + at, _mm256_add_ps(sum, y_grad));
      }
      if (out != nullptr) {
        __m256 g = y_grad;
        if (args.weight != nullptr) g = _mm256_mul_ps(g, io.template Load<F32x8>(args.weight + at));
        if constexpr (kLayer) g = _mm256_sub_ps(g, mean_g);
        io.template Store<E>(out + at, _mm256_mul_ps(_mm256_fnmadd_ps(xhat, mean_gx, g), inv));
      }
    });
  }
}

}  // namespace

void NormForwardAvx2(const NormRows& args, int64_t begin, int64_t end) {
  WithElement8(args.x.dtype, [&](auto element) {
    using E = decltype(element);
    args.layer ? Forward<E, true>(args, begin, end) : Forward<E, false>(args, begin, end);
  });
}

void NormBackwardAvx2(const NormRows& args, int64_t begin, int64_t end, float* weight_leaf, float* bias_leaf) {
  for (int64_t c = 0; c < args.x.cols; ++c) {
    if (weight_leaf != nullptr) weight_leaf[c] = 0;
    if (bias_leaf != nullptr) bias_leaf[c] = 0;
  }
  WithElement8(args.x.dtype, [&](auto element) {
    using E = decltype(element);
    args.layer ? Backward<E, true>(args, begin, end, weight_leaf, bias_leaf)
               : Backward<E, false>(args, begin, end, weight_leaf, bias_leaf);
  });
}

}  // namespace octavo::kernels
