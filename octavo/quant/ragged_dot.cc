#include "octavo/quant/ragged_dot.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/frozen_weight.h"
#include "octavo/quant/ragged_fused.h"

namespace octavo::quant {
namespace {

constexpr const char* kOp = "RaggedDot";

DotOperand Indexed(const DotOperand& operand, int axis, IndexItem item) {
  std::vector<IndexItem> items(static_cast<size_t>(axis), IndexItem::All());
  items.push_back(item);
  if (const auto* tensor = std::get_if<Tensor>(&operand)) return tensor->Index(items);
  if (const auto* codes = std::get_if<Codes>(&operand)) return Codes{codes->values.Index(items), codes->format};
  return Index(std::get<QArray>(operand), items);
}

bool IsSlow(const DotOperand& operand) {
  if (std::holds_alternative<Tensor>(operand)) return true;
  if (const auto* array = std::get_if<QArray>(&operand)) {
    return array->zero_point.has_value() || Info(array->format).kind == FormatKind::kTable;
  }
  return false;
}

// The same dot without axis `gone` of rhs.
std::vector<int> Without(std::vector<int> axes, int gone) {
  for (int& axis : axes) axis -= axis > gone;
  return axes;
}

struct Rows {
  int64_t begin, end;
};
std::vector<Rows> RowsOfGroups(std::span<const int64_t> sizes, int64_t rows) {
  std::vector<Rows> result;
  int64_t at = 0;
  for (int64_t size : sizes) {
    if (size < 0) ThrowUsage("{}: a group of {} rows", kOp, size);
    const int64_t end = at + std::min(size, rows - at);
    result.push_back({at, end});
    at = end;
  }
  return result;
}

// Writes `part` into positions [begin, …) of `axis` of the contiguous `out`.
void Place(const Tensor& part, int axis, int64_t begin, Tensor& out) {
  const Tensor packed = part.Contiguous();
  int64_t outer = 1, inner = SizeOf(out.dtype());
  for (int i = 0; i < axis; ++i) outer *= out.dim(i);
  for (int i = axis + 1; i < out.rank(); ++i) inner *= out.dim(i);
  const int64_t from = packed.dim(axis) * inner, to = out.dim(axis) * inner;
  for (int64_t i = 0; i < outer; ++i) {
    std::memcpy(out.MutableRawData() + i * to + begin * inner, packed.RawData() + i * from, static_cast<size_t>(from));
  }
}

Tensor GroupDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, const DotDims& dims, DType result) {
  return IsSlow(lhs) || IsSlow(rhs) ? SlowDot(run, lhs, rhs, dims, result) : FastDot(run, lhs, rhs, dims, result);
}

// One call of the grouped kernels for the two forms that experts use.
std::optional<Tensor> TryFused(const Run& run, const DotOperand& lhs, const DotOperand& rhs,
                               std::span<const int64_t> sizes, const RaggedDims& dims, DType result) {
  if (IsSlow(lhs) || IsSlow(rhs) || dims.lhs_ragged != 0 || ShapeOf(lhs).rank() != 2) return std::nullopt;
  if (dims.dot == DotDims{{1}, {1}, {}, {}} && dims.rhs_group == 0 && ShapeOf(rhs).rank() == 3) {
    return TryGroupedRows(run, PartsOf(kOp, lhs), PartsOf(kOp, rhs), sizes, result);
  }
  if (dims.dot == DotDims{{0}, {0}, {}, {}} && ShapeOf(rhs).rank() == 2) {
    return TryGroupedSums(run, PartsOf(kOp, lhs), PartsOf(kOp, rhs), sizes, result);
  }
  return std::nullopt;
}

void CheckRagged(const DotOperand& lhs, const DotOperand& rhs, std::span<const int64_t> sizes, const RaggedDims& dims,
                 bool contracted) {
  const Shape &left = ShapeOf(lhs), &right = ShapeOf(rhs);
  CheckAxis(kOp, dims.lhs_ragged, left);
  if (contracted) {
    if (dims.rhs_group >= 0)
      ThrowUsage("{}: lhs {} contracts its ragged axis, so rhs {} has no groups", kOp, left, right);
    return;
  }
  CheckAxis(kOp, dims.rhs_group, right);
  if (right[dims.rhs_group] != static_cast<int64_t>(sizes.size())) {
    ThrowUsage("{}: {} group sizes, rhs {} has {} groups", kOp, sizes.size(), right, right[dims.rhs_group]);
  }
}

}  // namespace

