// Sums over tokens, rule R2: each sequence is cut into leaves of kTokenLeaf tokens at positions inside the sequence; a
// leaf is one ascending chain from +0; leaves are added ascending, sequence after sequence. Used by the gradients of
// norm weights and biases. A leaf is the unit of work of a thread; which thread took it cannot change a bit.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {

struct Leaf {
  int64_t begin, end;  // tokens
  bool operator==(const Leaf&) const = default;
};
std::vector<Leaf> LeavesOf(const Sequences& sequences, int64_t tokens);

// out[c] = ((start + leaves[0, c]) + leaves[1, c]) + …; start is out[c] itself when `accumulate`, else +0.
// `leaves` is [count, cols].
void AddLeaves(ThreadPool& pool, const float* leaves, int64_t count, int64_t cols, bool accumulate, float* out);

}  // namespace octavo::kernels
