#include "octavo/quant/dot.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/frozen_weight.h"
#include "octavo/quant/quantize_run.h"

namespace octavo::quant {
namespace {

// A scale that changes more often than this along a contracted axis costs more to apply to sums than to values.
constexpr int64_t kMinTileForFast = 128;

bool IsRawFloat(const DotOperand& operand) { return std::holds_alternative<Tensor>(operand); }

std::optional<Format> FormatOf(const DotOperand& operand) {
  if (const auto* array = std::get_if<QArray>(&operand)) return array->format;
  if (const auto* codes = std::get_if<Codes>(&operand)) return codes->format;
  return std::nullopt;
}

bool IsBlock(const DotOperand& operand) {
  return std::holds_alternative<QArray>(operand) && Info(*FormatOf(operand)).block > 0;
}

// The smallest tile of a scale along contracted axes, nullopt if it does not vary there.
std::optional<int64_t> SmallestTile(const DotOperand& operand, const std::vector<int>& contract) {
  const auto* array = std::get_if<QArray>(&operand);
  if (array == nullptr) return std::nullopt;
  std::optional<int64_t> smallest;
  for (int axis : contract) {
    const int64_t pieces = array->scale.dim(axis);
    if (pieces <= 1) continue;
    const int64_t tile = array->qvalue.dim(axis) / pieces;
    smallest = std::min(tile, smallest.value_or(tile));
  }
  return smallest;
}

DType ContributedDType(const DotOperand& operand) {
  if (const auto* tensor = std::get_if<Tensor>(&operand)) return tensor->dtype();
  if (const auto* array = std::get_if<QArray>(&operand)) return array->dtype();
  return Info(*FormatOf(operand)).kind == FormatKind::kInteger ? DType::kI32 : DType::kBF16;
}

bool AllInteger(const DotParts& lhs, const DotParts& rhs) { return IsInteger(lhs.side) && IsInteger(rhs.side); }

void RefuseTable(const char* op, const DotParts& parts) {
  if (parts.side.codes && Info(*parts.side.codes).kind == FormatKind::kTable) {
    ThrowUsage("{}: codes of {} are indices and cannot be multiplied; dequantize first", op,
               Info(*parts.side.codes).name);
  }
}

// The product of the codes in the accumulator's dtype.
Tensor CodeProduct(const Run& run, const DotParts& lhs, const DotParts& rhs, const DotDims& dims, DType result) {
  if (AllInteger(lhs, rhs)) return IntegerProduct(run, lhs.side, rhs.side, dims);
  return FloatProduct(run, lhs.side, rhs.side, dims, result);
}

// A zero point on the batch and contracted axes of its array; free axes stay as they are.
Tensor SpreadZeroPoint(const Tensor& zero, const Shape& own, const std::vector<int>& contract,
                       const std::vector<int>& batch) {
  std::vector<int64_t> dims(zero.shape().begin(), zero.shape().end());
  for (int axis : contract) dims[static_cast<size_t>(axis)] = own[axis];
  for (int axis : batch) dims[static_cast<size_t>(axis)] = own[axis];
  return zero.RepeatTo(Shape(dims));
}

// acc - correction, the correction repeated over free axes. Both are i32, or floats of one dtype.
Tensor Subtract(const Tensor& acc, const Tensor& correction) {
  Tensor result = acc.Clone();
  const Tensor wide = correction.RepeatTo(acc.shape()).Contiguous();
  if (acc.dtype() != DType::kI32) ThrowUsage("Dot: a zero point needs integer codes on both sides");
  auto out = result.MutableValues<int32_t>();
  auto by = wide.Values<int32_t>();
  for (size_t i = 0; i < out.size(); ++i) out[i] -= by[i];
  return result;
}

Tensor CorrectZeroPoint(const Run& run, const Tensor& acc, const DotParts& lhs, const DotParts& rhs,
                        const DotDims& dims) {
  if (lhs.zero_point) {
    const ProductSide zero{SpreadZeroPoint(*lhs.zero_point, lhs.side.values.shape(), dims.lhs_contract, dims.lhs_batch),
                           lhs.side.codes};
    return Subtract(acc, IntegerProduct(run, zero, rhs.side, dims));
  }
  if (rhs.zero_point) {
    const ProductSide zero{SpreadZeroPoint(*rhs.zero_point, rhs.side.values.shape(), dims.rhs_contract, dims.rhs_batch),
                           rhs.side.codes};
    return Subtract(acc, IntegerProduct(run, lhs.side, zero, dims));
  }
  return acc;
}

Tensor ApplyScales(const char* op, Tensor acc, const DotParts& lhs, const DotParts& rhs, const DotDims& dims) {
  const Shape left = lhs.side.values.shape(), right = rhs.side.values.shape();
  if (lhs.scale) acc = TimesScale(acc, LeftScaleOnOutput(op, *lhs.scale, left, right, dims));
  if (rhs.scale) acc = TimesScale(acc, RightScaleOnOutput(op, *rhs.scale, left, right, dims));
  return acc;
}

Tensor MetaResult(const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims, std::optional<DType> preferred) {
  return Tensor::Meta(DotShape("DotGeneral", ShapeOf(lhs), ShapeOf(rhs), dims), DotResultDType(lhs, rhs, preferred));
}

ProductSide Dequantized(const Run& run, const char* op, const DotOperand& operand) {
  if (const auto* array = std::get_if<QArray>(&operand)) return {Dequantize(run, *array), std::nullopt};
  return PartsOf(op, operand).side;
}

// The right side; the values of a frozen weight stay in its panels.
ProductSide DequantizedRight(const Run& run, const char* op, const DotOperand& operand, const DotDims& dims) {
  const auto* array = std::get_if<QArray>(&operand);
  if (array != nullptr && run.frozen != nullptr && dims.rhs_batch.empty() && !run.reference &&
      run.frozen->Values(run, *array, dims.rhs_contract) != nullptr) {
    return {Tensor::Meta(array->shape(), array->dtype()), std::nullopt};
  }
  return Dequantized(run, op, operand);
}

bool IsDry(const Run& run, const DotOperand& lhs, const DotOperand& rhs) {
  return IsMeta(lhs) || (IsMeta(rhs) && (run.frozen == nullptr || !run.frozen->packed()));
}

// One tile of an operand that SplitTiles cut: index i on the last `tile_axes` batch axes.
DotParts TileOf(const DotParts& parts, const std::vector<int>& batch, int tile_axes, std::span<const int64_t> index) {
  auto pick = [&](const Tensor& tensor) {
    Tensor result = tensor;
    for (int i = 0; i < tile_axes; ++i) {
      const int axis = batch[batch.size() - static_cast<size_t>(tile_axes - i)];
      const int64_t at = result.dim(axis) == 1 ? 0 : index[static_cast<size_t>(i)];
      result = result.Slice(axis, at, at + 1);
    }
    return result;
  };
  DotParts result{{pick(parts.side.values), parts.side.codes}, std::nullopt, std::nullopt};
  if (parts.scale) result.scale = pick(*parts.scale);
  return result;
}

Tensor AddTo(const Tensor& sum, const Tensor& part) {
  // A stack of two and a sum over it: one rounding to the dtype.
  Tensor both = Tensor::Empty(Shape({2, sum.size()}), sum.dtype());
  const Tensor a = sum.Contiguous(), b = part.Contiguous();
  std::copy_n(a.RawData(), a.bytes(), both.MutableRawData());
  std::copy_n(b.RawData(), b.bytes(), both.MutableRawData() + a.bytes());
  return SumAxes(both, 0, 1).Reshape(sum.shape());
}

}  // namespace

const Shape& ShapeOf(const DotOperand& operand) {
  if (const auto* tensor = std::get_if<Tensor>(&operand)) return tensor->shape();
  if (const auto* codes = std::get_if<Codes>(&operand)) return codes->values.shape();
  return std::get<QArray>(operand).shape();
}

bool IsMeta(const DotOperand& operand) {
  if (const auto* tensor = std::get_if<Tensor>(&operand)) return tensor->is_meta();
  if (const auto* codes = std::get_if<Codes>(&operand)) return codes->values.is_meta();
  return std::get<QArray>(operand).is_meta();
}

std::string_view NameOf(DotPath path) {
  switch (path) {
    case DotPath::kFast:
      return "fast";
    case DotPath::kSlow:
      return "slow";
    case DotPath::kBlock:
      break;
  }
  return "block";
}

DotChoice ChooseDotPath(const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims) {
  if (IsBlock(lhs) && IsBlock(rhs)) return {DotPath::kBlock, "both operands have block scales"};
  if (IsRawFloat(lhs)) return {DotPath::kSlow, "lhs is not quantized"};
  if (IsRawFloat(rhs)) return {DotPath::kSlow, "rhs is not quantized"};
  for (const auto* operand : {&lhs, &rhs}) {
    if (Info(*FormatOf(*operand)).kind == FormatKind::kTable) return {DotPath::kSlow, "nf4 codes are indices"};
  }
  const auto left = SmallestTile(lhs, dims.lhs_contract), right = SmallestTile(rhs, dims.rhs_contract);
  if (left && *left < kMinTileForFast) return {DotPath::kSlow, fmt::format("tile {} of lhs is below 128", *left)};
  if (right && *right < kMinTileForFast) return {DotPath::kSlow, fmt::format("tile {} of rhs is below 128", *right)};
  return {DotPath::kFast, "codes can be multiplied"};
}

DType DotResultDType(const DotOperand& lhs, const DotOperand& rhs, std::optional<DType> preferred) {
  if (preferred) return *preferred;
  return Promote(ContributedDType(lhs), ContributedDType(rhs));
}

Tensor DotGeneral(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
                  std::optional<DType> preferred) {
  CheckDot("DotGeneral", ShapeOf(lhs), ShapeOf(rhs), dims);
  const DotChoice choice = ChooseDotPath(lhs, rhs, dims);
  return choice.path == DotPath::kFast ? FastDot(run, lhs, rhs, dims, preferred)
                                       : SlowDot(run, lhs, rhs, dims, preferred);
}

Tensor SlowDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
               std::optional<DType> preferred) {
  constexpr const char* kOp = "SlowDot";
  if (IsDry(run, lhs, rhs)) return MetaResult(lhs, rhs, dims, preferred);
  const ScopedFloatMode mode;
  const DType result = DotResultDType(lhs, rhs, preferred);
  const ProductSide left = Dequantized(run, kOp, lhs), right = DequantizedRight(run, kOp, rhs, dims);
  if (result == DType::kI32) return IntegerProduct(run, left, right, dims);
  return FloatProduct(run, left, right, dims, result);
}

