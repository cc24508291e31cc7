// Weights packed once for the F family: [K, N] codes in panels of columns, in the width they are stored in (f32,
// bf16, f16, int8, fp8, or two 4-bit codes to a byte), with their scales beside them. Products with few rows stream the
// panels at the memory's speed; larger ones decode a block at a time into f32 panels. Used for serving, where
// activations stay f32 and only the weights are quantized, and wherever a float weight is used more than once between
// updates. It does not quantize; int8 activations have kernels of their own (matmul_i8.h, matmul_u4.h).
//
// Bits: a weight is w = fl((decode(code) - zero_point) * scale), rounded once, then it enters the f32 product like any
// other number: what dequantizing first and multiplying then gives, for every row count.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/float_source.h"
#include "octavo/kernels/weight_only_view.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {

class PackedWeights {
 public:
  PackedWeights() = default;

  int64_t depth() const { return view_.depth; }  // K
  int64_t cols() const { return view_.cols; }    // N
  int64_t bytes() const;                         // codes, scales and zero points: what a product must read
  const PackedView& view() const { return view_; }

 private:
  friend PackedWeights PackWeights(ThreadPool& pool, const FloatSource& b);

  PackedView view_;
  Buffer codes_, scales_, zero_points_;
};

// Packs b [K, N]. Bytes whose table depends on the low four bits only (CodeTableOf of int4, nf4, float4_e2m1fn, …) are
// stored two to a byte; tables of whole numbers become int8. Scales and zero points that bf16 holds exactly (powers of
// two, fp8 values) are stored in 16 bits. All of that is lossless. Scales may vary along K in runs of any length.
PackedWeights PackWeights(ThreadPool& pool, const FloatSource& b);

// The weight (k, n), decoded by plain code: the reference for the kernels that decode panels.
float ValueAt(const PackedWeights& weights, int64_t k, int64_t n);

}  // namespace octavo::kernels
