// N:M sparsity of weights: of each group of m elements only the n largest by magnitude are kept. Masks, pruning and the
// schedule that refreshes a mask during training. Used by the training dots and by recipes.
#pragma once

#include <cstdint>

#include "octavo/tensor/tensor.h"

namespace octavo::quant {

enum class SparsityOrder : uint8_t {
  kLastAxis,     // groups along the last axis ('R')
  kSecondToLast  // groups along the axis before it ('C'): for a weight [K, N] along K
};

struct SparsityPattern {
  int64_t n = 0, m = 0;
  SparsityOrder order = SparsityOrder::kLastAxis;
  int64_t block = 0;   // > 1: whole blocks of this length along the same axis are kept or dropped, by the sum of |x|
  int64_t offset = 0;  // > 1: the elements of a group lie this far apart, inside a run of m * offset
};

// u8, 1 = keep. On ties the lower index stays. If the axis is not a multiple of the run, groups go over the whole array
// in row-major order. Errors: n > m, m < 1, a size that is no multiple of m, blocks that do not divide their axis.
Tensor SparsityMask(const Tensor& array, const SparsityPattern& pattern);

// The array where the mask is 1, else 0.
Tensor Pruned(const Tensor& array, const Tensor& mask);

// Keeps |x| strictly above the `rate` percentile (0 … 100) of the magnitudes, linearly interpolated.
Tensor UnstructuredMask(const Tensor& array, double rate);

// When a mask is renewed: from `start_step` on every `update_step` steps; never in evaluation.
struct SparsitySchedule {
  int64_t start_step = 0, update_step = 1;
  bool eval_mode = false;
  bool RenewsAt(int64_t step) const;
};

// Named state of one weight under a schedule. Starts with step 0 and a mask that keeps everything.
struct SparsityState {
  int32_t step = 0;
  Tensor mask;
};
SparsityState InitialSparsity(const Shape& weight);
// One training step: the state after it; its mask is the one to prune with.
SparsityState NextSparsity(const SparsityState& state, const Tensor& weight, const SparsityPattern& pattern,
                           const SparsitySchedule& schedule);

}  // namespace octavo::quant
