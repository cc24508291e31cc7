// The sum of a row over its features, rule R3: 16 virtual lanes, lane l takes elements l, l + 16, … ascending from +0;
// then one fixed fold, lane l + lane l+8, then +4, +2, +1, and + 0 so that a zero sum is +0 (a lane may be flushed to
// -0, and a masked tail adds +0 to it). Any vector width that divides 16 gives these bits.
#pragma once

#include <cstdint>

namespace octavo::kernels {

inline constexpr int kLanes = 16;

template <typename T>
struct LaneSum {
  T lane[kLanes] = {};

  T Fold() const {
    T folded[kLanes];
    for (int l = 0; l < kLanes; ++l) folded[l] = lane[l];
    for (int half = kLanes / 2; half >= 1; half /= 2) {
      for (int l = 0; l < half; ++l) folded[l] = folded[l] + folded[l + half];
    }
    return folded[0] + T(0);
  }
};

}  // namespace octavo::kernels
