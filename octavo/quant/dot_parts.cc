#include "octavo/quant/dot_parts.h"

#include <algorithm>
#include <numeric>

#include "octavo/base/check.h"
#include "octavo/quant/element.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/tile_runs.h"

namespace octavo::quant {
namespace {

// Every element as f32. i32 is rounded once here, as the reference does before it multiplies.
std::vector<float> AsFloats(const Tensor& values) {
  const Tensor packed = values.Contiguous();
  std::vector<float> result(static_cast<size_t>(packed.size()));
  if (packed.dtype() == DType::kI32) {
    std::ranges::transform(packed.Values<int32_t>(), result.begin(), [](int32_t x) { return static_cast<float>(x); });
    return result;
  }
  WithElement("Dot", packed.dtype(), [&](auto element) {
    using E = decltype(element);
    std::ranges::transform(packed.Values<typename E::Stored>(), result.begin(), [](auto x) { return E::Load(x); });
  });
  return result;
}

// The tile of a contracted axis: nullopt when the scale does not cut it.
std::optional<int64_t> TileOn(const DotParts& parts, int axis) {
  if (!parts.scale) return std::nullopt;
  const int64_t n = parts.side.values.dim(axis), pieces = parts.scale->dim(axis);
  if (pieces == 1 || pieces == n) return std::nullopt;
  return n / pieces;
}

// Cuts axis a into (pieces, length / pieces) for each a with tiles[a] > 0; a scale axis of length s becomes (s, 1).
Tensor SplitAxes(const Tensor& tensor, const std::vector<int64_t>& tiles, bool is_scale) {
  std::vector<int64_t> dims;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    const int64_t tile = tiles[static_cast<size_t>(axis)], length = tensor.dim(axis);
    dims.push_back(tile == 0 || is_scale ? length : length / tile);
    if (tile > 0) dims.push_back(is_scale ? 1 : tile);
  }
  return tensor.Reshape(dims);
}

struct SplitOperand {
  DotParts parts;
  std::vector<int> batch, contract;
};

SplitOperand SplitOne(const DotParts& parts, const std::vector<int>& batch, const std::vector<int>& contract,
                      const std::vector<int64_t>& tile_of_pair) {
  const int rank = parts.side.values.rank();
  std::vector<int64_t> tiles(static_cast<size_t>(rank), 0);
  for (size_t i = 0; i < contract.size(); ++i) tiles[static_cast<size_t>(contract[i])] = tile_of_pair[i];
  // Where each old axis begins after the cuts.
  std::vector<int> start;
  int next = 0;
  for (int axis = 0; axis < rank; ++axis) {
    start.push_back(next);
    next += tiles[static_cast<size_t>(axis)] > 0 ? 2 : 1;
  }
  SplitOperand result{parts, {}, {}};
  for (int axis : batch) result.batch.push_back(start[static_cast<size_t>(axis)]);
  for (size_t i = 0; i < contract.size(); ++i) {
    const int at = start[static_cast<size_t>(contract[i])];
    if (tile_of_pair[i] > 0) result.batch.push_back(at);
    result.contract.push_back(tile_of_pair[i] > 0 ? at + 1 : at);
  }
  result.parts.side.values = SplitAxes(parts.side.values, tiles, false);
  if (parts.scale) result.parts.scale = SplitAxes(*parts.scale, tiles, true);
  if (parts.zero_point) result.parts.zero_point = SplitAxes(*parts.zero_point, tiles, true);
  return result;
}

Tensor OnOutput(std::string_view op, const char* side, const Tensor& scale, const Shape& own,
                const std::vector<int>& contract, const std::vector<std::optional<int>>& axes) {
  for (int axis : contract) {
    if (scale.dim(axis) == 1) continue;
    ThrowUsage("{}: the scale {} of {} {} varies along contracted axis {}", op, scale.shape(), side, own, axis);
  }
  return scale.Rearrange(axes);
}

}  // namespace

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kI32) return b;
  if (b == DType::kI32) return a;
  return DType::kF32;
}

DotParts PartsOf(std::string_view op, const DotOperand& operand) {
  if (const auto* tensor = std::get_if<Tensor>(&operand)) {
    if (!IsFloat(tensor->dtype()) || tensor->dtype() == DType::kF64) {
      ThrowUsage("{}: operand {} is not f32, bf16 or f16; give codes with their format", op, tensor->ToString());
    }
    return {{*tensor, std::nullopt}, std::nullopt, std::nullopt};
  }
  if (const auto* codes = std::get_if<Codes>(&operand)) {
    if (codes->values.dtype() != Info(codes->format).dtype) {
      ThrowUsage("{}: codes of {} are stored in {}, found {}", op, Info(codes->format).name,
                 octavo::NameOf(Info(codes->format).dtype), codes->values.ToString());
    }
    return {{codes->values, codes->format}, std::nullopt, std::nullopt};
  }
  const auto& array = std::get<QArray>(operand);
  Validate(op, array);
  DotParts parts{{array.qvalue, array.format}, array.scale, std::nullopt};
  if (array.zero_point) parts.zero_point = array.zero_point->RepeatTo(array.scale.shape());
  return parts;
}

