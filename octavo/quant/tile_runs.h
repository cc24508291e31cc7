// Walks an array together with a smaller one whose elements are repeated over it (scales, calibrations, noise): which
// runs of contiguous elements share which element. Only files of quant/ include this.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/tensor/shape.h"

namespace octavo::quant {

// Calls fn(begin, part, length) for every run, in row-major order: elements begin … begin + length - 1 of `whole` share
// element `part` of `parts` (both contiguous). Equal rank; each axis of `parts` divides that of `whole`.
template <typename Fn>
void ForEachRun(const Shape& whole, const Shape& parts, Fn&& fn) {
  if (whole.size() == 0) return;
  const int rank = whole.rank();
  if (rank == 0) {
    fn(int64_t{0}, int64_t{0}, int64_t{1});
    return;
  }
  std::array<int64_t, Shape::kMaxRank> step{}, tile{}, index{};
  int64_t stride = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    const auto a = static_cast<size_t>(axis);
    tile[a] = whole[axis] / parts[axis];
    step[a] = stride;
    stride *= parts[axis];
  }
  const int last = rank - 1;
  const auto l = static_cast<size_t>(last);
  int64_t begin = 0, base = 0;
  while (true) {
    for (int64_t part = 0; part < parts[last]; ++part, begin += tile[l]) fn(begin, base + part, tile[l]);
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      if (++index[a] < whole[axis]) {
        if (index[a] % tile[a] == 0) base += step[a];
        break;
      }
      base -= (parts[axis] - 1) * step[a];
      index[a] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace octavo::quant
