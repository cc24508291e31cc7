// Optimizer steps over one parameter: AdamW, adam_pax and SGD, in f32, element by element. Used by optim/, which owns
// the schedule, the clipping factor, the masks and the names. Scalars are computed in double and rounded once.
//
//   g = grad * grad_scale
//   m = decay1 * m + (1 - decay1) * g          v = decay2 * v + (1 - decay2) * (g * g)
//   w = w - rate * (m / c1 / (sqrt(v / c2 + eps_root) + eps) + weight_decay * w)
//
// AdamW (Optax): decays b1, b2 and corrections c = 1 - b^t, t counted from 1. adam_pax (PaxML): decays
// b (1 - b^(t-1)) / (1 - b^t) and no corrections. The divisions by c are multiplications by the rounded reciprocal.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/optimizer_rows.h"

namespace octavo::kernels {

enum class AdamKind : uint8_t { kAdamW, kAdamPax };

struct AdamArgs {
  AdamKind kind = AdamKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, epsilon_root = 0, weight_decay = 0.1;
  double rate = 0;        // learning rate of this step
  double grad_scale = 1;  // clipping
  int64_t step = 0;       // steps made before this one
  int64_t count = 0;      // elements
  const float* grad = nullptr;
  float* weight = nullptr;
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  double* squares = nullptr;  // ChunkSums (reductions.h) of the squares of the new weights; null: not wanted
};
void AdamUpdate(ThreadPool& pool, Isa isa, const AdamArgs& args);

// trace = g + momentum * trace; w = w - rate * (nesterov ? g + momentum * trace : trace). Without momentum there is no
// trace and w = w - rate * g.
struct SgdArgs {
  double rate = 0, momentum = 0, grad_scale = 1;
  bool nesterov = false;
  int64_t count = 0;
  const float* grad = nullptr;
  float* weight = nullptr;
  float* trace = nullptr;     // null without momentum
  double* squares = nullptr;  // as above
};
void SgdUpdate(ThreadPool& pool, Isa isa, const SgdArgs& args);

}  // namespace octavo::kernels
