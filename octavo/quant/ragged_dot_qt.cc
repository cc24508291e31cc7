#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/health.h"
#include "octavo/quant/quantize_run.h"
#include "octavo/quant/ragged_dot.h"

namespace octavo::quant {
namespace {

HowToQuantize AbsMaxHow(Format format, int channel) { return {format, {{channel}, {}}, {}}; }

Codes CodesOf(const QArray& array) {
  const FormatInfo& info = Info(array.format);
  if (array.zero_point || info.storage != array.format || info.kind == FormatKind::kTable) {
    ThrowUsage("RaggedDotQt: a residual in {} cannot enter a quantized gradient; leave the gradient in float",
               info.name);
  }
  return {array.qvalue, array.format};
}

QArray Quantized(const Run& run, Spot spot, const Tensor& values, const HowToQuantize& how,
                 const Tensor* factor = nullptr) {
  QArray result = Quantize(At(run, spot), values, how, nullptr, factor);
  ObserveHealth(run, spot, values, result, true, factor);
  return result;
}

constexpr OperandSide kLeft = OperandSide::kLhs, kRight = OperandSide::kRhs;

}  // namespace

RaggedDotQtForward RaggedDotQt(const Run& run, const Tensor& lhs, const Tensor& rhs,
                               std::span<const int64_t> group_sizes, const RaggedDotQtConfig& config,
                               const Tensor* out) {
  if (lhs.rank() != 2 || rhs.rank() != 3) {
    ThrowUsage("RaggedDotQt: lhs {} and rhs {}, expected [M, K] and [G, K, N]", lhs.shape(), rhs.shape());
  }
  RaggedDotQtForward result;
  result.lhs = Quantized(run, {ProductKind::kForward, kLeft}, lhs, AbsMaxHow(config.lhs, 0));
  result.rhs = Quantized(run, {ProductKind::kForward, kRight}, rhs, AbsMaxHow(config.rhs, 2));
  result.out = out != nullptr ? *out : RaggedDot(run, result.lhs, result.rhs, group_sizes);
  return result;
}

RaggedDotQtGradients RaggedDotQtBackward(const Run& run, const RaggedDotQtForward& forward,
                                         std::span<const int64_t> group_sizes, const RaggedDotQtConfig& config,
                                         const Tensor& grad) {
  if (grad.shape() != forward.out.shape()) {
    ThrowUsage("RaggedDotQtBackward: the gradient is {}, the output was {}", grad.shape(), forward.out.shape());
  }
  const ScopedFloatMode mode;
  const QArray turned = SwapAxes(forward.rhs, 1, 2);  // [G, N, K]
  RaggedDotQtGradients result;
  DotOperand g = grad, y = turned;
  if (config.grad_lhs) {
    y = CodesOf(turned);
    const Tensor factor = forward.rhs.scale.Reshape({1, forward.rhs.scale.size()});
    result.grad_for_lhs = Quantized(run, {ProductKind::kGradLhs, kLeft}, grad, AbsMaxHow(*config.grad_lhs, 0), &factor);
    g = *result.grad_for_lhs;
  }
  result.lhs = RaggedDot(run, g, y, group_sizes);

  g = grad;
  DotOperand x = forward.lhs;
  if (config.grad_rhs) {
    x = CodesOf(forward.lhs);
    result.grad_for_rhs =
        Quantized(run, {ProductKind::kGradRhs, kLeft}, grad, AbsMaxHow(*config.grad_rhs, 1), &forward.lhs.scale);
    g = *result.grad_for_rhs;
  }
  result.rhs = RaggedDotGeneral(run, x, g, group_sizes, {{{0}, {0}, {}, {}}, 0, -1});
  return result;
}

}  // namespace octavo::quant
