// Einsum of quantized and float operands: each pair of operands is one general dot. Used by attention and experts of
// models that are written with equations.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/quant/dot.h"
#include "octavo/quant/how_to_quantize.h"

namespace octavo::quant {

// "btd,dnh->btnh" taken apart. Without an arrow the output has the letters that occur once, sorted. Letters only;
// repeated letters within a term and ellipses are errors.
struct EinsumEquation {
  std::vector<std::string> terms;
  std::string output;
};
EinsumEquation ParseEinsum(std::string_view equation);

// A product of two terms as a dot: shared letters that stay are batch, the others are contracted, both in alphabetical
// order. `order` permutes the dot's axes to the output.
struct EinsumDot {
  DotDims dims;
  std::vector<int> order;
};
EinsumDot EinsumAsDot(std::string_view lhs, std::string_view rhs, std::string_view output);

// Two operands: one dot whose left side is the *second* operand, as the reference does it (its scale is applied first).
// More: pairs in the order that needs the fewest multiplications. A letter that only one operand has and the output
// lacks is summed beforehand, in float. On each letter sizes must be equal, 1, or divide the largest (repeated).
Tensor Einsum(const Run& run, std::string_view equation, std::span<const DotOperand> operands);

// Scales for operand `index` of a two-operand equation: one per position on letters that are not contracted; a tile
// cuts the contracted letter that comes last in the operand.
Granularity EinsumGranularity(const EinsumEquation& equation, size_t index,
                              std::optional<TileSize> tile = std::nullopt);

}  // namespace octavo::quant
