#include "octavo/kernels/matmul_i8_grouped.h"

#include <algorithm>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/matmul_i8_parts.h"

namespace octavo::kernels {
namespace {

template <typename T>
MatrixView<T> RowsOf(const MatrixView<T>& view, int64_t begin, int64_t end) {
  if (view.data == nullptr) return view;
  return {view.data + begin * view.row_stride, end - begin, view.cols, view.row_stride, view.col_stride};
}

IntOutput RowsOf(const IntOutput& out, int64_t begin, int64_t end) {
  return {RowsOf(out.i32, begin, end), RowsOf(out.f32, begin, end), RowsOf(out.bf16, begin, end)};
}

template <typename T>
void Zero(const MatrixView<T>& view) {
  if (view.data == nullptr) return;
  for (int64_t r = 0; r < view.rows; ++r) {
    if (view.col_stride == 1) {
      std::fill_n(view.data + r * view.row_stride, view.cols, T{});
      continue;
    }
    for (int64_t c = 0; c < view.cols; ++c) view.at(r, c) = T{};
  }
}

void CheckSizes(const char* who, std::span<const int64_t> sizes, const ScaleEpilogue& epilogue) {
  for (size_t g = 0; g < sizes.size(); ++g) {
    if (sizes[g] < 0) ThrowUsage("{}: group {} has {} rows, expected 0 or more", who, g, sizes[g]);
  }
  if (epilogue.row_zero.data != nullptr || epilogue.col_zero.data != nullptr) {
    ThrowUsage("{}: zero points are given, expected none", who);
  }
}

}  // namespace

void ZeroRows(const IntOutput& out, int64_t begin, int64_t end) {
  const IntOutput rows = RowsOf(out, begin, end);
  Zero(rows.i32);
  Zero(rows.f32);
  Zero(rows.bf16);
}

MatMulI8Args ArgsOfGroup(const GroupedI8Args& args, size_t group, int64_t begin, int64_t end) {
  MatMulI8Args one{.a = RowsOf(args.a, begin, end),
                   .b = {},
                   .panels = args.panels[group],
                   .tile = args.tile,
                   .epilogue = args.epilogue,
                   .out = RowsOf(args.out, begin, end),
                   .workspace = args.workspace};
  if (one.epilogue.row_scale.data != nullptr) one.epilogue.row_scale.data += begin * one.epilogue.row_scale.stride;
  if (one.epilogue.col_scale.data != nullptr) {
    one.epilogue.col_scale.data += static_cast<int64_t>(group) * args.col_scale_group_stride;
  }
  return one;
}

MatMulI8Args ArgsOfGroup(const GroupedI8TransposedArgs& args, size_t group, int64_t begin, int64_t end) {
  const int64_t depth = args.a.cols, first = static_cast<int64_t>(group) * depth;
  return {.a = RowsOf(args.a, begin, end).Transposed(),
          .b = RowsOf(args.b, begin, end),
          .panels = {},
          .tile = 0,
          .epilogue = args.epilogue,
          .out = RowsOf(args.out, first, first + depth),
          .workspace = args.workspace};
}

void CheckGroupedMatMulI8(const GroupedI8Args& args) {
  const char* who = "GroupedMatMulI8";
  CheckSizes(who, args.group_sizes, args.epilogue);
  if (args.panels.size() != args.group_sizes.size()) {
    ThrowUsage("{}: {} weights for {} groups", who, args.panels.size(), args.group_sizes.size());
  }
  for (size_t g = 0; g < args.panels.size(); ++g) {
    if (args.panels[g].data == nullptr || args.panels[g].n != args.panels[0].n) {
      ThrowUsage("{}: weight {} has {} columns, weight 0 has {}", who, g, args.panels[g].n, args.panels[0].n);
    }
    CheckMatMulI8(ArgsOfGroup(args, g, 0, args.a.rows));
  }
}

void CheckGroupedMatMulI8Transposed(const GroupedI8TransposedArgs& args) {
  const char* who = "GroupedMatMulI8Transposed";
  CheckSizes(who, args.group_sizes, args.epilogue);
  if (args.a.rows != args.b.rows) {
    ThrowUsage("{}: lhs [{}, {}] has {} rows, rhs [{}, {}] has {}", who, args.a.rows, args.a.cols, args.a.rows,
               args.b.rows, args.b.cols, args.b.rows);
  }
  if (args.epilogue.bias.data != nullptr) ThrowUsage("{}: a bias is given, expected none", who);
  CheckExactSteps(who, args.epilogue, args.a.rows);
  CheckIntOutput(who, args.out, args.epilogue, false, static_cast<int64_t>(args.group_sizes.size()) * args.a.cols,
                 args.b.cols);
}

namespace {

// All groups as one list of plain products.
template <typename Args>
void RunGroups(ThreadPool& pool, Isa isa, const Args& args) {
  std::vector<MatMulI8Args> plain;
  int64_t begin = 0;
  for (size_t g = 0; g < args.group_sizes.size(); ++g) {
    const int64_t end = std::min(args.a.rows, begin + args.group_sizes[g]);
    const MatMulI8Args one = ArgsOfGroup(args, g, begin, end);
    if (one.a.cols == 0) {
      ZeroRows(one.out, 0, one.a.rows);  // an empty group of the transposed product
    } else {
      plain.push_back(one);
    }
    begin = end;
  }
  Workspace own;
  Workspace& workspace = args.workspace != nullptr ? *args.workspace : own;
  int64_t bytes = 0;
  for (const MatMulI8Args& one : plain) bytes += PanelsScratch(isa, one);
  std::byte* memory = workspace.Get<std::byte>(kSlotRight, bytes);
  std::vector<IntProduct> products;
  for (const MatMulI8Args& one : plain) {
    products.push_back(ProductI8(isa, one, memory));
    memory += PanelsScratch(isa, one);
  }
  RunIntProducts(pool, workspace, products);
}

}  // namespace

void GroupedMatMulI8(ThreadPool& pool, Isa isa, const GroupedI8Args& args) {
  if (isa == Isa::kReference || args.a.cols == 0) return GroupedMatMulI8Reference(args);
  CheckGroupedMatMulI8(args);
  int64_t owned = 0;
  for (const int64_t size : args.group_sizes) owned = std::min(args.a.rows, owned + size);
  ZeroRows(args.out, owned, args.a.rows);
  RunGroups(pool, isa, args);
}

void GroupedMatMulI8Transposed(ThreadPool& pool, Isa isa, const GroupedI8TransposedArgs& args) {
  if (isa == Isa::kReference) return GroupedMatMulI8TransposedReference(args);
  CheckGroupedMatMulI8Transposed(args);
  RunGroups(pool, isa, args);
}

}  // namespace octavo::kernels
