#include "octavo/kernels/leaves.h"

#include <algorithm>

namespace octavo::kernels {

std::vector<Leaf> LeavesOf(const Sequences& sequences, int64_t tokens) {
  std::vector<Leaf> leaves;
  const auto cut = [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kTokenLeaf) leaves.push_back({at, std::min(at + kTokenLeaf, end)});
  };
  if (sequences.count == 0) cut(0, tokens);
  for (int64_t s = 0; s < sequences.count; ++s) cut(sequences.begin[s], sequences.begin[s + 1]);
  return leaves;
}

void AddLeaves(ThreadPool& pool, const float* leaves, int64_t count, int64_t cols, bool accumulate, float* out) {
  constexpr int64_t kBlock = 64;  // columns held in registers and first-level cache while the leaves go by
  const int64_t grain = std::max<int64_t>(kBlock, 16384 / std::max<int64_t>(1, count) / kBlock * kBlock);
  pool.ParallelFor(cols, grain, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t width = std::min(kBlock, end - first);
      float sum[kBlock] = {};
      if (accumulate) std::copy_n(out + first, width, sum);
      for (int64_t leaf = 0; leaf < count; ++leaf) {
        const float* row = leaves + leaf * cols + first;
        for (int64_t c = 0; c < width; ++c) sum[c] += row[c];
      }
      std::copy_n(sum, width, out + first);
    }
  });
}

}  // namespace octavo::kernels
