// How quantized operands look to the integer kernels: scales and zero points as views by row, column and tile. Shared
// by the fused dot, packed weights and ragged dots; only files of quant/ include this.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "octavo/kernels/scale_epilogue.h"
#include "octavo/kernels/view.h"
#include "octavo/quant/dot_parts.h"

namespace octavo::quant {

// Integer codes in bytes on this side.
bool HasByteCodes(const DotParts& parts);

// The dtype in which the scales are applied, if the kernels have it: all scales f32, or all bf16.
std::optional<DType> ScaleMathDType(const DotParts& lhs, const DotParts& rhs);

// The tile of the contracted axis, 0 for none; nullopt when the kernels cannot cut K like that.
std::optional<int64_t> KernelTile(const DotParts& lhs, const DotParts& rhs, const DotDims& dims);

// Scales (as f32) and zero points of one side as [batch, rows, tiles] (left) or [batch, tiles, columns] (right).
struct SideScales {
  std::optional<Tensor> scale, zero;
};
SideScales LeftScales(const DotParts& lhs, const DotDims& dims);
SideScales RightScales(const DotParts& rhs, const DotDims& dims);

// Puts them into an epilogue, for one batch index.
void SetScales(const SideScales& left, const SideScales& right, int64_t batch, DType math,
               kernels::ScaleEpilogue& epilogue);

// Matrix `batch` of a product's result [batch, M, N] in f32 or bf16.
kernels::IntOutput OutputOf(Tensor& out, int64_t batch);

template <typename T>
kernels::MatrixView<const T> MatrixOf(const Tensor& matrices, int64_t batch) {
  return {matrices.Data<T>() + batch * matrices.stride(0), matrices.dim(1), matrices.dim(2), matrices.stride(1),
          matrices.stride(2)};
}

}  // namespace octavo::quant
