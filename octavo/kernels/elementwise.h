// The small operations between matmuls: add, multiply, scale, casts, biases, dropout. Used by ops/. Math is f32; bf16
// is widened on load and rounded once, to nearest even, on store. Outputs may be an input of the same shape and dtype.
#pragma once

#include <cstdint>

#include "octavo/base/rng.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/elementwise_rows.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {

struct ElementwiseArgs {
  ElementwiseOp op = ElementwiseOp::kAdd;
  ConstRows a, b;    // b is not used by kScale
  MutRows out;       // one shape and dtype for all
  float scalar = 1;  // of kScale and kAddScaled
};
void Elementwise(ThreadPool& pool, Isa isa, const ElementwiseArgs& args);

// out = in, between any two of f32, bf16 and f16. Keeps subnormals; NaN becomes the quiet NaN of its sign.
void Cast(ThreadPool& pool, Isa isa, const ConstRows& in, const MutRows& out);

// out[r, c] = x[r, c] + bias[c]; bias is f32 or bf16.
struct BiasArgs {
  ConstRows x;
  const void* bias = nullptr;  // [cols]
  DType bias_dtype = DType::kF32;
  MutRows out;
};
void BiasAdd(ThreadPool& pool, Isa isa, const BiasArgs& args);

// grad_bias[c] = the sum of grad_y[r, c] over rows, in leaves (leaves.h).
struct BiasGradArgs {
  ConstRows grad_y;
  float* grad_bias = nullptr;  // [cols]
  bool accumulate = false;     // add to it
  Sequences sequences;
};
void BiasGrad(ThreadPool& pool, Isa isa, const BiasGradArgs& args);

// out = x / (1 - rate) where element (global row, c) of the stream of `key` is below 1 - rate, else 0: Flax's dropout
// and jax.random.bernoulli. The index is global_row * cols + c, so a shard or a micro-batch sees its part of the same
// mask. The gradient is the same call on grad_y.
struct DropoutArgs {
  ConstRows x;
  MutRows out;
  RngKey key;
  double rate = 0;                      // 0 … 1
  const int64_t* global_row = nullptr;  // [rows]; null: row r is global row first_row + r
  int64_t first_row = 0;
};
void Dropout(ThreadPool& pool, Isa isa, const DropoutArgs& args);

}  // namespace octavo::kernels
