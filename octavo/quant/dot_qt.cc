#include "octavo/quant/dot_qt.h"

#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/health.h"
#include "octavo/quant/noise.h"
#include "octavo/quant/quantize_run.h"
#include "octavo/quant/weight_cache.h"

namespace octavo::quant {
namespace {

std::optional<HowToQuantize> HowFor(const ForwardOperand& operand, const Shape& shape, const std::vector<int>& contract,
                                    std::optional<TileSize> tile) {
  if (!operand.format) return std::nullopt;
  HowToQuantize how{*operand.format, GranularityForDot(shape, contract, tile), operand.calibration};
  if (operand.per_tensor) how.granularity.channelwise_axes.clear();
  return how;
}

// Whether backward must use the float operand: its scales are tiled, or belong to blocks.
bool NeedsOriginal(const DotOperand& operand) {
  const auto* array = std::get_if<QArray>(&operand);
  return array != nullptr && (Info(array->format).block > 0 || !TiledAxes(*array).empty());
}

bool MayClip(const Calibration& calibration) {
  const bool follows =
      calibration.method == CalibrationMethod::kAbsMax || calibration.method == CalibrationMethod::kMinMax;
  return !follows || calibration.factor < 1.0;
}

constexpr Spot kWeightSpot{ProductKind::kForward, OperandSide::kRhs};

struct QuantizedOperand {
  DotOperand operand;
  std::optional<CalibrationRange> range;
};
QuantizedOperand QuantizeForward(const Run& any, OperandSide side, const Tensor& array,
                                 const std::optional<HowToQuantize>& how, const CalibrationRange* given,
                                 bool keep_range) {
  if (!how) return {array, std::nullopt};
  const Spot spot{ProductKind::kForward, side};
  const Run run = At(any, spot);
  const bool follows = given == nullptr && !MayClip(how->calibration);
  QArray quantized;
  std::optional<CalibrationRange> range;
  if (given == nullptr && !keep_range) {
    quantized = Quantize(run, array, *how);
  } else {
    range = given != nullptr ? *given : Calibrate(run, array, *how);
    quantized = QuantizeWithScale(run, array, how->format, ComputeScale(*range, how->format, run.arithmetic));
  }
  ObserveHealth(run, spot, array, quantized, follows);
  return {std::move(quantized), std::move(range)};
}

// y as codes without a scale; possible only if codes are values in their storage and there is no zero point.
Codes CodesOf(const QArray& array) {
  const FormatInfo& info = Info(array.format);
  if (array.zero_point || info.storage != array.format || info.kind == FormatKind::kTable) {
    throw Error(ErrorCode::kUsage,
                fmt::format("DotGeneralQt: a residual in {}{} cannot enter a quantized gradient", info.name,
                            array.zero_point ? " with a zero point" : ""),
                "use original residuals, or leave the gradient in float");
  }
  return {array.qvalue, array.format};
}

HowToQuantize GradientHow(const Shape& shape, const std::vector<int>& contract, Format format,
                          const Calibration& calibration, const GradientProduct& product) {
  HowToQuantize how{format, GranularityForDot(shape, contract, product.tile), calibration};
  if (product.per_tensor) how.granularity.channelwise_axes.clear();
  return how;
}

// g · y brought to the axes of x. The bits do not depend on which operand stands left, since only g has a scale.
Tensor GradientDot(bool for_lhs, const Run& run, const DotQtResiduals& r, const DotOperand& g, const DotOperand& y,
                   const GradientAxes& axes) {
  const bool bare = std::holds_alternative<Codes>(y) || std::holds_alternative<Tensor>(y);
  if (!for_lhs && bare && !run.reference) {
    // The left operand's kept axes come first in a weight: this order needs no transposed copy.
    const GradientAxes turned = TurnedGradient(ShapeOf(g).rank(), ShapeOf(y).rank(), axes);
    return DotGeneral(run, y, g, turned.dims).Permute(turned.order);
  }
  if (for_lhs && r.weight != nullptr && r.weight->backward && std::holds_alternative<Codes>(y) && !run.reference &&
      r.weight->backward->Takes(g, axes.dims.lhs_contract) && ChooseDotPath(g, y, axes.dims).path == DotPath::kFast) {
    return PackedDot(run, g, axes.dims.lhs_contract, *r.weight->backward).Permute(axes.order);
  }
  return DotGeneral(run, g, y, axes.dims).Permute(axes.order);
}

struct OneGradient {
  Tensor value;
  GradientTrace trace;
};
OneGradient GradientOf(bool for_lhs, const Run& run, const DotQtResiduals& r, const DotQtConfig& config,
                       const Tensor& grad, std::optional<RngKey> key, bool trace) {
  const GradientProduct& product = for_lhs ? config.grad_lhs : config.grad_rhs;
  const ProductKind kind = for_lhs ? ProductKind::kGradLhs : ProductKind::kGradRhs;
  const GradientAxes axes = AxesOfGradient(for_lhs, ShapeOf(r.lhs).rank(), ShapeOf(r.rhs).rank(), r.dims);
  const DotOperand& saved = for_lhs ? r.rhs : r.lhs;
  const std::optional<Tensor>& original = for_lhs ? r.rhs_in : r.lhs_in;
  DotOperand y = saved, g = grad;
  if (config.original_residuals || NeedsOriginal(saved)) y = *original;
  OneGradient result;
  if (product.format) {
    std::optional<Tensor> factor;
    if (const auto* array = std::get_if<QArray>(&y)) {
      const Codes codes = CodesOf(*array);
      const Shape lhs = ShapeOf(r.lhs), rhs = ShapeOf(r.rhs);
      factor = for_lhs ? RightScaleOnOutput("DotGeneralQt", array->scale, lhs, rhs, r.dims)
                       : LeftScaleOnOutput("DotGeneralQt", array->scale, lhs, rhs, r.dims);
      y = codes;
    }
    const HowToQuantize how =
        GradientHow(grad.shape(), axes.dims.lhs_contract, *product.format, product.calibration, product);
    if (product.rounding != Rounding::kNearest) {
      if (!key) ThrowUsage("DotGeneralQt: stochastic rounding needs a key");
      result.trace.noise = MakeNoise(*key, grad.shape(), product.rounding, product.noise_axes);
    }
    if (trace) result.trace.scaled_grad = factor ? TimesScale(grad, *factor) : grad;
    const Spot spot{kind, OperandSide::kLhs};
    const Tensor* times = factor ? &*factor : nullptr;
    result.trace.grad = Quantize(At(run, spot), grad, how, result.trace.noise ? &*result.trace.noise : nullptr, times);
    ObserveHealth(run, spot, grad, *result.trace.grad, !MayClip(product.calibration), times);
    g = *result.trace.grad;
  }
  if (const auto* tensor = std::get_if<Tensor>(&y); tensor != nullptr && product.residual_format) {
    HowToQuantize how = GradientHow(tensor->shape(), axes.dims.rhs_contract, *product.residual_format,
                                    product.residual_calibration, product);
    const Spot spot{kind, OperandSide::kRhs};
    result.trace.residual = Quantize(At(run, spot), *tensor, how);
    ObserveHealth(run, spot, *tensor, *result.trace.residual, !MayClip(product.residual_calibration));
    y = *result.trace.residual;
  }
  result.value = GradientDot(for_lhs, run, r, g, y, axes);
  return result;
}

bool MasksRight(const DotQtConfig& config) {
  return config.mask_gradients && config.rhs.format && MayClip(config.rhs.calibration);
}

Tensor ForwardDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
                  const PreparedWeight* weight) {
  if (weight != nullptr && weight->forward && !run.reference && weight->forward->Takes(lhs, dims.lhs_contract) &&
      ChooseDotPath(lhs, rhs, dims).path == DotPath::kFast) {
    return PackedDot(run, lhs, dims.lhs_contract, *weight->forward);
  }
  return DotGeneral(run, lhs, rhs, dims);
}

}  // namespace

