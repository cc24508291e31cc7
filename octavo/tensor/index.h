// Indexing expressions, x[2, 1:4, ..., None], as values. Tensor and QArray apply them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/tensor/shape.h"

namespace octavo {

// One entry. Ranges follow Python with a positive step: begin inclusive, end exclusive, negative counts from the end,
// out of range is clamped. A single index out of range is an error.
struct IndexItem {
  enum class Kind { kAt, kRange, kNewAxis, kEllipsis };
  static IndexItem At(int64_t i) { return {Kind::kAt, i, 0, 1}; }
  static IndexItem Range(int64_t begin, int64_t end, int64_t step = 1) { return {Kind::kRange, begin, end, step}; }
  static IndexItem All() { return Range(0, INT64_MAX); }
  static IndexItem NewAxis() { return {Kind::kNewAxis, 0, 0, 1}; }
  static IndexItem Ellipsis() { return {Kind::kEllipsis, 0, 0, 1}; }

  Kind kind;
  int64_t begin, end, step;
};

// The same expression with the ellipsis and missing axes written out and all numbers inside the axes: entries are kAt,
// kRange (0 <= begin <= end <= length) or kNewAxis, and the first two name the axes of `shape` in order.
std::vector<IndexItem> ResolveIndex(std::string_view op, std::span<const IndexItem> items, const Shape& shape);

}  // namespace octavo
