#include "octavo/quant/ragged_fused.h"

#include <vector>

#include "octavo/kernels/matmul_i8_grouped.h"
#include "octavo/quant/frozen_weight.h"
#include "octavo/quant/fused_parts.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

bool Usable(const Run& run, const DotParts& lhs, const DotParts& rhs) {
  return !run.reference && HasByteCodes(lhs) && HasByteCodes(rhs) && !lhs.zero_point && !rhs.zero_point &&
         ScaleMathDType(lhs, rhs).has_value();
}

// A scale as f32 whose axis has one value or one per position; false for tiles along it.
bool Plain(const Tensor& scale, int axis, int64_t length) { return scale.dim(axis) == 1 || scale.dim(axis) == length; }

int64_t StepOf(const Tensor& scale, int axis) { return scale.dim(axis) == 1 ? 0 : scale.stride(axis); }

int64_t OwnedRows(std::span<const int64_t> group_sizes, int64_t rows) {
  int64_t owned = 0;
  for (int64_t size : group_sizes) owned = std::min(rows, owned + size);
  return owned;
}

kernels::MatrixView<const int8_t> Matrix(const Tensor& codes) {
  return {codes.Data<int8_t>(), codes.dim(0), codes.dim(1), codes.stride(0), codes.stride(1)};
}

void SetMath(DType math, kernels::ScaleEpilogue& epilogue) {
  epilogue.math = math == DType::kF32 ? kernels::ScaleMath::kF32 : kernels::ScaleMath::kBF16;
}

}  // namespace

std::optional<Tensor> TryGroupedRows(const Run& run, const DotParts& lhs, const DotParts& rhs,
                                     std::span<const int64_t> group_sizes, DType result) {
  if (!Usable(run, lhs, rhs)) return std::nullopt;
  const Tensor &a = lhs.side.values, &b = rhs.side.values;
  const int64_t m = a.dim(0), k = a.dim(1), groups = b.dim(0), n = b.dim(2);
  const auto tile = KernelTile(lhs, rhs, {{1}, {1}, {}, {}});
  if (!tile || (lhs.scale && !Plain(*lhs.scale, 0, m)) ||
      (rhs.scale && (!Plain(*rhs.scale, 0, groups) || !Plain(*rhs.scale, 2, n)))) {
    return std::nullopt;
  }
  const DType math = *ScaleMathDType(lhs, rhs);
  FrozenWeight once;
  const PackedGroups* packed = (run.frozen == nullptr ? &once : run.frozen)->Groups(run, b, *tile);
  const int64_t each = kernels::PanelsI8Bytes(k, n, *tile);
  std::vector<kernels::PanelsI8> panels;
  for (int64_t group = 0; group < groups; ++group) {
    panels.push_back({packed->panels.Data<int8_t>() + group * each, nullptr, k, n, *tile});
  }
  kernels::GroupedI8Args args;
  args.a = Matrix(a);
  args.group_sizes = group_sizes;
  args.panels = panels;
  args.tile = *tile;
  args.workspace = &run.workspace;
  SetMath(math, args.epilogue);
  Tensor left, right;  // keep what the views point into
  if (lhs.scale) {
    left = CastFloat(*lhs.scale, DType::kF32);
    args.epilogue.row_scale = {left.Data<float>(), StepOf(left, 0), StepOf(left, 1)};
  }
  if (rhs.scale) {
    right = CastFloat(*rhs.scale, DType::kF32);
    args.epilogue.col_scale = {right.Data<float>(), StepOf(right, 2), StepOf(right, 1)};
    args.col_scale_group_stride = StepOf(right, 0);
  }
  Tensor out = Tensor::Empty({1, m, n}, math);
  args.out = OutputOf(out, 0);
  kernels::GroupedMatMulI8(run.pool, run.isa, args);
  if (run.macs != nullptr) run.macs->integer += OwnedRows(group_sizes, m) * k * n;
  return CastTo(out.Reshape({m, n}), result);
}

std::optional<Tensor> TryGroupedSums(const Run& run, const DotParts& lhs, const DotParts& rhs,
                                     std::span<const int64_t> group_sizes, DType result) {
  if (!Usable(run, lhs, rhs)) return std::nullopt;
  const Tensor &a = lhs.side.values, &b = rhs.side.values;
  const int64_t m = a.dim(0), k = a.dim(1), n = b.dim(1), groups = static_cast<int64_t>(group_sizes.size());
  const auto shared_rows = [&](const std::optional<Tensor>& scale, int64_t columns) {
    return !scale || (scale->dim(0) == 1 && Plain(*scale, 1, columns));
  };
  if (!shared_rows(lhs.scale, k) || !shared_rows(rhs.scale, n)) return std::nullopt;
  const DType math = *ScaleMathDType(lhs, rhs);
  kernels::GroupedI8TransposedArgs args;
  args.a = Matrix(a);
  args.b = Matrix(b);
  args.group_sizes = group_sizes;
  args.workspace = &run.workspace;
  SetMath(math, args.epilogue);
  Tensor left, right;
  if (lhs.scale) {
    left = CastFloat(*lhs.scale, DType::kF32);
    args.epilogue.row_scale = {left.Data<float>(), StepOf(left, 1), 0};
  }
  if (rhs.scale) {
    right = CastFloat(*rhs.scale, DType::kF32);
    args.epilogue.col_scale = {right.Data<float>(), StepOf(right, 1), 0};
  }
  Tensor out = Tensor::Empty({1, groups * k, n}, math);
  args.out = OutputOf(out, 0);
  kernels::GroupedMatMulI8Transposed(run.pool, run.isa, args);
  if (run.macs != nullptr) run.macs->integer += OwnedRows(group_sizes, m) * k * n;
  return CastTo(out.Reshape({groups, k, n}), result);
}

}  // namespace octavo::quant
