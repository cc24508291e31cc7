// The F family: C = epilogue(A · B) with f32 fused multiply-adds. A and B may be stored as f32, bf16, f16 or as codes
// with scales (fp8, fp4, mx, nv, weight-only integers): they are decoded on the way into the product. Used by ops/ and
// quant/; weights that are used again and again are packed once (weight_only.h). It does not quantize.
//
// Bits. Every element of C is
//     acc = leaf(0) + leaf(1) + …                    leaves added ascending; 0 leaves give +0
//     leaf(i) = fma chain from +0 over k = 256 i … 256 i + 255, ascending
// and then the epilogue, one rounding per step. That holds for any shape, stride, instruction set and thread count, so
// a row computed alone equals the same row of a batch. Which NaN a NaN result is, is not specified.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/float_source.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {

class PackedWeights;

inline constexpr int64_t kLeaf = 256;

// One factor or addend per row or column; stride 0 means one for all. Null data: absent.
struct Vector {
  const float* data = nullptr;
  int64_t stride = 1;
};

// out = acc; out *= row_scale[m]; out *= col_scale[n]; out += bias[n]; if accumulate: out = c + out; then stored.
struct EpilogueF32 {
  Vector row_scale, col_scale, bias;
  bool accumulate = false;
};

struct MatMulF32Args {
  FloatSource a;  // [M, K]
  FloatSource b;  // [K, N]; not looked at when packed_b is set
  FloatResult c;  // [M, N]; must not overlap a or b
  EpilogueF32 epilogue;
  const PackedWeights* packed_b = nullptr;  // [K, N], packed once (weight_only.h)
};

// One product, or several independent ones in one go (the threads flow from one to the next). Shapes that do not match
// are a usage error. Any M, N, K >= 0.
void MatMulF32(ThreadPool& pool, Isa isa, Workspace& workspace, const MatMulF32Args& args);
void MatMulF32(ThreadPool& pool, Isa isa, Workspace& workspace, std::span<const MatMulF32Args> many);

// Rows sorted by group, as experts need them: group g owns the next group_rows[g] rows of A and C and multiplies them
// by its own B. Rows past the last group become zero (kept when accumulating).
struct GroupedF32Args {
  FloatSource a;                                   // [R, K]
  std::span<const int64_t> group_rows;             // may hold zeros; sum <= R
  std::span<const FloatSource> b;                  // one [K, N] per group, or empty and
  std::span<const PackedWeights* const> packed_b;  // one per group
  FloatResult c;                                   // [R, N]
  Vector row_scale;                                // [R]
  std::span<const Vector> col_scale;               // one per group, or empty
  bool accumulate = false;
};
void GroupedMatMulF32(ThreadPool& pool, Isa isa, Workspace& workspace, const GroupedF32Args& args);

// The gradient of the experts' weights: c[g] = A_gᵀ · G_g over the rows of group g. K of a group starts at the group's
// first row, so its leaves do not depend on the other groups. An empty group gives zeros.
struct GroupedGradF32Args {
  FloatSource a;                        // [R, K]
  FloatSource grad;                     // [R, N]
  std::span<const int64_t> group_rows;  // sum <= R
  std::span<const FloatResult> c;       // one [K, N] per group
  bool accumulate = false;
};
void GroupedGradF32(ThreadPool& pool, Isa isa, Workspace& workspace, const GroupedGradF32Args& args);

// Which kernel a product would get, and why each faster one declined: for plans, doctor and the benchmark.
struct KernelChoice {
  std::string name;
  std::vector<std::string> declined;  // "name: reason", in the order they were asked
};
KernelChoice ChooseMatMulF32(Isa isa, const MatMulF32Args& args);

}  // namespace octavo::kernels
