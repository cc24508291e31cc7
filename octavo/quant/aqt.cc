#include "octavo/quant/aqt.h"

#include <algorithm>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/element.h"
#include "octavo/quant/health.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/tile_runs.h"
#include "octavo/quant/weight_cache.h"

namespace octavo::quant {
namespace {

constexpr const char* kOp = "AqtDotGeneral";

// An axis cut into (count, length / count).
Tensor CutAxis(const Tensor& tensor, int axis, int64_t count) {
  std::vector<int64_t> dims(tensor.shape().begin(), tensor.shape().end());
  const int64_t length = dims[static_cast<size_t>(axis)];
  if (count < 1 || length % count != 0) {
    ThrowUsage("{}: {} blocks of axis {} in {}: {} is no multiple", kOp, count, axis, tensor.shape(), length);
  }
  dims[static_cast<size_t>(axis)] = count;
  dims.insert(dims.begin() + axis + 1, length / count);
  return tensor.Reshape(dims);
}

// Axis numbers after axis `cut` became two; the second half keeps the name.
std::vector<int> AfterCut(std::vector<int> axes, int cut) {
  for (int& axis : axes) axis += axis >= cut;
  return axes;
}

struct Cut {
  Tensor tensor;
  std::vector<int> contract, batch;
};
// The counts become batch axes before the others, in the order of the contracted axes.
Cut CutContracted(const Tensor& tensor, const std::vector<int>& contract, const std::vector<int>& batch,
                  const std::vector<int64_t>& counts) {
  Cut result{tensor, contract, batch};
  std::vector<int> added;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const int axis = result.contract[i];
    result.tensor = CutAxis(result.tensor, axis, counts[i]);
    result.contract = AfterCut(result.contract, axis);
    result.batch = AfterCut(result.batch, axis);
    added = AfterCut(added, axis);
    added.push_back(axis);
  }
  result.batch.insert(result.batch.begin(), added.begin(), added.end());
  return result;
}

std::vector<int64_t> TileCounts(const Shape& shape, const std::vector<int>& contract, int64_t tile) {
  std::vector<int64_t> counts;
  for (int axis : contract) {
    if (shape[axis] % tile != 0) ThrowUsage("{}: tiles of {} do not divide axis {} of {}", kOp, tile, axis, shape);
    counts.push_back(shape[axis] / tile);
  }
  return counts;
}

struct Operands {
  Tensor lhs, rhs;
  DotDims dims;
};
Operands CutBoth(const Tensor& lhs, const Tensor& rhs, const DotDims& dims, const std::vector<int64_t>& counts) {
  Cut left = CutContracted(lhs, dims.lhs_contract, dims.lhs_batch, counts);
  Cut right = CutContracted(rhs, dims.rhs_contract, dims.rhs_batch, counts);
  return {left.tensor, right.tensor, {left.contract, right.contract, left.batch, right.batch}};
}

std::optional<QArray> QuantizedOrNot(const Run& run, Spot spot, const Tensor& array, const AqtSide& side,
                                     const std::vector<int>& contract, const Tensor* noise = nullptr) {
  if (side.numerics.kind == AqtNumerics::Kind::kNone) return std::nullopt;
  QArray result = AqtQuantize(run, array, side, contract, noise);
  const bool follows = !side.constant_bound && (side.clipping_scale <= 0 || side.clipping_scale >= 1);
  ObserveHealth(run, spot, array, result, follows);
  return result;
}

constexpr Spot kForwardLeft{ProductKind::kForward, OperandSide::kLhs},
    kForwardRight{ProductKind::kForward, OperandSide::kRhs};

DotOperand OperandOf(const Tensor& original, const std::optional<QArray>& quantized) {
  if (quantized) return *quantized;
  return original;
}

// The product of the codes in the accumulator, converted to `dtype`, times the two scales. `packed`, if not null, is
// the right side.
Tensor ScaledProduct(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
                     std::optional<DType> accumulator, DType dtype,
                     const std::optional<PackedWeight>* packed = nullptr) {
  const DotParts left = PartsOf(kOp, lhs), right = PartsOf(kOp, rhs);
  const bool integers = IsInteger(left.side) && IsInteger(right.side);
  if (accumulator == DType::kI32 && !integers) {
    ThrowUsage("{}: an int32 accumulator needs integer codes on both sides", kOp);
  }
  if (integers) {
    if (packed != nullptr && *packed && !run.reference && (*packed)->Takes(lhs, dims.lhs_contract)) {
      return PackedDot(run, lhs, dims.lhs_contract, **packed, dtype);
    }
    if (auto fused = TryFusedDot(run, left, right, dims, dtype)) return *fused;
  }
  Tensor acc = integers ? IntegerProduct(run, left.side, right.side, dims)
                        : FloatProduct(run, left.side, right.side, dims, accumulator.value_or(dtype));
  acc = CastTo(acc, dtype);
  const Shape a = left.side.values.shape(), b = right.side.values.shape();
  if (left.scale) acc = TimesScale(acc, LeftScaleOnOutput(kOp, *left.scale, a, b, dims));
  if (right.scale) acc = TimesScale(acc, RightScaleOnOutput(kOp, *right.scale, a, b, dims));
  return acc;
}

// Keys: split in three for the products, each in two for its sides; only the gradient side draws noise.
std::optional<Tensor> GradientNoise(const AqtProduct& product, int index, const Shape& shape,
                                    std::optional<RngKey> key) {
  if (product.lhs.noise == AqtNoise::kNone || product.lhs.numerics.kind != AqtNumerics::Kind::kInteger) {
    return std::nullopt;
  }
  if (!key) ThrowUsage("{}: stochastic rounding needs a key", kOp);
  return MakeAqtNoise(key->Split(static_cast<uint64_t>(index)).Split(0), shape, product.lhs.noise);
}

// grad where the forward value lay inside the clip of its numerics.
Tensor MaskClipped(const Tensor& grad, const Tensor& original, const QArray& quantized, const AqtNumerics& numerics) {
  return WithElement(kOp, original.dtype(), [&](auto element) {
    using E = decltype(element);
    const Tensor packed = original.Contiguous();
    Tensor result = grad.Clone();
    auto out = result.MutableValues<typename E::Stored>();
    auto values = packed.Values<typename E::Stored>();
    auto scales = quantized.scale.Values<typename E::Stored>();
    const float clip = E::Round(numerics.clip());
    ForEachRun(original.shape(), quantized.scale.shape(), [&](int64_t begin, int64_t part, int64_t length) {
      float reciprocal = E::Round(1.0f / E::Load(scales[static_cast<size_t>(part)]));
      if (!IsFiniteBits(reciprocal)) reciprocal = 1.0f;
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + length); ++i) {
        const float value = E::Round(E::Load(values[i]) * reciprocal);
        if (!(value >= -clip && value <= clip)) out[i] = E::Store(0.0f);
      }
    });
    return result;
  });
}