Tensor FastDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
               std::optional<DType> preferred) {
  constexpr const char* kOp = "FastDot";
  if (IsDry(run, lhs, rhs)) return MetaResult(lhs, rhs, dims, preferred);
  const ScopedFloatMode mode;
  const DType result = DotResultDType(lhs, rhs, preferred);
  const DotParts left = PartsOf(kOp, lhs), right = PartsOf(kOp, rhs);
  if (left.zero_point && right.zero_point) {
    ThrowUsage("{}: lhs {} and rhs {} both have zero points; only one operand can be asymmetric", kOp, ShapeOf(lhs),
               ShapeOf(rhs));
  }
  RefuseTable(kOp, left);
  RefuseTable(kOp, right);
  if (auto fused = TryFusedDot(run, left, right, dims, result)) return *fused;
  const SplitDot split = SplitTiles(kOp, left, right, dims);
  Tensor acc = CodeProduct(run, split.lhs, split.rhs, split.dims, result);
  acc = CorrectZeroPoint(run, acc, split.lhs, split.rhs, split.dims);
  acc = ApplyScales(kOp, acc, split.lhs, split.rhs, split.dims);
  acc = SumAxes(acc, static_cast<int>(dims.lhs_batch.size()), split.tile_axes);
  return CastTo(acc, result);
}

