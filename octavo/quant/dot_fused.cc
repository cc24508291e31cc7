// The fast dot in one kernel call per batch index: sums, zero points, scales, tiles and the rounding to the result.
#include <vector>

#include "octavo/kernels/matmul_i8.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

// The dtype in which the scales are applied, if the kernels have it: all scales f32, or all bf16.
std::optional<DType> ScaleMathDType(const DotParts& lhs, const DotParts& rhs) {
  if (!lhs.scale && !rhs.scale) return std::nullopt;
  const DType dtype = lhs.scale ? lhs.scale->dtype() : rhs.scale->dtype();
  if (rhs.scale && rhs.scale->dtype() != dtype) return std::nullopt;
  if (dtype != DType::kF32 && dtype != DType::kBF16) return std::nullopt;
  return dtype;
}

// A scale or zero point with one value per position on free and batch axes; contracted axes keep their tiles.
Tensor Expanded(const Tensor& part, const Shape& own, const std::vector<int>& contract) {
  std::vector<int64_t> dims(own.begin(), own.end());
  for (int axis : contract) dims[static_cast<size_t>(axis)] = part.dim(axis);
  std::vector<int64_t> repeated(dims);
  for (int axis = 0; axis < part.rank(); ++axis) {
    if (part.dim(axis) == 1) repeated[static_cast<size_t>(axis)] = 1;  // a stride of 0 does it without a copy
  }
  return part.RepeatTo(Shape(repeated)).BroadcastTo(Shape(dims));
}

template <typename T>
kernels::ScaleView<T> RowsOf(const Tensor& matrices, int64_t batch, int row_axis, int tile_axis) {
  return {matrices.Data<T>() + batch * matrices.stride(0), matrices.stride(row_axis),
          matrices.dim(tile_axis) == 1 ? 0 : matrices.stride(tile_axis)};
}

// The tile of the contracted axis, 0 for none; nullopt when the kernels cannot cut K like that.
std::optional<int64_t> KernelTile(const DotParts& lhs, const DotParts& rhs, const DotDims& dims) {
  std::optional<int64_t> found;
  bool several = dims.lhs_contract.size() > 1;
  auto look = [&](const DotParts& parts, const std::vector<int>& contract) {
    if (!parts.scale) return true;
    for (int axis : contract) {
      const int64_t n = parts.side.values.dim(axis), pieces = parts.scale->dim(axis);
      if (pieces == 1) continue;
      if (pieces == n || several) return false;
      if (found && *found != n / pieces) return false;
      found = n / pieces;
    }
    return true;
  };
  if (!look(lhs, dims.lhs_contract) || !look(rhs, dims.rhs_contract)) return std::nullopt;
  return found.value_or(0);
}

template <typename T>
kernels::MatrixView<const T> Matrix(const Tensor& matrices, int64_t batch) {
  return {matrices.Data<T>() + batch * matrices.stride(0), matrices.dim(1), matrices.dim(2), matrices.stride(1),
          matrices.stride(2)};
}

// Scales and zero points of one side as [batch, rows, tiles] (left) or [batch, tiles, columns] (right).
struct SideScales {
  std::optional<Tensor> scale, zero;
};
SideScales LeftScales(const DotParts& lhs, const DotDims& dims) {
  SideScales result;
  const Shape& own = lhs.side.values.shape();
  if (lhs.scale)
    result.scale = LeftMatrices(CastFloat(Expanded(*lhs.scale, own, dims.lhs_contract), DType::kF32), dims);
  if (lhs.zero_point) result.zero = LeftMatrices(Expanded(*lhs.zero_point, own, dims.lhs_contract), dims);
  return result;
}
SideScales RightScales(const DotParts& rhs, const DotDims& dims) {
  SideScales result;
  const Shape& own = rhs.side.values.shape();
  if (rhs.scale)
    result.scale = RightMatrices(CastFloat(Expanded(*rhs.scale, own, dims.rhs_contract), DType::kF32), dims);
  if (rhs.zero_point) result.zero = RightMatrices(Expanded(*rhs.zero_point, own, dims.rhs_contract), dims);
  return result;
}

}  // namespace

std::optional<Tensor> TryFusedDot(const Run& run, const DotParts& lhs, const DotParts& rhs, const DotDims& dims,
                                  DType result) {
  if (run.reference) return std::nullopt;
  const bool codes = IsInteger(lhs.side) && IsInteger(rhs.side) && lhs.side.values.dtype() == DType::kI8 &&
                     rhs.side.values.dtype() == DType::kI8;
  const auto math = ScaleMathDType(lhs, rhs);
  const auto tile = KernelTile(lhs, rhs, dims);
  if (!codes || !math || !tile) return std::nullopt;
  const Shape shape = DotShape("FastDot", lhs.side.values.shape(), rhs.side.values.shape(), dims);
  const Tensor left = LeftMatrices(lhs.side.values, dims), right = RightMatrices(rhs.side.values, dims);
  const SideScales left_scales = LeftScales(lhs, dims), right_scales = RightScales(rhs, dims);
  const int64_t m = left.dim(1), n = right.dim(2);
  Tensor out = Tensor::Empty({left.dim(0), m, n}, *math);
  for (int64_t batch = 0; batch < left.dim(0); ++batch) {
    kernels::MatMulI8Args args;
    args.a = Matrix<int8_t>(left, batch);
    args.b = Matrix<int8_t>(right, batch);
    args.tile = *tile;
    args.arena = &run.arena;
    auto& epilogue = args.epilogue;
    epilogue.math = *math == DType::kF32 ? kernels::ScaleMath::kF32 : kernels::ScaleMath::kBF16;
    if (left_scales.scale) epilogue.row_scale = RowsOf<float>(*left_scales.scale, batch, 1, 2);
    if (left_scales.zero) epilogue.row_zero = RowsOf<int8_t>(*left_scales.zero, batch, 1, 2);
    if (right_scales.scale) epilogue.col_scale = RowsOf<float>(*right_scales.scale, batch, 2, 1);
    if (right_scales.zero) epilogue.col_zero = RowsOf<int8_t>(*right_scales.zero, batch, 2, 1);
    if (*math == DType::kF32) {
      args.out.f32 = kernels::RowMajor(out.MutableData<float>() + batch * m * n, m, n);
    } else {
      args.out.bf16 = kernels::RowMajor(out.MutableData<uint16_t>() + batch * m * n, m, n);
    }
    kernels::MatMulI8(run.pool, run.isa, args);
  }
  if (run.macs != nullptr) run.macs->integer += left.size() * n;
  return CastTo(out.Reshape(shape), result);
}

}  // namespace octavo::quant
