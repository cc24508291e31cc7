#include "octavo/kernels/joined_sums.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/kernels/elementwise_rows.h"
#include "octavo/kernels/reductions_rows.h"

namespace octavo::kernels {
namespace {

// out = left + right; `out` may be either of them.
void AddChunk(Isa isa, const float* left, const float* right, float* out, int64_t count) {
  const ConstRows a = RowsOf(left, 1, count), b = RowsOf(right, 1, count);
  const MutRows to = RowsOf(out, 1, count);
  isa >= Isa::kAvx2 ? ElementwiseAvx2(ElementwiseOp::kAdd, a, b, 0, to)
                    : ElementwiseRef(ElementwiseOp::kAdd, a, b, 0, to);
}

}  // namespace

void JoinSums(ThreadPool& pool, Isa isa, const JoinArgs& args) {
  constexpr const char* kOp = "JoinSums";
  if (args.left.empty()) ThrowUsage("{}: nothing to add to", kOp);
  CheckPresent(kOp, "term", args.term, args.count);
  for (const float* left : args.left) CheckPresent(kOp, "left", left, args.count);
  const int64_t chunks = (args.count + kChunk - 1) / kChunk;
  pool.ParallelFor(chunks, 4, [&](int64_t first, int64_t last) {
    alignas(64) float sum[kChunk];  // of the links before the last: it stays in the first cache
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t at = chunk * kChunk, size = std::min(kChunk, args.count - at);
      const float* term = args.term + at;
      for (float* const left : args.left) {
        float* const out = left == args.left.back() ? left + at : sum;
        AddChunk(isa, left + at, term, out, size);
        term = out;
      }
      if (args.squares == nullptr) continue;
      args.squares[chunk] = isa >= Isa::kAvx2 ? ChunkSumAvx2(SumOf::kSquares, term, DType::kF32, size)
                                              : ChunkSumRef(SumOf::kSquares, term, DType::kF32, size);
    }
  });
}

}  // namespace octavo::kernels