struct OneGradient {
  Tensor value;
  std::optional<QArray> g, other;
  std::optional<Tensor> noise;
};

// The integer product with the other operand on the left, which gives a weight's gradient without a transposed copy.
// The scales are applied in the usual order, that of g first.
std::optional<Tensor> TryTurned(const Run& run, const OneGradient& operands, const DotDims& dims, DType dtype) {
  if (!operands.g || !operands.other) return std::nullopt;
  const DotDims turned{dims.rhs_contract, dims.lhs_contract, dims.rhs_batch, dims.lhs_batch};
  return TryFusedDot(run, PartsOf(kOp, *operands.other), PartsOf(kOp, *operands.g), turned, dtype,
                     kernels::ScaleOrder::kColumnThenRow);
}

OneGradient GradientOf(bool for_lhs, const Run& run, const AqtResiduals& r, const AqtConfig& config, const Tensor& grad,
                       std::optional<RngKey> key) {
  const AqtProduct& product = for_lhs ? config.grad_lhs : config.grad_rhs;
  const GradientAxes axes = AxesOfGradient(for_lhs, r.lhs.rank(), r.rhs.rank(), r.dims);
  const std::optional<QArray>& saved = for_lhs ? r.rhs_q : r.lhs_q;
  Tensor g = grad, y = for_lhs ? r.rhs : r.lhs;
  if (product.use_forward_quant) {
    if (!saved) ThrowUsage("{}: use_forward_quant, but that side is not quantized", kOp);
    g = TimesScale(grad, for_lhs ? RightScaleOnOutput(kOp, saved->scale, r.lhs.shape(), r.rhs.shape(), r.dims)
                                 : LeftScaleOnOutput(kOp, saved->scale, r.lhs.shape(), r.rhs.shape(), r.dims));
    QArray bare = *saved;  // the codes as numbers of the operand's dtype
    bare.scale = CastTo(Tensor::FromValues<float>(Shape(std::vector<int64_t>(static_cast<size_t>(y.rank()), 1)),
                                                  DType::kF32, std::vector<float>{1.0f}),
                        y.dtype());
    y = Dequantize(bare);
  }
  DotDims dims = axes.dims;
  if (product.local_shards > 0 && !dims.lhs_contract.empty()) {
    std::vector<int64_t> counts(dims.lhs_contract.size(), 0);
    counts[0] = product.local_shards;
    const Operands cut = CutBoth(g, y, dims, counts);
    g = cut.lhs;
    y = cut.rhs;
    dims = cut.dims;
  }
  OneGradient result;
  result.noise = GradientNoise(product, for_lhs ? 1 : 2, g.shape(), key);
  const ProductKind kind = for_lhs ? ProductKind::kGradLhs : ProductKind::kGradRhs;
  result.g = QuantizedOrNot(run, {kind, OperandSide::kLhs}, g, product.lhs, dims.lhs_contract,
                            result.noise ? &*result.noise : nullptr);
  const bool prepared = for_lhs && r.weight != nullptr && r.weight->again;
  result.other =
      prepared ? r.weight->again : QuantizedOrNot(run, {kind, OperandSide::kRhs}, y, product.rhs, dims.rhs_contract);
  const bool cut = product.local_shards > 0 && !axes.dims.lhs_contract.empty();
  const auto finish = [&](Tensor value, const std::vector<int>& order) {
    return (cut ? SumAxes(value, 0, 1) : value).Permute(order).Contiguous();
  };
  if (auto turned = for_lhs ? std::nullopt : TryTurned(run, result, dims, grad.dtype())) {
    const int y_rank = r.lhs.rank();
    result.value = finish(*turned, TurnedGradient(grad.rank(), y_rank, axes).order);
  } else {
    result.value = finish(ScaledProduct(run, OperandOf(g, result.g), OperandOf(y, result.other), dims,
                                        product.accumulator, grad.dtype(), prepared ? &r.weight->backward : nullptr),
                          axes.order);
  }
  const AqtNumerics& forward = (for_lhs ? config.forward.lhs : config.forward.rhs).numerics;
  const std::optional<QArray>& own = for_lhs ? r.lhs_q : r.rhs_q;
  if (forward.clip_gradient && own && forward.kind == AqtNumerics::Kind::kInteger) {
    result.value = MaskClipped(result.value, for_lhs ? r.lhs : r.rhs, *own, forward);
  }
  return result;
}

