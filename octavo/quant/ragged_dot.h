// Dots over groups of rows, as experts need them: the rows of one axis are sorted by group, and each group has its own
// right operand or its own sum. Used by the experts of a model, forward and backward.
#pragma once

#include <optional>
#include <span>

#include "octavo/quant/dot.h"

namespace octavo::quant {

// The dot inside a group, and the axes that groups divide. A group owns the next group_sizes[g] positions of the ragged
// axis; positions past the last group belong to nobody, sizes that sum past the axis stop at its end.
struct RaggedDims {
  DotDims dot;         // axes of the whole operands, group axis included
  int lhs_ragged = 0;  // a free axis of lhs, or a contracted one
  int rhs_group = -1;  // the axis of rhs with one slice per group; -1 when the ragged axis is contracted
};

// Ragged axis free:       out [batch…, lhs free…, rhs free without the group axis…]; rows of nobody are 0
// Ragged axis contracted: out [groups, batch…, lhs free…, rhs free…]; empty groups are 0
// Raw floats, nf4 and zero points go the slow way, all else the fast one.
Tensor RaggedDotGeneral(const Run& run, const DotOperand& lhs, const DotOperand& rhs,
                        std::span<const int64_t> group_sizes, const RaggedDims& dims,
                        std::optional<DType> preferred = std::nullopt);

// lhs [M, K], rhs [G, K, N] -> [M, N].
Tensor RaggedDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, std::span<const int64_t> group_sizes,
                 std::optional<DType> preferred = std::nullopt);

// The training form. Forward: lhs with a scale per row, rhs with one per output column shared by all groups. Backward
// as in dot_qt.h: the scale of the other operand goes into the gradient, which is then quantized.
struct RaggedDotQtConfig {
  Format lhs = Format::kInt8, rhs = Format::kInt8;
  std::optional<Format> grad_lhs, grad_rhs;
};
struct RaggedDotQtForward {
  Tensor out;
  QArray lhs, rhs;  // the residuals
};
// `out`: the product, when it was kept from an earlier pass and need not run again.
RaggedDotQtForward RaggedDotQt(const Run& run, const Tensor& lhs, const Tensor& rhs,
                               std::span<const int64_t> group_sizes, const RaggedDotQtConfig& config,
                               const Tensor* out = nullptr);
struct RaggedDotQtGradients {
  Tensor lhs, rhs;
  std::optional<QArray> grad_for_lhs, grad_for_rhs;
};
RaggedDotQtGradients RaggedDotQtBackward(const Run& run, const RaggedDotQtForward& forward,
                                         std::span<const int64_t> group_sizes, const RaggedDotQtConfig& config,
                                         const Tensor& grad);

}  // namespace octavo::quant
