// The loops of experts.h, eight features at a time; the chain of a token stays in the first-level cache.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/experts_rows.h"

namespace octavo::kernels {

void CombineAvx2(const CombineRows& args, int64_t begin, int64_t end, float* chain) {
  WithElement8(args.y.dtype, [&](auto element) {
    using E = decltype(element);
    const int64_t cols = args.y.cols;
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t j = 0; j < args.top_k; ++j) {
        const int64_t p = t * args.top_k + j;
        const auto* y = RowOf<E>(args.y, args.row_of[p]);
        const __m256 weight = _mm256_set1_ps(args.weight != nullptr ? args.weight[p] : 1.0f);
        ForEights(cols, [&](int64_t at, auto io) {
          const __m256 sum = j == 0 ? _mm256_setzero_ps() : io.template Load<F32x8>(chain + at);
          const __m256 v = io.template Load<E>(y + at);
          io.template Store<F32x8>(chain + at, _mm256_fmadd_ps(weight, v, sum));  // 1 * v is exact
        });
      }
      auto* out = RowOf<E>(args.out, t);
      ForEights(cols,
                [&](int64_t at, auto io) { io.template Store<E>(out + at, io.template Load<F32x8>(chain + at)); });
    }
  });
}

void CombineGradAvx2(const CombineRows& args, int64_t begin, int64_t end) {
  WithElement8(args.y.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t p = begin * args.top_k; p < end * args.top_k; ++p) {
      const auto* grad = RowOf<E>(args.grad_out, p / args.top_k);
      const auto* y = RowOf<E>(args.y, args.row_of[p]);
      auto* out = RowOf<E>(args.out, args.row_of[p]);
      const __m256 weight = _mm256_set1_ps(args.weight[p]);
      Lanes16 dot;
      ForLanes(args.y.cols, [&](int64_t at, auto io, int half) {
        const __m256 g = io.template Load<E>(grad + at);
        dot.half[half] = _mm256_fmadd_ps(g, io.template Load<E>(y + at), dot.half[half]);
        io.template Store<E>(out + at, _mm256_mul_ps(weight, g));
      });
      if (args.grad_weight != nullptr) args.grad_weight[p] = dot.Fold();
    }
  });
}

}  // namespace octavo::kernels