Operands Tiled(const Tensor& lhs, const Tensor& rhs, const DotDims& dims, const AqtConfig& config) {
  if (config.tile == 0) return {lhs, rhs, dims};
  return CutBoth(lhs, rhs, dims, TileCounts(lhs.shape(), dims.lhs_contract, config.tile));
}

// Products of tiles to the result: f32 sum, rounded once.
Tensor SumTiles(const Tensor& out, const DotDims& outer, const AqtConfig& config) {
  return config.tile == 0 ? out : SumAxes(out, 0, static_cast<int>(outer.lhs_contract.size()));
}

}  // namespace

PreparedWeight AqtPrepareWeight(const Run& run, const Tensor& rhs, const DotDims& dims, const AqtConfig& config,
                                bool backward) {
  const ScopedFloatMode mode;
  PreparedWeight result{AqtFreeze(run, rhs, dims, config), {}, {}, {}, {}};
  if (config.tile > 0 || !dims.rhs_batch.empty()) return result;
  if (PackedWeight::Packs(result.array, dims.rhs_contract))
    result.forward.emplace(run, result.array, dims.rhs_contract);
  const AqtProduct& product = config.grad_lhs;
  if (!backward || product.use_forward_quant || product.local_shards > 0) return result;
  const std::vector<int> contract = FreeAxes(rhs.rank(), dims.rhs_contract, {});
  result.again = QuantizedOrNot(run, {ProductKind::kGradLhs, OperandSide::kRhs}, rhs, product.rhs, contract);
  if (result.again && PackedWeight::Packs(*result.again, contract)) {
    result.backward.emplace(run, *result.again, contract);
  }
  return result;
}

