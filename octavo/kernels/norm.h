// RMS norm and layer norm over the last axis, forward and backward. Used by ops/norm. Rows are independent; sums over
// features follow rule R3 (lanes.h), the gradients of weight and bias sum over rows in leaves (leaves.h). Math is f32;
// bf16 rows are widened on load and rounded once on store.
//
//   RMS:    inv = 1 / sqrt(sum(x^2) / n + eps)                            xhat = x * inv
//   layer:  mean = sum(x) / n, inv = 1 / sqrt(sum((x - mean)^2) / n + eps)   xhat = (x - mean) * inv
//   y = xhat * (weight + weight_offset) + bias, each operation rounded.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {

enum class NormKind : uint8_t { kRms, kLayer };

// What both directions need to know. `weight` and `bias` are [cols], f32 or bf16, absent when null.
struct NormSpec {
  NormKind kind = NormKind::kRms;
  float epsilon = 1e-6f;
  const void* weight = nullptr;
  const void* bias = nullptr;        // layer norm and RMS norm alike
  DType weight_dtype = DType::kF32;  // of weight and bias
  float weight_offset = 0;           // 1 for models that store the weight less one
  bool round_before_weight = false;  // round xhat to the rows' dtype first, as the JAX and PyTorch llama norms do
};

struct NormForwardArgs {
  NormSpec spec;
  ConstRows x;
  MutRows y;              // same shape and dtype as x; may be x itself
  float* inv = nullptr;   // [rows], may be null; the backward pass needs it
  float* mean = nullptr;  // [rows], layer norm only
};
void NormForward(ThreadPool& pool, Isa isa, const NormForwardArgs& args);

struct NormBackwardArgs {
  NormSpec spec;
  ConstRows x, grad_y;
  const float* inv = nullptr;    // [rows], from the forward pass
  const float* mean = nullptr;   // [rows], layer norm only
  MutRows grad_x;                // no data: not wanted; may be grad_y itself
  float* grad_weight = nullptr;  // [cols], may be null
  float* grad_bias = nullptr;    // [cols], may be null
  bool accumulate = false;       // add to grad_weight and grad_bias
  Sequences sequences;
};
void NormBackward(ThreadPool& pool, Isa isa, const NormBackwardArgs& args);

}  // namespace octavo::kernels
