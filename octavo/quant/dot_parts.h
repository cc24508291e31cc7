// Pieces that the quantized dots share: dtypes of results, operands with their tiled contracted axes split, scales
// brought to the axes of the output. Only files of quant/ include this.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "octavo/kernels/scale_epilogue.h"
#include "octavo/quant/dot.h"
#include "octavo/quant/product.h"

namespace octavo::quant {

// The wider of two dtypes as JAX promotes: any float beats i32, bf16 with f16 gives f32.
DType Promote(DType a, DType b);

// A dot operand taken apart. `scale` is absent for floats and bare codes.
struct DotParts {
  ProductSide side;
  std::optional<Tensor> scale, zero_point;
};
DotParts PartsOf(std::string_view op, const DotOperand& operand);

// values * scale, each first converted to the wider dtype, the product rounded to it. `values` is i32 or a float; the
// scale repeats over it (GenericBroadcastShape).
Tensor TimesScale(const Tensor& values, const Tensor& scale);

// Sum over the leading `axes` axes after `skip` axes: f32 sums ascending, rounded once to the dtype.
Tensor SumAxes(const Tensor& values, int skip, int axes);

// i32 or float to a float dtype (or i32 to itself).
Tensor CastTo(const Tensor& values, DType dtype);

// A scale on the axes of the output [batch…, lhs free…, rhs free…]; an error if it varies along a contracted axis.
Tensor LeftScaleOnOutput(std::string_view op, const Tensor& scale, const Shape& lhs, const Shape& rhs,
                         const DotDims& dims);
Tensor RightScaleOnOutput(std::string_view op, const Tensor& scale, const Shape& lhs, const Shape& rhs,
                          const DotDims& dims);

// Both operands with each tiled contracted axis cut into (tiles, tile): the tiles become batch axes behind the others.
struct SplitDot {
  DotParts lhs, rhs;
  DotDims dims;
  int tile_axes = 0;  // how many batch axes were added at the end
};
SplitDot SplitTiles(std::string_view op, const DotParts& lhs, const DotParts& rhs, const DotDims& dims);

// One kernel call for the whole fast dot, epilogue included, where the integer kernels offer it; nullopt otherwise. The
// bits are those of the general way. `order` says which side's scale is applied first.
std::optional<Tensor> TryFusedDot(const Run& run, const DotParts& lhs, const DotParts& rhs, const DotDims& dims,
                                  DType result, kernels::ScaleOrder order = kernels::ScaleOrder::kRowThenColumn);

}  // namespace octavo::quant
