// int8 activations x int4 weights, exact, with the epilogue of scale_epilogue.h: per channel or in groups along K, each
// group with its own scale, groups added ascending. int2 and int3 codes are int4 codes here. Used by serving and by
// quantized forward passes. The weight is stored unsigned (code + 8), two per byte:
// [N/16][K/8][2][8][4] bytes, 16 columns x 8 steps of K in a cache line; byte (half h, column c, i) holds step i in the
// low and step i + 4 in the high nibble. Each group starts at a new line; the fill is code 0.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/scale_epilogue.h"
#include "octavo/kernels/view.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {

struct PanelsU4 {
  const uint8_t* data = nullptr;      // 32-byte aligned is faster
  const int32_t* col_sums = nullptr;  // [groups, columns padded to 16], needed only by row zero points
  int64_t k = 0, n = 0, group = 0;    // group 0: K is one group
};

int64_t PanelsU4Bytes(int64_t k, int64_t n, int64_t group);
int64_t PanelsU4Sums(int64_t k, int64_t n, int64_t group);

// Packs b [K, N] of codes -8 … 7 (a code outside is a usage error) and, unless null, its column sums.
PanelsU4 PackPanelsU4(ThreadPool& pool, Isa isa, MatrixView<const int8_t> b, int64_t group, uint8_t* data,
                      int32_t* col_sums);
// The code of element (k, n) of packed panels.
int8_t PanelsU4Code(const PanelsU4& panels, int64_t k, int64_t n);

struct MatMulU4Args {
  MatrixView<const int8_t> a = {};  // [M, K]
  PanelsU4 panels = {};             // [K, N]; panels.group is the tile length of the epilogue
  ScaleEpilogue epilogue = {};
  IntOutput out = {};
  Workspace* workspace = nullptr;
};

// Throws a usage error on mismatched shapes or a group past the exact bound of int32.
void MatMulU4(ThreadPool& pool, Isa isa, const MatMulU4Args& args);
// Several products, as MatMulI8's.
void MatMulU4(ThreadPool& pool, Isa isa, std::span<const MatMulU4Args> products);
void MatMulU4Reference(const MatMulU4Args& args);
// Which implementation a product would get, and why each faster one declined.
KernelChoice ChooseMatMulU4(Isa isa, const MatMulU4Args& args);
// The checks, without the work.
void CheckMatMulU4(const MatMulU4Args& args);

}  // namespace octavo::kernels
