// Products with few rows (M <= 8): B is read once, in the order it lies in memory, and never copied. The sums of all
// columns of a job live in the first cache. One element's sum is the same chain as everywhere else.
#include <immintrin.h>

#include "octavo/kernels/matmul_f32_tile.h"
#include "octavo/kernels/transpose_avx2.h"

namespace octavo::kernels::internal {
namespace {

// Adds `steps` (1 … 4) consecutive k to the sums of one row for columns [0, cols). b points at row k.
template <int kSteps>
inline void AddSteps(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t cols, float* sums) {
  __m256 x[kSteps];
  for (int i = 0; i < kSteps; ++i) x[i] = _mm256_broadcast_ss(a + i * a_stride);
  int64_t n = 0;
  for (; n + 16 <= cols; n += 16) {
    __m256 s0 = _mm256_loadu_ps(sums + n), s1 = _mm256_loadu_ps(sums + n + 8);
    for (int i = 0; i < kSteps; ++i) {
      s0 = _mm256_fmadd_ps(x[i], _mm256_loadu_ps(b + i * b_stride + n), s0);
      s1 = _mm256_fmadd_ps(x[i], _mm256_loadu_ps(b + i * b_stride + n + 8), s1);
    }
    _mm256_storeu_ps(sums + n, s0);
    _mm256_storeu_ps(sums + n + 8, s1);
  }
  for (; n < cols; ++n) {
    for (int i = 0; i < kSteps; ++i) {
      sums[n] = _mm_cvtss_f32(
          _mm_fmadd_ss(_mm_set_ss(a[i * a_stride]), _mm_set_ss(b[i * b_stride + n]), _mm_set_ss(sums[n])));
    }
  }
}

void AddRows(const StreamJob& job, int64_t k, int64_t steps, float* sums) {
  const float* b = job.b + k * job.row_stride;
  const float* a = job.a + k * job.rows;
  for (int64_t m = 0; m < job.rows; ++m) {
    float* row = sums + m * kStreamCols;
    switch (steps) {
      case 4:
        AddSteps<4>(a + m, job.rows, b, job.row_stride, job.cols, row);
        break;
      case 3:
        AddSteps<3>(a + m, job.rows, b, job.row_stride, job.cols, row);
        break;
      case 2:
        AddSteps<2>(a + m, job.rows, b, job.row_stride, job.cols, row);
        break;
      default:
        AddSteps<1>(a + m, job.rows, b, job.row_stride, job.cols, row);
    }
  }
}

// Columns contiguous along k: eight columns at a time, transposed in registers.
void LeafAlongK(const StreamJob& job, int64_t k0, int64_t depth, float* sums) {
  for (int64_t n = 0; n < job.cols; n += 8) {
    const int64_t lanes = job.cols - n < 8 ? job.cols - n : 8;
    __m256 sum[kStreamRows];
    for (__m256& s : sum) s = _mm256_setzero_ps();
    for (int64_t k = 0; k < depth; k += 8) {
      const int64_t steps = depth - k < 8 ? depth - k : 8;
      const float* b = job.b + n * job.col_stride + k0 + k;
      __m256 v[8];
      if (lanes == 8 && steps == 8) {
        for (int i = 0; i < 8; ++i) v[i] = _mm256_loadu_ps(b + i * job.col_stride);
      } else {
        alignas(32) float part[8][8] = {};
        for (int64_t i = 0; i < lanes; ++i) {
          for (int64_t j = 0; j < steps; ++j) part[i][j] = b[i * job.col_stride + j];
        }
        for (int i = 0; i < 8; ++i) v[i] = _mm256_load_ps(part[i]);
      }
      Transpose8x8(v);
      const float* a = job.a + (k0 + k) * job.rows;
      for (int64_t m = 0; m < job.rows; ++m) {
        for (int64_t j = 0; j < steps; ++j) {
          sum[m] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + j * job.rows + m), v[j], sum[m]);
        }
      }
    }
    for (int64_t m = 0; m < job.rows; ++m) {
      alignas(32) float out[8];
      _mm256_store_ps(out, sum[m]);
      for (int64_t i = 0; i < lanes; ++i) sums[m * kStreamCols + n + i] = out[i];
    }
  }
}

void LeafAcross(const StreamJob& job, int64_t k0, int64_t depth, float* sums) {
  for (int64_t i = 0; i < job.rows * kStreamCols; ++i) sums[i] = 0;
  for (int64_t k = 0; k < depth; k += 4) AddRows(job, k0 + k, depth - k < 4 ? depth - k : 4, sums);
}

}  // namespace

void RunStreamAvx2(const StreamJob& job) {
  constexpr int64_t kDepth = 256;  // one leaf
  float* total = job.sums;
  float* leaf = job.sums + job.rows * kStreamCols;
  for (int64_t k0 = 0; k0 < job.depth; k0 += kDepth) {
    const int64_t depth = job.depth - k0 < kDepth ? job.depth - k0 : kDepth;
    float* sums = k0 == 0 ? total : leaf;
    if (job.col_stride == 1) {
      LeafAcross(job, k0, depth, sums);
    } else {
      LeafAlongK(job, k0, depth, sums);
    }
    if (k0 == 0) continue;
    for (int64_t m = 0; m < job.rows; ++m) {
      float* to = total + m * kStreamCols;
      const float* from = leaf + m * kStreamCols;
      for (int64_t n = 0; n < job.cols; ++n) to[n] += from[n];
    }
  }
  FinishAvx2(job.finish, total, kStreamCols, job.rows, job.cols);
}

}  // namespace octavo::kernels::internal
