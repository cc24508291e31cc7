// The loops behind experts.h. Plain structs only: an instruction-set unit includes this.
#pragma once

#include <cstdint>

#include "octavo/kernels/rows.h"

namespace octavo::kernels {

struct CombineRows {
  ConstRows y;
  const int32_t* row_of;
  const float* weight;
  int64_t top_k;
  MutRows out;  // forward: out; backward: grad_y
  ConstRows grad_out;
  float* grad_weight;
};
// Tokens [begin, end). `chain` holds a row of floats.
void CombineRef(const CombineRows& args, int64_t begin, int64_t end, float* chain);
void CombineAvx2(const CombineRows& args, int64_t begin, int64_t end, float* chain);
void CombineGradRef(const CombineRows& args, int64_t begin, int64_t end);
void CombineGradAvx2(const CombineRows& args, int64_t begin, int64_t end);

}  // namespace octavo::kernels
