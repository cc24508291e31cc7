// Which axes of a dot operand get scales of their own when nobody says otherwise. Used by the training dots, by einsum
// and by plans.
#pragma once

#include <optional>

#include "octavo/quant/how_to_quantize.h"
#include "octavo/tensor/dot_dims.h"

namespace octavo::quant {

// A scale for each position on all axes that are not contracted; a tile, if given, cuts the contracted axis that is
// listed last; other contracted axes share.
Granularity GranularityForDot(const Shape& shape, const std::vector<int>& contract, std::optional<TileSize> tile);
inline Granularity LeftGranularity(const Shape& lhs, const DotDims& dims, std::optional<TileSize> tile = std::nullopt) {
  return GranularityForDot(lhs, dims.lhs_contract, tile);
}
inline Granularity RightGranularity(const Shape& rhs, const DotDims& dims,
                                    std::optional<TileSize> tile = std::nullopt) {
  return GranularityForDot(rhs, dims.rhs_contract, tile);
}

// The gradient of a dot towards one operand is a dot again: g [batch…, lhs free…, rhs free…] as its left side against
// the other operand y, contracting y's free axes.
struct GradientAxes {
  DotDims dims;            // of g and y
  std::vector<int> order;  // permutes the result to the axes of the operand
};
GradientAxes AxesOfGradient(bool for_lhs, int lhs_rank, int rhs_rank, const DotDims& forward);
// The same gradient with y as the left side and g as the right one.
GradientAxes TurnedGradient(int g_rank, int y_rank, const GradientAxes& axes);

}  // namespace octavo::quant
