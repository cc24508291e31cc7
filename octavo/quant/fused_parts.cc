#include "octavo/quant/fused_parts.h"

#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

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

}  // namespace

bool HasByteCodes(const DotParts& parts) { return IsInteger(parts.side) && parts.side.values.dtype() == DType::kI8; }

std::optional<DType> ScaleMathDType(const DotParts& lhs, const DotParts& rhs) {
  if (!lhs.scale && !rhs.scale) return std::nullopt;
  const DType dtype = lhs.scale ? lhs.scale->dtype() : rhs.scale->dtype();
  if (rhs.scale && rhs.scale->dtype() != dtype) return std::nullopt;
  if (dtype != DType::kF32 && dtype != DType::kBF16) return std::nullopt;
  return dtype;
}

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

void SetScales(const SideScales& left, const SideScales& right, int64_t batch, DType math,
               kernels::ScaleEpilogue& epilogue) {
  epilogue.math = math == DType::kF32 ? kernels::ScaleMath::kF32 : kernels::ScaleMath::kBF16;
  if (left.scale) epilogue.row_scale = RowsOf<float>(*left.scale, batch, 1, 2);
  if (left.zero) epilogue.row_zero = RowsOf<int8_t>(*left.zero, batch, 1, 2);
  if (right.scale) epilogue.col_scale = RowsOf<float>(*right.scale, batch, 2, 1);
  if (right.zero) epilogue.col_zero = RowsOf<int8_t>(*right.zero, batch, 2, 1);
}

kernels::IntOutput OutputOf(Tensor& out, int64_t batch) {
  const int64_t m = out.dim(1), n = out.dim(2);
  kernels::IntOutput result;
  if (out.dtype() == DType::kF32) {
    result.f32 = kernels::RowMajor(out.MutableData<float>() + batch * m * n, m, n);
  } else {
    result.bf16 = kernels::RowMajor(out.MutableData<uint16_t>() + batch * m * n, m, n);
  }
  return result;
}

}  // namespace octavo::quant