std::optional<HowToQuantize> LeftHow(const DotQtConfig& config, const Shape& lhs, const DotDims& dims) {
  return HowFor(config.lhs, lhs, dims.lhs_contract, config.tile);
}

std::optional<HowToQuantize> RightHow(const DotQtConfig& config, const Shape& rhs, const DotDims& dims) {
  return HowFor(config.rhs, rhs, dims.rhs_contract, config.tile);
}

PreparedWeight PrepareWeight(const Run& run, const Tensor& rhs, int lhs_rank, const DotDims& dims,
                             const DotQtConfig& config, bool backward) {
  const auto how = RightHow(config, rhs.shape(), dims);
  if (!how || config.rhs_sparsity) ThrowUsage("PrepareWeight: the right operand is sparse or stays in float");
  const ScopedFloatMode mode;
  QuantizedOperand quantized = QuantizeForward(run, OperandSide::kRhs, rhs, how, nullptr, MasksRight(config));
  if (run.health != nullptr) run.health->At(std::string(run.arithmetic.site), NameOf(kWeightSpot)).once = true;
  PreparedWeight result{std::get<QArray>(quantized.operand), std::move(quantized.range), {}, {}, {}};
  if (!dims.rhs_batch.empty()) return result;
  const auto integer = [](const std::optional<Format>& format) {
    return format && Info(*format).kind == FormatKind::kInteger;
  };
  if (integer(config.lhs.format) && PackedWeight::Packs(result.array, dims.rhs_contract)) {
    result.forward.emplace(run, result.array, dims.rhs_contract);
  }
  const bool codes = !config.original_residuals && !NeedsOriginal(result.array) && !result.array.zero_point;
  if (backward && codes && integer(config.grad_lhs.format)) {
    const DotOperand bare = CodesOf(result.array);
    const GradientAxes axes = AxesOfGradient(true, lhs_rank, rhs.rank(), dims);
    if (PackedWeight::Packs(bare, axes.dims.rhs_contract)) result.backward.emplace(run, bare, axes.dims.rhs_contract);
  }
  return result;
}

