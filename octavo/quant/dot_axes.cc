#include "octavo/quant/dot_axes.h"

#include <algorithm>
#include <numeric>

namespace octavo::quant {

Granularity GranularityForDot(const Shape& shape, const std::vector<int>& contract, std::optional<TileSize> tile) {
  Granularity result;
  result.channelwise_axes = FreeAxes(shape.rank(), contract, {});
  if (tile && !contract.empty()) result.tiled_axes[contract.back()] = *tile;
  return result;
}

GradientAxes AxesOfGradient(bool for_lhs, int lhs_rank, int rhs_rank, const DotDims& forward) {
  const std::vector<int> lhs_free = FreeAxes(lhs_rank, forward.lhs_contract, forward.lhs_batch);
  const std::vector<int> rhs_free = FreeAxes(rhs_rank, forward.rhs_contract, forward.rhs_batch);
  const int batch = static_cast<int>(forward.lhs_batch.size()), lhs_count = static_cast<int>(lhs_free.size());
  const auto& x_batch = for_lhs ? forward.lhs_batch : forward.rhs_batch;
  const auto& x_free = for_lhs ? lhs_free : rhs_free;
  const auto& x_contract = for_lhs ? forward.lhs_contract : forward.rhs_contract;
  const auto& y_free = for_lhs ? rhs_free : lhs_free;
  const auto& y_contract = for_lhs ? forward.rhs_contract : forward.lhs_contract;
  GradientAxes result;
  for (int i = 0; i < batch; ++i) result.dims.lhs_batch.push_back(i);
  result.dims.rhs_batch = for_lhs ? forward.rhs_batch : forward.lhs_batch;
  const int first = for_lhs ? batch + lhs_count : batch;  // of y's free axes in g
  for (int i = 0; i < static_cast<int>(y_free.size()); ++i) result.dims.lhs_contract.push_back(first + i);
  result.dims.rhs_contract = y_free;
  // The result has the axes [batch, x free, y contract ascending]; `owner` names the axis of x for each.
  std::vector<int> owner = x_batch;
  owner.insert(owner.end(), x_free.begin(), x_free.end());
  std::vector<size_t> by_y(y_contract.size());
  std::iota(by_y.begin(), by_y.end(), size_t{0});
  std::sort(by_y.begin(), by_y.end(), [&](size_t a, size_t b) { return y_contract[a] < y_contract[b]; });
  for (size_t i : by_y) owner.push_back(x_contract[i]);
  result.order.resize(owner.size());
  for (size_t i = 0; i < owner.size(); ++i) result.order[static_cast<size_t>(owner[i])] = static_cast<int>(i);
  return result;
}

GradientAxes TurnedGradient(int g_rank, int y_rank, const GradientAxes& axes) {
  const DotDims& dims = axes.dims;
  GradientAxes result{{dims.rhs_contract, dims.lhs_contract, dims.rhs_batch, dims.lhs_batch}, {}};
  const int batch = static_cast<int>(dims.lhs_batch.size()), summed = static_cast<int>(dims.lhs_contract.size());
  const int g_free = g_rank - batch - summed, y_free = y_rank - batch - summed;
  for (int axis : axes.order) {
    result.order.push_back(axis < batch ? axis : axis < batch + g_free ? axis + y_free : axis - g_free);
  }
  return result;
}

}  // namespace octavo::quant
