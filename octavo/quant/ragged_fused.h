// Ragged integer dots in one call of the grouped kernels, threads flowing from group to group; nullopt where the
// kernels do not offer it, with the same bits as group by group. Only ragged_dot.cc includes this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "octavo/quant/dot_parts.h"

namespace octavo::quant {

// lhs [M, K], rhs [G, K, N] -> [M, N].
std::optional<Tensor> TryGroupedRows(const Run& run, const DotParts& lhs, const DotParts& rhs,
                                     std::span<const int64_t> group_sizes, DType result);
// lhs [M, K], rhs [M, N], summed over the rows of each group -> [G, K, N].
std::optional<Tensor> TryGroupedSums(const Run& run, const DotParts& lhs, const DotParts& rhs,
                                     std::span<const int64_t> group_sizes, DType result);

}  // namespace octavo::quant