AqtForward AqtDotGeneral(const Run& run, const Tensor& lhs, const Tensor& rhs, const DotDims& dims,
                         const AqtConfig& config, std::shared_ptr<const PreparedWeight> weight) {
  CheckDot(kOp, lhs.shape(), rhs.shape(), dims);
  if (lhs.dtype() != rhs.dtype()) ThrowUsage("{}: lhs is {}, rhs {}", kOp, lhs.ToString(), rhs.ToString());
  const ScopedFloatMode mode;
  const Operands tiled = Tiled(lhs, rhs, dims, config);
  AqtResiduals r{tiled.lhs, tiled.rhs,   std::nullopt, std::nullopt,     tiled.dims,
                 dims,      lhs.shape(), rhs.shape(),  std::move(weight)};
  r.lhs_q = QuantizedOrNot(run, kForwardLeft, r.lhs, config.forward.lhs, r.dims.lhs_contract);
  r.rhs_q = r.weight != nullptr ? std::optional<QArray>(r.weight->array)
                                : QuantizedOrNot(run, kForwardRight, r.rhs, config.forward.rhs, r.dims.rhs_contract);
  const Tensor out =
      ScaledProduct(run, OperandOf(r.lhs, r.lhs_q), OperandOf(r.rhs, r.rhs_q), r.dims, config.forward.accumulator,
                    lhs.dtype(), r.weight != nullptr ? &r.weight->forward : nullptr);
  return {SumTiles(out, dims, config), std::move(r)};
}

AqtGradients AqtDotGeneralBackward(const Run& run, const AqtResiduals& residuals, const AqtConfig& config,
                                   const Tensor& grad, std::optional<RngKey> key, Wanted wanted) {
  const ScopedFloatMode mode;
  const Shape expected = DotShape(kOp, residuals.lhs_shape, residuals.rhs_shape, residuals.outer_dims);
  if (grad.shape() != expected) ThrowUsage("{}: the gradient is {}, the output was {}", kOp, grad.shape(), expected);
  // Each tile sees the whole gradient of the sum.
  const Tensor g = grad.BroadcastTo(DotShape(kOp, residuals.lhs.shape(), residuals.rhs.shape(), residuals.dims));
  AqtGradients result;
  if (wanted.lhs) {
    OneGradient left = GradientOf(true, run, residuals, config, g, key);
    result.lhs = left.value.Reshape(residuals.lhs_shape);
    result.lhs_g = std::move(left.g);
    result.lhs_other = std::move(left.other);
    result.lhs_noise = std::move(left.noise);
  }
  if (wanted.rhs) {
    OneGradient right = GradientOf(false, run, residuals, config, g, key);
    result.rhs = right.value.Reshape(residuals.rhs_shape);
    result.rhs_g = std::move(right.g);
    result.rhs_other = std::move(right.other);
    result.rhs_noise = std::move(right.noise);
  }
  return result;
}

QArray AqtFreeze(const Run& run, const Tensor& rhs, const DotDims& dims, const AqtConfig& config) {
  const ScopedFloatMode mode;
  Cut cut{rhs, dims.rhs_contract, dims.rhs_batch};
  if (config.tile > 0) {
    cut =
        CutContracted(rhs, dims.rhs_contract, dims.rhs_batch, TileCounts(rhs.shape(), dims.rhs_contract, config.tile));
  }
  return *QuantizedOrNot(run, kForwardRight, cut.tensor, config.forward.rhs, cut.contract);
}

Tensor AqtServe(const Run& run, const Tensor& lhs, const QArray& frozen, const DotDims& dims, const AqtConfig& config) {
  const ScopedFloatMode mode;
  Cut left{lhs, dims.lhs_contract, dims.lhs_batch}, right{frozen.qvalue, dims.rhs_contract, dims.rhs_batch};
  if (config.tile > 0) {
    left =
        CutContracted(lhs, dims.lhs_contract, dims.lhs_batch, TileCounts(lhs.shape(), dims.lhs_contract, config.tile));
    // The frozen weight is cut already: only its axes are renumbered.
    std::vector<int> added;
    for (size_t i = 0; i < right.contract.size(); ++i) {
      const int axis = right.contract[i];
      right.contract = AfterCut(right.contract, axis);
      right.batch = AfterCut(right.batch, axis);
      added = AfterCut(added, axis);
      added.push_back(axis);
    }
    right.batch.insert(right.batch.begin(), added.begin(), added.end());
  }
  const DotDims tiled{left.contract, right.contract, left.batch, right.batch};
  CheckDot("AqtServe", left.tensor.shape(), frozen.shape(), tiled);
  const auto quantized = QuantizedOrNot(run, kForwardLeft, left.tensor, config.forward.lhs, left.contract);
  const Tensor out =
      ScaledProduct(run, OperandOf(left.tensor, quantized), frozen, tiled, config.forward.accumulator, lhs.dtype());
  return SumTiles(out, dims, config);
}

}  // namespace octavo::quant
