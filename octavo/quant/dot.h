// Dots of quantized arrays over any axes. Three ways to the same product, with different roundings, chosen as the
// reference library chooses:
//   fast  product of the codes (integers: exact in int32), then times the lhs scale, then times the rhs scale; tiles of
//         a contracted axis are multiplied out separately and added at the end
//   slow  both operands are dequantized first; for raw float operands, nf4, tiles below 128 and two zero points
//   loop  as fast, but each tile is added to the result as it comes, in the dtype of the result
// Two block-format operands (mx, nv) are dequantized and summed wide, as their scaled product is defined.
// Used by the training dots (dot_qt.h), by serving and by einsum and ragged dots.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "octavo/numerics/format.h"
#include "octavo/quant/run.h"
#include "octavo/tensor/dot_dims.h"
#include "octavo/tensor/qarray.h"
#include "octavo/tensor/tensor.h"

namespace octavo::quant {

// Codes without a scale, as the backward dots use the saved operand.
struct Codes {
  Tensor values;
  Format format;
};

// Floats (f32, bf16, f16), codes, or a quantized array. May be meta: then only shapes are computed.
using DotOperand = std::variant<Tensor, Codes, QArray>;
const Shape& ShapeOf(const DotOperand& operand);
bool IsMeta(const DotOperand& operand);

enum class DotPath : uint8_t { kFast, kSlow, kBlock };
std::string_view NameOf(DotPath path);

struct DotChoice {
  DotPath path;
  std::string reason;  // "tile 32 of lhs is below 128", for plans
};
DotChoice ChooseDotPath(const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims);

// The dtype of the result: `preferred`, else what the scales and raw operands promote to (codes without a scale count
// as i32 or bf16).
DType DotResultDType(const DotOperand& lhs, const DotOperand& rhs, std::optional<DType> preferred = std::nullopt);

// Errors name the operation and both shapes: axes that do not match, two zero points on the fast path, tiles that
// differ, a scale that varies along a contracted axis it is not tiled on, sums past the exact bound of int32.
Tensor DotGeneral(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
                  std::optional<DType> preferred = std::nullopt);

// The ways, one by one.
Tensor FastDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
               std::optional<DType> preferred = std::nullopt);
Tensor SlowDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
               std::optional<DType> preferred = std::nullopt);
Tensor LoopDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
               std::optional<DType> preferred = std::nullopt);

}  // namespace octavo::quant
