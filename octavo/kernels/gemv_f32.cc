// Products with few rows: A is copied as [K][M] floats, then threads take strips of columns and stream B, unpacked or
// in panels.
#include <algorithm>
#include <atomic>
#include <vector>

#include "octavo/kernels/matmul_f32_impl.h"
#include "octavo/kernels/matmul_f32_tile.h"
#include "octavo/kernels/pack_f32.h"
#include "octavo/kernels/panel_runs.h"
#include "octavo/kernels/weight_only.h"
#include "octavo/kernels/weight_only_isa.h"

namespace octavo::kernels {
namespace {

enum Slot { kSlotA = 8, kSlotSums, kSlotRows };

// A as [K][M] floats.
const float* CopyOfA(Workspace& workspace, const FloatSource& source) {
  const int64_t m = source.rows, k = source.cols;
  float* a = workspace.Get<float>(kSlotA, k * m);
  // The few rows, decoded, then turned. One row is in place already.
  const bool by_rows =
      internal::DecodeBlockAvx2(source, 0, m, 0, k, m == 1 ? a : workspace.Get<float>(kSlotRows, k * m));
  if (m == 1) return a;
  const float* rows = workspace.Get<float>(kSlotRows, k * m);
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t i = 0; i < k; ++i) a[i * m + r] = by_rows ? rows[r * k + i] : rows[i * m + r];
  }
  return a;
}

}  // namespace

void MatMulF32Stream(ThreadPool& pool, Workspace& workspace, const MatMulF32Args& args) {
  const int64_t m = args.c.rows, n = args.c.cols, k = args.a.cols;
  const float* a = CopyOfA(workspace, args.a);
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

void MatMulF32PackedStream(ThreadPool& pool, Isa isa, Workspace& workspace, const MatMulF32Args& args) {
  const PackedView& view = args.packed_b->view();
  const float* a = CopyOfA(workspace, args.a);
  constexpr int64_t kCols = internal::kVectorCols;
  const int64_t n = args.c.cols, pieces = (n + kCols - 1) / kCols;
  PanelRuns runs(pieces, kCols / PanelCols(view.packing) * view.PanelBytes(), 1, pool.size());
  pool.Run([&](int worker, int workers) {
    alignas(64) float sums[2 * internal::kVectorRows * kCols];
    Range range = workers == 1 ? Range{0, pieces} : runs.First(worker);
    for (; range.begin < range.end; range = workers == 1 ? Range{0, 0} : runs.Take()) {
      for (int64_t piece = range.begin; piece < range.end; ++piece) {
        internal::VectorJob job;
        job.view = &view;
        job.col = piece * kCols;
        job.a = a, job.rows = args.c.rows;
        job.sums = sums, job.scratch = sums + internal::kVectorRows * kCols;
        isa >= Isa::kAvx512 ? internal::RunVectorAvx512(job) : internal::RunVectorAvx2(job);
        internal::FinishAvx2(MakeFinish(args.epilogue, args.c, 0, job.col), sums, kCols, args.c.rows,
                             std::min(kCols, n - job.col));
      }
    }
  });
}

}  // namespace octavo::kernels
