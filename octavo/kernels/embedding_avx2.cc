// The gradient of embedding.h, eight columns at a time.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/embedding_rows.h"

namespace octavo::kernels {
namespace {

// to = from + row; to = 0 + row where a chain begins; to = from + (0 + row) for a chain of one. The zero is not idle:
// it turns -0 into +0, as in the reference.
enum class Chain { kBegin, kContinue, kWhole };

template <typename E, Chain kChain>
void AddRow(const typename E::Type* row, const float* from, float* to, int64_t cols) {
  ForEights(cols, [&](int64_t at, auto io) {
    __m256 v = io.template Load<E>(row + at);
    if constexpr (kChain != Chain::kContinue) v = _mm256_add_ps(_mm256_setzero_ps(), v);
    if constexpr (kChain != Chain::kBegin) v = _mm256_add_ps(io.template Load<F32x8>(from + at), v);
    io.template Store<F32x8>(to + at, v);
  });
}

}  // namespace

void ScatterLeavesAvx2(const ConstRows& grad_y, const int32_t* token, const ScatterLeaf* leaf, int64_t leaves,
                       float* sum, const MutRows& grad_table) {
  WithElement8(grad_y.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t l = 0; l < leaves; ++l) {
      float* row = RowOf<F32x8>(grad_table, leaf[l].id);
      const auto* first = RowOf<E>(grad_y, token[leaf[l].begin]);
      if (leaf[l].end == leaf[l].begin + 1) {  // one token, the usual case: no detour through `sum`
        AddRow<E, Chain::kWhole>(first, row, row, grad_y.cols);
        continue;
      }
      AddRow<E, Chain::kBegin>(first, nullptr, sum, grad_y.cols);
      for (int64_t i = leaf[l].begin + 1; i < leaf[l].end; ++i) {
        AddRow<E, Chain::kContinue>(RowOf<E>(grad_y, token[i]), sum, sum, grad_y.cols);
      }
      AddRow<F32x8, Chain::kContinue>(sum, row, row, grad_y.cols);
    }
  });
}

}  // namespace octavo::kernels
