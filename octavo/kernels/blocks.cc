#include "octavo/kernels/blocks.h"

namespace octavo::kernels {

void ForBlocks(ThreadPool& pool, int64_t rows, int64_t cols, bool without_gaps, FunctionRef<void(const Block&)> work) {
  if (rows == 0 || cols == 0) return;
  if (without_gaps || rows == 1) {
    pool.ParallelFor(rows * cols, 16384, [&](int64_t begin, int64_t end) { work({0, 1, begin, end, /*flat=*/true}); });
    return;
  }
  pool.ParallelFor(rows, RowGrain(cols), [&](int64_t begin, int64_t end) {
    work({begin, end, 0, cols, /*flat=*/false});
  });
}

}  // namespace octavo::kernels
