// Ragged int8 products for experts: the rows of `a` are sorted by group, group g owns the next group_sizes[g] rows (an
// empty group owns none; rows past the last group belong to nobody; sizes that sum past M stop at M).
//   GroupedMatMulI8:          out [M, N], row m of group g = a[m] · b_g; rows of nobody are zero
//   GroupedMatMulI8Transposed: out [G, K, N], slice g = (rows of g of a)ᵀ · (rows of g of b); empty groups are zero
// Bits of each row equal those of a plain MatMulI8 of that row with that group's weight.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/kernels/matmul_i8.h"

namespace octavo::kernels {

struct GroupedI8Args {
  MatrixView<const int8_t> a = {};            // [M, K]
  std::span<const int64_t> group_sizes = {};  // [G]
  std::span<const PanelsI8> panels = {};      // [G], each [K, N]
  int64_t tile = 0;
  ScaleEpilogue epilogue = {};         // row scales by row of `a`; no zero points
  int64_t col_scale_group_stride = 0;  // added to col_scale.data per group; 0: one scale for all groups
  IntOutput out = {};                  // [M, N]
  Workspace* workspace = nullptr;
};
void GroupedMatMulI8(ThreadPool& pool, Isa isa, const GroupedI8Args& args);
void GroupedMatMulI8Reference(const GroupedI8Args& args);

struct GroupedI8TransposedArgs {
  MatrixView<const int8_t> a = {};            // [M, K]
  MatrixView<const int8_t> b = {};            // [M, N]
  std::span<const int64_t> group_sizes = {};  // [G]
  ScaleEpilogue epilogue = {};  // row scales by row of a slice (K), column scales by N; no zero points, no bias
  IntOutput out = {};           // [G * K, N]: slice g is rows g * K … of it
  Workspace* workspace = nullptr;
};
void GroupedMatMulI8Transposed(ThreadPool& pool, Isa isa, const GroupedI8TransposedArgs& args);
void GroupedMatMulI8TransposedReference(const GroupedI8TransposedArgs& args);

// The checks, the plain product of one group (rows begin … end), and the rows of nobody.
void CheckGroupedMatMulI8(const GroupedI8Args& args);
void CheckGroupedMatMulI8Transposed(const GroupedI8TransposedArgs& args);
MatMulI8Args ArgsOfGroup(const GroupedI8Args& args, size_t group, int64_t begin, int64_t end);
MatMulI8Args ArgsOfGroup(const GroupedI8TransposedArgs& args, size_t group, int64_t begin, int64_t end);
void ZeroRows(const IntOutput& out, int64_t begin, int64_t end);

}  // namespace octavo::kernels
