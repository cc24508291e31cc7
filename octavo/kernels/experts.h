// Moving rows to their experts and back. Used by ops/moe around the grouped matmul. Rows go out with GatherRows
// (embedding.h); here they come back: the weighted sum over a token's experts, in router order, and its gradients.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/experts_rows.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {

// out[t, :] = sum over j of weight[t, j] * y[row_of[t * top_k + j], :], one ascending chain of FMAs from +0.
// Without weights (the gradient of the rows' going out) the chain is of additions.
struct CombineArgs {
  ConstRows y;                      // [tokens * top_k, width], sorted by expert
  const int32_t* row_of = nullptr;  // [tokens * top_k], router.h
  const float* weight = nullptr;    // [tokens, top_k], may be null
  int64_t top_k = 0;
  MutRows out;  // [tokens, width]
};
void CombineExperts(ThreadPool& pool, Isa isa, const CombineArgs& args);

// grad_y[row_of[t * top_k + j], :] = weight[t, j] * grad_out[t, :];
// grad_weight[t, j] = the dot of grad_out[t, :] and y[row_of[…], :], in 16 lanes of FMAs (lanes.h).
struct CombineGradArgs {
  ConstRows y, grad_out;
  const int32_t* row_of = nullptr;
  const float* weight = nullptr;
  int64_t top_k = 0;
  MutRows grad_y;                // may be y
  float* grad_weight = nullptr;  // may be null
};
void CombineExpertsBackward(ThreadPool& pool, Isa isa, const CombineGradArgs& args);

}  // namespace octavo::kernels