Tensor CastTo(const Tensor& values, DType dtype) {
  if (values.dtype() == dtype) return values;
  if (values.dtype() != DType::kI32) return CastFloat(values, dtype);
  const std::vector<float> floats = AsFloats(values);
  return CastFloat(Tensor::FromValues<float>(values.shape(), DType::kF32, floats), dtype);
}

Tensor TimesScale(const Tensor& values, const Tensor& scale) {
  const DType dtype = Promote(values.dtype(), scale.dtype());
  const std::vector<float> in = AsFloats(values), by = AsFloats(scale);
  return WithElement("Dot", dtype, [&](auto element) {
    using E = decltype(element);
    Tensor result = Tensor::Empty(values.shape(), dtype);
    auto out = result.MutableValues<typename E::Stored>();
    ForEachRun(values.shape(), scale.shape(), [&](int64_t begin, int64_t part, int64_t length) {
      const float factor = E::Round(by[static_cast<size_t>(part)]);
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(begin + length); ++i) {
        out[i] = E::Store(E::Round(in[i]) * factor);
      }
    });
    return result;
  });
}

Tensor SumAxes(const Tensor& values, int skip, int axes) {
  if (axes == 0) return values;
  std::vector<int64_t> kept;
  int64_t outer = 1, terms = 1, inner = 1;
  for (int axis = 0; axis < values.rank(); ++axis) {
    const int64_t n = values.dim(axis);
    const bool summed = axis >= skip && axis < skip + axes;
    if (!summed) kept.push_back(n);
    (axis < skip ? outer : summed ? terms : inner) *= n;
  }
  if (terms == 1) return values.Reshape(kept);
  const std::vector<float> in = AsFloats(values);
  return WithElement("Dot", values.dtype(), [&](auto element) {
    using E = decltype(element);
    Tensor result = Tensor::Empty(Shape(kept), values.dtype());
    auto out = result.MutableValues<typename E::Stored>();
    for (int64_t i = 0; i < outer * inner; ++i) {
      const int64_t first = i / inner * terms * inner + i % inner;
      float sum = terms == 0 ? 0.0f : in[static_cast<size_t>(first)];
      for (int64_t term = 1; term < terms; ++term) sum += in[static_cast<size_t>(first + term * inner)];
      out[static_cast<size_t>(i)] = E::Store(sum);
    }
    return result;
  });
}

Tensor LeftScaleOnOutput(std::string_view op, const Tensor& scale, const Shape& lhs, const Shape& rhs,
                         const DotDims& dims) {
  std::vector<std::optional<int>> axes(dims.lhs_batch.begin(), dims.lhs_batch.end());
  for (int axis : FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch)) axes.emplace_back(axis);
  const size_t others = FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch).size();
  axes.insert(axes.end(), others, std::nullopt);
  return OnOutput(op, "lhs", scale, lhs, dims.lhs_contract, axes);
}

Tensor RightScaleOnOutput(std::string_view op, const Tensor& scale, const Shape& lhs, const Shape& rhs,
                          const DotDims& dims) {
  std::vector<std::optional<int>> axes(dims.rhs_batch.begin(), dims.rhs_batch.end());
  const size_t others = FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch).size();
  axes.insert(axes.end(), others, std::nullopt);
  for (int axis : FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch)) axes.emplace_back(axis);
  return OnOutput(op, "rhs", scale, rhs, dims.rhs_contract, axes);
}

SplitDot SplitTiles(std::string_view op, const DotParts& lhs, const DotParts& rhs, const DotDims& dims) {
  std::vector<int64_t> tiles;
  int tile_axes = 0;
  for (size_t i = 0; i < dims.lhs_contract.size(); ++i) {
    const auto left = TileOn(lhs, dims.lhs_contract[i]), right = TileOn(rhs, dims.rhs_contract[i]);
    if (left && right && *left != *right) {
      ThrowUsage("{}: contracted axis {} of lhs {} has tiles of {}, axis {} of rhs {} tiles of {}", op,
                 dims.lhs_contract[i], lhs.side.values.shape(), *left, dims.rhs_contract[i], rhs.side.values.shape(),
                 *right);
    }
    tiles.push_back(left ? *left : right.value_or(0));
    tile_axes += tiles.back() > 0;
  }
  if (tile_axes == 0) return {lhs, rhs, dims, 0};
  SplitOperand left = SplitOne(lhs, dims.lhs_batch, dims.lhs_contract, tiles);
  SplitOperand right = SplitOne(rhs, dims.rhs_batch, dims.rhs_contract, tiles);
  return {left.parts, right.parts, {left.contract, right.contract, left.batch, right.batch}, tile_axes};
}

}  // namespace octavo::quant
