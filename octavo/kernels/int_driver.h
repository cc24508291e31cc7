// How an integer product is spread over threads and caches; shared by the int8 and int4 families. Threads split
// outputs only. Many rows: the left operand is packed once by all workers, then they take rectangles of the output from
// a counter. Few rows: each worker packs the rows for itself and takes runs of panels, so that one wake-up of the pool
// does.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/arena.h"
#include "octavo/kernels/int_block.h"

namespace octavo::kernels {

// The family's two functions and its strip height.
struct IntFamily {
  int64_t strip_rows;
  void (*pack_strips)(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
  void (*run)(const IntBlock& block, const IntRect& rect);
};

// `block` has the panels, the shapes, the epilogue and the output; strips and row constants are made here.
void RunIntProduct(ThreadPool& pool, Arena& arena, const IntFamily& family, const MatrixView<const int8_t>& a,
                   IntBlock block);

}  // namespace octavo::kernels
