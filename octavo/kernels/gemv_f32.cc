// Products with few rows: A is copied as [K][M] floats, then threads take strips of columns and stream B.
#include <algorithm>
#include <atomic>
#include <vector>

#include "octavo/kernels/matmul_f32_avx2.h"
#include "octavo/kernels/matmul_f32_impl.h"

namespace octavo::kernels {
namespace {

enum Slot { kSlotA = 8, kSlotSums };

}  // namespace

void MatMulF32Stream(ThreadPool& pool, Workspace& workspace, const MatMulF32Args& args) {
  const int64_t m = args.c.rows, n = args.c.cols, k = args.a.cols;
  float* a = workspace.Get<float>(kSlotA, k * m);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t r = 0; r < m; ++r) a[i * m + r] = ValueAt(args.a, r, i);
  }
  const int64_t scratch = internal::StreamScratch(m);
  float* sums = workspace.Get<float>(kSlotSums, scratch * pool.size());
  // Strips as wide as the cache allows, but enough of them to share out.
  const int64_t wanted = (n + 4 * pool.size() - 1) / (4 * pool.size());
  const int64_t strip = std::clamp<int64_t>((wanted + 63) / 64 * 64, 64, internal::kStreamCols);
  std::atomic<int64_t> next{0};
  pool.Run([&](int worker, int) {
    for (int64_t col; (col = next.fetch_add(strip, std::memory_order_relaxed)) < n;) {
      internal::StreamJob job;
      job.a = a;
      job.b = static_cast<const float*>(args.b.data) + args.b.offset + col * args.b.col_stride;
      job.row_stride = args.b.row_stride, job.col_stride = args.b.col_stride;
      job.rows = m, job.cols = std::min(strip, n - col), job.depth = k;
      job.sums = sums + worker * scratch;
      job.finish = MakeFinish(args.epilogue, args.c, 0, col);
      internal::RunStreamAvx2(job);
    }
  });
}

}  // namespace octavo::kernels
