// Softmax over rows, and the running maximum and sum of exponentials that the loss shares with it. Used by ops/ (router
// probabilities, distillation) and cross_entropy.h; attention has its own.
//
// A row is cut into tiles of 1024 columns at absolute positions. A tile has its own maximum and the sum of e^(x - max)
// in 16 lanes (lanes.h); tiles are merged ascending, the sum in double:
//     m' = max(m, m_t)      s' = s e^(m - m') + s_t e^(m_t - m')
// so a row that arrives in pieces of whole tiles has the bits of the row that came at once.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/rows.h"
#include "octavo/kernels/softmax_rows.h"

namespace octavo::kernels {

// What has been seen of a row so far. Elements of -inf add nothing; a NaN makes the sum NaN.
struct ExpSum {
  float max = -__builtin_inff();
  double sum = 0;  // of e^(x - max); 0 while everything is -inf

  float Shift() const { return max == -__builtin_inff() ? 0.0f : max; }  // what to subtract from x
  float LogSum() const;                                                  // ln of the sum of e^x
};

// Adds `count` elements, whole tiles except at the row's end.
void AddToExpSum(Isa isa, const void* x, DType dtype, int64_t count, ExpSum& state);

// y = e^(x - max) * fl(1 / sum); a row of -inf gives zeros.
struct SoftmaxArgs {
  ConstRows x;
  MutRows y;  // may be x
};
void SoftmaxForward(ThreadPool& pool, Isa isa, const SoftmaxArgs& args);

// grad_x = y * (grad_y - sum(y * grad_y)), the sum in 16 lanes of FMAs.
struct SoftmaxGradArgs {
  ConstRows y, grad_y;
  MutRows grad_x;  // may be grad_y
};
void SoftmaxBackward(ThreadPool& pool, Isa isa, const SoftmaxGradArgs& args);

}  // namespace octavo::kernels
