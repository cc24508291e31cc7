// The scalar epilogue of an exact integer product, shared by the reference loops and by tails. Static functions: see
// bf16_bits.h.
#pragma once

#include <cstdint>

#include "octavo/kernels/bf16_bits.h"
#include "octavo/kernels/scale_epilogue.h"

namespace octavo::kernels {

// float(acc) times the scales of one tile.
[[maybe_unused]] static inline float ScaledPart(const ScaleEpilogue& e, int32_t acc, int64_t m, int64_t n,
                                                int64_t tile) {
  const bool bf16 = e.math == ScaleMath::kBF16;
  float part = static_cast<float>(acc);
  if (bf16) part = RoundToBF16(part);
  const bool row_first = e.order == ScaleOrder::kRowThenColumn;
  for (const bool row : {row_first, !row_first}) {
    if ((row ? e.row_scale : e.col_scale).data == nullptr) continue;
    part = part * (row ? e.row_scale.at(m, tile) : e.col_scale.at(n, tile));
    if (bf16) part = RoundToBF16(part);
  }
  return part;
}

// The sum over tiles, given the exact sum of each from `acc(tile)`.
template <typename Acc>
static inline float ScaledSum(const ScaleEpilogue& e, int64_t m, int64_t n, int64_t tiles, const Acc& acc) {
  float sum = 0.0f;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const float part = ScaledPart(e, acc(tile), m, n, tile);
    sum = tile == 0 ? part : sum + part;
  }
  const bool bf16 = e.math == ScaleMath::kBF16;
  if (bf16 && tiles > 1) sum = RoundToBF16(sum);
  if (e.bias.data != nullptr) {
    sum = sum + e.bias.at(n, 0);
    if (bf16) sum = RoundToBF16(sum);
  }
  return sum;
}

// Writes output (m, n) whatever its type.
template <typename Acc>
static inline void StoreScaled(const ScaleEpilogue& e, const IntOutput& out, int64_t m, int64_t n, int64_t tiles,
                               const Acc& acc) {
  if (out.i32.data != nullptr) {
    out.i32.at(m, n) = acc(0);
    return;
  }
  const float value = ScaledSum(e, m, n, tiles, acc);
  if (out.f32.data != nullptr) {
    out.f32.at(m, n) = value;
  } else {
    out.bf16.at(m, n) = BF16FromFloat(value);
  }
}

// sum (a - row_zero) (b - col_zero) from sum a b, sum a, sum b. Wraps on the way, the result fits.
[[maybe_unused]] static inline int32_t WithoutZeros(int32_t dot, int32_t row_sum, int32_t col_sum, int64_t steps,
                                                    int32_t row_zero, int32_t col_zero) {
  const uint32_t rz = static_cast<uint32_t>(row_zero), cz = static_cast<uint32_t>(col_zero);
  return static_cast<int32_t>(static_cast<uint32_t>(dot) - rz * static_cast<uint32_t>(col_sum) -
                              cz * static_cast<uint32_t>(row_sum) + static_cast<uint32_t>(steps) * rz * cz);
}

}  // namespace octavo::kernels
