// Loops over a matrix of scaled blocks on threads, for codes that the int8 kernels do not make. Only files of quant/
// include this.
#pragma once

#include <algorithm>
#include <cstdint>

#include "octavo/quant/quantize_run.h"

namespace octavo::quant {

// codes[i] = encode(value, block) for every element of a contiguous matrix; blocks are numbered row-major. Rows are
// shared out to the threads.
template <typename E, typename Encode>
void EncodeMatrix(const Run& run, const Tensor& array, const MatrixBlocks& b, const Encode& encode, uint8_t* codes) {
  const auto* values = array.Data<typename E::Stored>();
  const int64_t blocks = b.cols / b.block_cols, grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(b.cols, 1));
  run.pool.ParallelFor(b.rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      for (int64_t c = 0; c < blocks; ++c) {
        const int64_t at = r * b.cols + c * b.block_cols, block = r / b.block_rows * blocks + c;
        for (int64_t i = at; i < at + b.block_cols; ++i) codes[i] = encode(E::Load(values[i]), block);
      }
    }
  });
}

}  // namespace octavo::quant
