// The running softmax of rows: (m, l, o) of each, its merge, its end. Shared by the panels and the few-row kernel. For
// attention_*_avx2.cc only.
#pragma once

#include <cstring>

#include "octavo/kernels/attention_impl.h"
#include "octavo/kernels/attention_rows_avx2.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

constexpr float kLowest = -0x1.fffffep127f;  // smaller than any score, and not infinite: differences stay numbers

struct RunningRows {
  float *m, *l, *o;       // m[rows], l[rows] to whole panels; o[rows, stride]
  int64_t stride, width;  // width: v_dim to whole panels
};

inline void ResetRows(const RunningRows& r, int64_t rows) {
  for (int64_t i = 0; i < RoundUp(rows, kPanel); ++i) {
    r.m[i] = kLowest;
    r.l[i] = 0;
  }
  for (int64_t i = 0; i < rows; ++i) std::memset(r.o + i * r.stride, 0, static_cast<size_t>(r.width) * sizeof(float));
}

inline void MergeRows(const RunningRows& part, int64_t rows, const RunningRows& total) {
  for (int64_t i = 0; i < rows; ++i) {
    const float m = Max(total.m[i], part.m[i]);
    const float a = Exp(total.m[i] - m), b = Exp(part.m[i] - m);
    total.m[i] = m;
    total.l[i] = Fma(part.l[i], b, total.l[i] * a);
    const __m256 a8 = Fill8(a), b8 = Fill8(b);
    for (int64_t c = 0; c < total.width; c += 8) {
      float* at = total.o + i * total.stride + c;
      const __m256 o = _mm256_load_ps(part.o + i * part.stride + c);
      _mm256_store_ps(at, Fma8(o, b8, _mm256_mul_ps(_mm256_load_ps(at), a8)));
    }
  }
}

inline RunningRows PartialAt(const AttentionShape& shape, int64_t rows, float* at) {
  const int64_t padded = RoundUp(rows, kPanel);
  return {at, at + padded, at + 2 * padded, LocalStride(shape.v_dim), RoundUp(shape.v_dim, kPanel)};
}

// The sink, the division and the log-sum-exp of every row of a task.
inline void FinishRows(const ForwardTask& task, const RunningRows& total) {
  const AttentionShape& shape = task.call->shape;
  const int64_t group = shape.query_heads / shape.kv_heads;
  for (int64_t i = 0; i < task.row_end - task.row_begin; ++i) {
    const int64_t row = task.row_begin + i;
    const int64_t token = task.sequence->query_begin + row / group, head = task.kv_head * group + row % group;
    float m = total.m[i], l = total.l[i];
    float* o = total.o + i * total.stride;
    if (shape.sinks != nullptr) {
      const float sink = shape.sinks[head];
      const float top = Max(m, sink);
      const float a = Exp(m - top);
      m = top;
      l = Fma(l, a, Exp(sink - m));
      for (int64_t c = 0; c < total.width; c += 8) {
        _mm256_store_ps(o + c, _mm256_mul_ps(_mm256_load_ps(o + c), Fill8(a)));
      }
    }
    for (int64_t c = 0; c < total.width; c += 8) {
      const __m256 v = l == 0 ? _mm256_setzero_ps() : _mm256_div_ps(_mm256_load_ps(o + c), Fill8(l));
      _mm256_store_ps(o + c, v);
    }
    StoreHead(task.result->out, token, head, shape.v_dim, Fill8(1.0f), o);
    if (task.result->lse != nullptr) {
      task.result->lse[token * shape.query_heads + head] = l == 0 ? -__builtin_inff() : m + Log(l);
    }
  }
}

}  // namespace
}  // namespace octavo::kernels
