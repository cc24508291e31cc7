// The loops behind norm.h, one pair per instruction set, over checked arguments. Plain structs only: an instruction-set
// unit includes this.
#pragma once

#include <cstdint>

#include "octavo/kernels/rows.h"

namespace octavo::kernels {

// Arguments of a run of rows; weight (offset added) and bias already f32, null when absent.
struct NormRows {
  bool layer = false, round_before_weight = false;
  float epsilon = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  ConstRows x, grad_y;
  MutRows out;  // y, or grad_x
  float* inv = nullptr;
  float* mean = nullptr;
};

void NormForwardRef(const NormRows& args, int64_t begin, int64_t end);
void NormForwardAvx2(const NormRows& args, int64_t begin, int64_t end);

// Rows [begin, end) are one leaf: weight_leaf and bias_leaf ([cols], may be null) are set to its sums.
void NormBackwardRef(const NormRows& args, int64_t begin, int64_t end, float* weight_leaf, float* bias_leaf);
void NormBackwardAvx2(const NormRows& args, int64_t begin, int64_t end, float* weight_leaf, float* bias_leaf);

}  // namespace octavo::kernels
