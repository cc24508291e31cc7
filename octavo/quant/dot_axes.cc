#include "octavo/quant/dot_axes.h"

namespace octavo::quant {

Granularity GranularityForDot(const Shape& shape, const std::vector<int>& contract, std::optional<TileSize> tile) {
  Granularity result;
  result.channelwise_axes = FreeAxes(shape.rank(), contract, {});
  if (tile && !contract.empty()) result.tiled_axes[contract.back()] = *tile;
  return result;
}

}  // namespace octavo::quant