DotQtForward DotGeneralQt(const Run& run, const Tensor& lhs, const Tensor& rhs, const DotDims& dims,
                          const DotQtConfig& config, const DotQtGiven& given) {
  CheckDot("DotGeneralQt", lhs.shape(), rhs.shape(), dims);
  const ScopedFloatMode mode;
  Tensor weight = rhs;
  DotQtResiduals r;
  r.dims = dims;
  if (config.rhs_sparsity) {
    r.rhs_mask = SparsityMask(rhs, *config.rhs_sparsity);
    weight = Pruned(rhs, *r.rhs_mask);
  }
  const bool mask_lhs = config.mask_gradients && config.lhs.format && MayClip(config.lhs.calibration);
  const bool mask_rhs = MasksRight(config);
  QuantizedOperand left =
      QuantizeForward(run, OperandSide::kLhs, lhs, LeftHow(config, lhs.shape(), dims), given.lhs, mask_lhs);
  QuantizedOperand right;
  if (given.weight != nullptr) {
    right = {given.weight->array, given.weight->range};
    r.weight = given.weight;
  } else {
    right =
        QuantizeForward(run, OperandSide::kRhs, weight, RightHow(config, weight.shape(), dims), given.rhs, mask_rhs);
  }
  Tensor out =
      given.out != nullptr ? *given.out : ForwardDot(run, left.operand, right.operand, dims, given.weight.get());
  if (mask_lhs || config.original_residuals || NeedsOriginal(left.operand)) r.lhs_in = lhs;
  if (mask_rhs || config.original_residuals || NeedsOriginal(right.operand)) r.rhs_in = weight;
  if (mask_lhs) r.lhs_range = std::move(left.range);
  if (mask_rhs) r.rhs_range = std::move(right.range);
  r.lhs = std::move(left.operand);
  r.rhs = std::move(right.operand);
  return {std::move(out), std::move(r)};
}

DotQtGradients DotGeneralQtBackward(const Run& run, const DotQtResiduals& residuals, const DotQtConfig& config,
                                    const Tensor& grad, std::optional<RngKey> key, bool trace, Wanted wanted) {
  const Shape expected = DotShape("DotGeneralQt", ShapeOf(residuals.lhs), ShapeOf(residuals.rhs), residuals.dims);
  if (grad.shape() != expected) {
    ThrowUsage("DotGeneralQtBackward: the gradient is {}, the output was {}", grad.shape(), expected);
  }
  const ScopedFloatMode mode;
  DotQtGradients result;
  if (wanted.lhs) {
    OneGradient left = GradientOf(true, run, residuals, config, grad, key, trace);
    if (residuals.lhs_range) {
      left.value = MaskGradient(left.value, *residuals.lhs_in, *residuals.lhs_range, config.lhs.calibration);
    }
    result.lhs = left.value.Contiguous();
    if (trace) result.lhs_trace = std::move(left.trace);
  }
  if (wanted.rhs) {
    OneGradient right = GradientOf(false, run, residuals, config, grad, key, trace);
    if (residuals.rhs_range) {
      right.value = MaskGradient(right.value, *residuals.rhs_in, *residuals.rhs_range, config.rhs.calibration);
    }
    if (residuals.rhs_mask) right.value = Pruned(right.value, *residuals.rhs_mask);
    result.rhs = right.value.Contiguous();
    if (trace) result.rhs_trace = std::move(right.trace);
  }
  return result;
}

}  // namespace octavo::quant
