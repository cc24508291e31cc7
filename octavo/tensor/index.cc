#include "octavo/tensor/index.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo {
namespace {

int64_t Clamped(int64_t at, int64_t length) {
  if (at < 0) at += length;
  return std::clamp<int64_t>(at, 0, length);
}

}  // namespace

std::vector<IndexItem> ResolveIndex(std::string_view op, std::span<const IndexItem> items, const Shape& shape) {
  int named = 0, ellipses = 0;
  for (const IndexItem& item : items) {
    named += item.kind == IndexItem::Kind::kAt || item.kind == IndexItem::Kind::kRange;
    ellipses += item.kind == IndexItem::Kind::kEllipsis;
  }
  if (ellipses > 1) ThrowUsage("{}: {} ellipses, at most one is possible", op, ellipses);
  if (named > shape.rank()) ThrowUsage("{}: {} indices for {}, which has {} axes", op, named, shape, shape.rank());

  std::vector<IndexItem> result;
  int axis = 0;
  auto take_rest = [&](int count) {
    for (; count > 0; --count) result.push_back(IndexItem::Range(0, shape[axis++]));
  };
  for (const IndexItem& item : items) {
    switch (item.kind) {
      case IndexItem::Kind::kNewAxis:
        result.push_back(item);
        break;
      case IndexItem::Kind::kEllipsis:
        take_rest(shape.rank() - named);
        break;
      case IndexItem::Kind::kAt: {
        int64_t length = shape[axis];
        if (item.begin < -length || item.begin >= length) {
          ThrowUsage("{}: index {} on axis {} of {}", op, item.begin, axis, shape);
        }
        result.push_back(IndexItem::At(item.begin < 0 ? item.begin + length : item.begin));
        ++axis;
        break;
      }
      case IndexItem::Kind::kRange: {
        if (item.step < 1) ThrowUsage("{}: step {} on axis {} of {}; only positive steps", op, item.step, axis, shape);
        int64_t begin = Clamped(item.begin, shape[axis]);
        result.push_back(IndexItem::Range(begin, std::max(begin, Clamped(item.end, shape[axis])), item.step));
        ++axis;
        break;
      }
    }
  }
  take_rest(shape.rank() - axis);
  return result;
}

}  // namespace octavo