Tensor RaggedDotGeneral(const Run& run, const DotOperand& lhs, const DotOperand& rhs,
                        std::span<const int64_t> group_sizes, const RaggedDims& dims, std::optional<DType> preferred) {
  const ScopedFloatMode mode;
  const auto& contract = dims.dot.lhs_contract;
  const bool contracted = std::find(contract.begin(), contract.end(), dims.lhs_ragged) != contract.end();
  CheckRagged(lhs, rhs, group_sizes, dims, contracted);
  const DType result = DotResultDType(lhs, rhs, preferred);
  const auto groups = static_cast<int64_t>(group_sizes.size());
  const Shape& left = ShapeOf(lhs);
  const std::vector<Rows> rows = RowsOfGroups(group_sizes, left[dims.lhs_ragged]);
  DotDims dot = dims.dot;
  std::vector<int64_t> out_dims;
  int out_axis = 0;
  if (contracted) {
    const Shape one = DotShape(kOp, left, ShapeOf(rhs), dot);
    out_dims.push_back(groups);
    out_dims.insert(out_dims.end(), one.begin(), one.end());
  } else {
    dot.rhs_contract = Without(dot.rhs_contract, dims.rhs_group);
    dot.rhs_batch = Without(dot.rhs_batch, dims.rhs_group);
    std::vector<int64_t> slice(ShapeOf(rhs).begin(), ShapeOf(rhs).end());
    slice.erase(slice.begin() + dims.rhs_group);
    const Shape whole = DotShape(kOp, left, Shape(slice), dot);
    out_dims.assign(whole.begin(), whole.end());
    const std::vector<int> free = FreeAxes(left.rank(), dot.lhs_contract, dot.lhs_batch);
    const auto at = std::find(free.begin(), free.end(), dims.lhs_ragged);
    if (at == free.end()) ThrowUsage("{}: axis {} of lhs {} is a batch axis", kOp, dims.lhs_ragged, left);
    out_axis = static_cast<int>(dot.lhs_batch.size() + static_cast<size_t>(at - free.begin()));
  }
  const bool gone = IsMeta(rhs) && (run.frozen == nullptr || !run.frozen->packed());
  if (IsMeta(lhs) || gone) return Tensor::Meta(Shape(out_dims), result);
  if (auto fused = TryFused(run, lhs, rhs, group_sizes, dims, result)) return *fused;
  Tensor out = Tensor::Zeros(Shape(out_dims), result);
  Run each = run;
  each.frozen = nullptr;  // panels would be those of one group
  for (int64_t group = 0; group < groups; ++group) {
    const auto [begin, end] = rows[static_cast<size_t>(group)];
    if (begin == end) continue;
    const DotOperand a = Indexed(lhs, dims.lhs_ragged, IndexItem::Range(begin, end));
    if (contracted) {
      const auto pair = std::find(contract.begin(), contract.end(), dims.lhs_ragged) - contract.begin();
      const int axis = dot.rhs_contract[static_cast<size_t>(pair)];
      const DotOperand b = Indexed(rhs, axis, IndexItem::Range(begin, end));
      Place(GroupDot(each, a, b, dot, result).ExpandDims(0), 0, group, out);
    } else {
      const DotOperand b = Indexed(rhs, dims.rhs_group, IndexItem::At(group));
      Place(GroupDot(each, a, b, dot, result), out_axis, begin, out);
    }
  }
  return out;
}

Tensor RaggedDot(const Run& run, const DotOperand& lhs, const DotOperand& rhs, std::span<const int64_t> group_sizes,
                 std::optional<DType> preferred) {
  if (ShapeOf(lhs).rank() != 2 || ShapeOf(rhs).rank() != 3) {
    ThrowUsage("{}: lhs {} and rhs {}, expected [M, K] and [G, K, N]", kOp, ShapeOf(lhs), ShapeOf(rhs));
  }
  return RaggedDotGeneral(run, lhs, rhs, group_sizes, {{{1}, {1}, {}, {}}, 0, 0}, preferred);
}

}  // namespace octavo::quant
