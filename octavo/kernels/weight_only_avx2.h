// Inside the F family: one thread's work on packed weights in AVX2. Plain structs for instruction-set units.
#pragma once

#include <cstdint>

#include "octavo/kernels/weight_only_view.h"

namespace octavo::kernels::internal {

// out[k][16] = the weights of rows [k0, k0 + depth) of one panel, decoded and scaled.
void DecodePanelAvx2(const PackedView& view, int64_t panel, int64_t k0, int64_t depth, float* out);

inline constexpr int64_t kVectorPanels = 2;  // panels of one job at most

// sums[m][16 p + n] for a few rows and panels [panel, panel + panels), panels <= kVectorPanels, rows <= 8. `a` is
// [K][rows]; row m of the sums starts at sums + m * sums_stride.
struct VectorJob {
  const PackedView* view = nullptr;
  int64_t panel = 0, panels = 0;
  const float* a = nullptr;
  int64_t rows = 1;
  float* sums = nullptr;
  int64_t sums_stride = 0;
};
void RunVectorAvx2(const VectorJob& job);

}  // namespace octavo::kernels::internal
