// Activations and gates, forward and backward, element by element. Used by ops/activation and ops/mlp. Math is f32 with
// the functions of math.h; bf16 is widened on load and rounded once on store. The backward pass computes from the input
// again and keeps nothing.
//
//   relu      max(0, x)                    gelu tanh  x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)), the same function
//   silu      x * sigmoid(p x)                        as x (1 + tanh(…)) / 2 without its cancellation
//   sigmoid, tanh                          gelu erf   x (1 + erf(x / sqrt 2)) / 2
//   soft cap  p * tanh(x / p)
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/activation_rows.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {

struct ActivationArgs {
  ActivationSpec spec;
  ConstRows x;
  MutRows y;  // may be x itself
};
void ActivationForward(ThreadPool& pool, Isa isa, const ActivationArgs& args);

struct ActivationGradArgs {
  ActivationSpec spec;
  ConstRows x, grad_y;
  MutRows grad_x;  // may be grad_y or x itself
};
void ActivationBackward(ThreadPool& pool, Isa isa, const ActivationGradArgs& args);

// y = activation(min(gate, limit)) * (clamp(up, -limit, limit) + up_offset): SwiGLU, GeGLU and their clipped kin.
struct GateArgs {
  GateSpec spec;
  ConstRows gate, up;
  MutRows y;  // may be gate or up itself
};
void GateForward(ThreadPool& pool, Isa isa, const GateArgs& args);

// A clipped input gets no gradient; at the limit itself it does.
struct GateGradArgs {
  GateSpec spec;
  ConstRows gate, up, grad_y;
  MutRows grad_gate, grad_up;  // may be gate and up
};
void GateBackward(ThreadPool& pool, Isa isa, const GateGradArgs& args);

}  // namespace octavo::kernels
