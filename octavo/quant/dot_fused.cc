// The fast dot in one kernel call per batch index: sums, zero points, scales, tiles and the rounding to the result.
#include "octavo/kernels/matmul_i8.h"
#include "octavo/quant/frozen_weight.h"
#include "octavo/quant/fused_parts.h"

namespace octavo::quant {

std::optional<Tensor> TryFusedDot(const Run& run, const DotParts& lhs, const DotParts& rhs, const DotDims& dims,
                                  DType result, kernels::ScaleOrder order) {
  if (run.reference || !HasByteCodes(lhs) || !HasByteCodes(rhs)) return std::nullopt;
  const auto math = ScaleMathDType(lhs, rhs);
  const auto tile = KernelTile(lhs, rhs, dims);
  if (!math || !tile) return std::nullopt;
  if (run.frozen != nullptr && dims.rhs_batch.empty() && order == kernels::ScaleOrder::kRowThenColumn) {
    const PackedWeight* packed = run.frozen->Integer(run, rhs, dims.rhs_contract);
    if (packed != nullptr && packed->Takes(lhs, dims.lhs_contract)) {
      return PackedDot(run, lhs, dims.lhs_contract, *packed, result);
    }
  }
  const Shape shape = DotShape("FastDot", lhs.side.values.shape(), rhs.side.values.shape(), dims);
  const Tensor left = LeftMatrices(lhs.side.values, dims), right = RightMatrices(rhs.side.values, dims);
  const SideScales left_scales = LeftScales(lhs, dims), right_scales = RightScales(rhs, dims);
  Tensor out = Tensor::Empty({left.dim(0), left.dim(1), right.dim(2)}, *math);
  for (int64_t batch = 0; batch < left.dim(0); ++batch) {
    kernels::MatMulI8Args args;
    args.a = MatrixOf<int8_t>(left, batch);
    args.b = MatrixOf<int8_t>(right, batch);
    args.tile = *tile;
    args.workspace = &run.workspace;
    SetScales(left_scales, right_scales, batch, *math, args.epilogue);
    args.epilogue.order = order;
    args.out = OutputOf(out, batch);
    kernels::MatMulI8(run.pool, run.isa, args);
  }
  if (run.macs != nullptr) run.macs->integer += left.size() * right.dim(2);
  return CastTo(out.Reshape(shape), result);
}

}  // namespace octavo::quant
