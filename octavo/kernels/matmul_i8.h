// int8 x int8 products with exact int32 sums and a fused epilogue (scale_epilogue.h): out = a · b for a [M, K] and b
// [K, N]. Transposed products come from the strides: G · Bᵀ passes b.Transposed(), Aᵀ · G passes a.Transposed().
// Used by quantized dots, forward and backward, and by serving (M = 1 … 8 stream the same panels with the same bits).
// Exact for all of -128 … 127. Does not choose scales (quantize.h) and does not saturate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/pack_i8.h"
#include "octavo/kernels/scale_epilogue.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {

// An int32 accumulator holds this many products of int8 codes; one more step is refused. A zero point doubles a
// factor's range and halves the bound.
inline constexpr int64_t kMaxExactSteps = 131071;

struct MatMulI8Args {
  MatrixView<const int8_t> a = {};  // [M, K]
  MatrixView<const int8_t> b = {};  // [K, N]; unused when `panels` has data
  PanelsI8 panels = {};             // b packed before; its tile must equal `tile`
  int64_t tile = 0;                 // K tile length with its own scales; 0: one tile
  ScaleEpilogue epilogue = {};
  IntOutput out = {};
  Workspace* workspace = nullptr;  // scratch; null: allocated for this call
};

// Throws a usage error on mismatched shapes, K past the exact bound, or an output that does not fit the epilogue.
void MatMulI8(ThreadPool& pool, Isa isa, const MatMulI8Args& args);
// Several products, each with the bits it has alone. Weights that the same few rows stream go through one run of the
// pool.
void MatMulI8(ThreadPool& pool, Isa isa, std::span<const MatMulI8Args> products);

// Which implementation a product would get, and why each faster one declined.
KernelChoice ChooseMatMulI8(Isa isa, const MatMulI8Args& args);

// The checks of MatMulI8, without the work; and the parts that its relatives share.
void CheckMatMulI8(const MatMulI8Args& args);
void CheckExactSteps(const char* who, const ScaleEpilogue& epilogue, int64_t steps);
void CheckIntOutput(const char* who, const IntOutput& out, const ScaleEpilogue& epilogue, bool tiled, int64_t rows,
                    int64_t cols);

// The same bits, one plain loop. The other implementations are tested against it.
void MatMulI8Reference(const MatMulI8Args& args);

}  // namespace octavo::kernels
