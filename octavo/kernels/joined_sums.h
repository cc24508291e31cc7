// Adds a tensor to a chain of others in one pass over memory: r = term, then r = left[0] + r, r = left[1] + r, and so
// on; the last of them receives r. The sum of squares of what is stored can be taken on the way, chunk by chunk as
// ChunkSums (reductions.h) would give it. Used where gradients of shards join: four passes become one, and every
// addition is the one that would have been made alone.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {

struct JoinArgs {
  int64_t count = 0;             // elements of each
  const float* term = nullptr;   //
  std::span<float* const> left;  // at least one; only the last is written
  double* squares = nullptr;     // [ChunksOf(count)] of the result; null: not wanted
};
void JoinSums(ThreadPool& pool, Isa isa, const JoinArgs& args);

}  // namespace octavo::kernels