Tensor LoopDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims,
               std::optional<DType> preferred) {
  constexpr const char* kOp = "LoopDot";
  if (IsMeta(lhs) || IsMeta(rhs)) return MetaResult(lhs, rhs, dims, preferred);
  const ScopedFloatMode mode;
  const DType result = DotResultDType(lhs, rhs, preferred);
  const DotParts left = PartsOf(kOp, lhs), right = PartsOf(kOp, rhs);
  if (left.zero_point || right.zero_point) ThrowUsage("{}: zero points are not possible tile by tile", kOp);
  RefuseTable(kOp, left);
  RefuseTable(kOp, right);
  const SplitDot split = SplitTiles(kOp, left, right, dims);
  const auto count = static_cast<size_t>(split.tile_axes);
  std::vector<int64_t> lengths, index(count, 0);
  for (size_t i = split.dims.lhs_batch.size() - count; i < split.dims.lhs_batch.size(); ++i) {
    lengths.push_back(split.lhs.side.values.dim(split.dims.lhs_batch[i]));
  }
  Tensor sum;
  while (true) {
    const DotParts a = TileOf(split.lhs, split.dims.lhs_batch, split.tile_axes, index);
    const DotParts b = TileOf(split.rhs, split.dims.rhs_batch, split.tile_axes, index);
    const Tensor part = ApplyScales(kOp, CodeProduct(run, a, b, split.dims, result), a, b, split.dims);
    sum = sum.defined() ? AddTo(sum, part) : part;
    size_t axis = count;
    while (axis > 0 && ++index[axis - 1] == lengths[axis - 1]) index[--axis] = 0;
    if (axis == 0) break;
  }
  return CastTo(sum.Reshape(DotShape(kOp, ShapeOf(lhs), ShapeOf(rhs), dims)), result);
}

}  // namespace octavo::quant
