// Inside the F family: one thread's work on packed weights, per instruction set. Plain structs for their units.
#pragma once

#include <cstdint>

#include "octavo/kernels/weight_only_view.h"

namespace octavo::kernels::internal {

// Decodes and scales rows [k0, k0 + depth) of columns [col, col + cols), col a multiple of 64, into f32 panels of 16
// columns: panel p of them at out + p * panel_stride, [depth][16]. Columns past N come out as zeros.
void DecodeColsAvx2(const PackedView& view, int64_t k0, int64_t depth, int64_t col, int64_t cols, float* out,
                    int64_t panel_stride);
void DecodeColsAvx512(const PackedView& view, int64_t k0, int64_t depth, int64_t col, int64_t cols, float* out,
                      int64_t panel_stride);

inline constexpr int64_t kVectorCols = 64;  // columns of one job
inline constexpr int64_t kVectorRows = 8;   // rows at most

// sums[m][n] for rows m and the 64 columns from `col`, a multiple of 64. `a` is [K][rows]; sums holds rows * 64 floats,
// scratch as many again.
struct VectorJob {
  const PackedView* view = nullptr;
  int64_t col = 0;
  const float* a = nullptr;
  int64_t rows = 1;
  float* sums = nullptr;
  float* scratch = nullptr;
};
void RunVectorAvx2(const VectorJob& job);
void RunVectorAvx512(const VectorJob& job);

}  // namespace octavo::kernels::internal
