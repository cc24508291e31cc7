// Splits elementwise work over threads. Not for rows.h, which instruction-set units include.
#pragma once

#include <cstdint>

#include "octavo/base/function_ref.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {

// Calls work with blocks that cover rows x cols once. `without_gaps` (every matrix involved) allows flat blocks.
void ForBlocks(ThreadPool& pool, int64_t rows, int64_t cols, bool without_gaps, FunctionRef<void(const Block&)> work);

}  // namespace octavo::kernels
