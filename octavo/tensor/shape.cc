#include "octavo/tensor/shape.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo {

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    ThrowUsage("Shape [{}]: {} axes, at most {} are supported", fmt::join(dims, ", "), dims.size(), kMaxRank);
  }
  // Strides are products too, so the count must fit even when a zero makes it 0.
  int64_t nonzero = 1;
  for (int64_t dim : dims) {
    if (dim < 0) ThrowUsage("Shape [{}]: negative axis {}", fmt::join(dims, ", "), dim);
    if (__builtin_mul_overflow(nonzero, std::max<int64_t>(dim, 1), &nonzero)) {
      ThrowUsage("Shape [{}]: the number of elements overflows 64 bits", fmt::join(dims, ", "));
    }
    size_ *= dim;
    dims_[static_cast<size_t>(rank_++)] = dim;
  }
}

int64_t Shape::dim(int axis) const { return (*this)[CheckAxis("Shape::dim", axis, *this)]; }

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

std::string Shape::ToString() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

int CheckAxis(std::string_view op, int axis, const Shape& shape) {
  int found = axis < 0 ? axis + shape.rank() : axis;
  if (found < 0 || found >= shape.rank()) {
    ThrowUsage("{}: axis {} of {}, which has {} axes", op, axis, shape, shape.rank());
  }
  return found;
}

void CheckPermutation(std::string_view op, std::span<const int> axes, const Shape& shape) {
  std::array<bool, Shape::kMaxRank> seen{};
  bool good = axes.size() == static_cast<size_t>(shape.rank());
  for (int axis : axes) {
    if (!good || axis < 0 || axis >= shape.rank() || seen[static_cast<size_t>(axis)]) {
      good = false;
      break;
    }
    seen[static_cast<size_t>(axis)] = true;
  }
  if (!good) {
    ThrowUsage("{}: ({}) does not name each of the {} axes of {} once", op, fmt::join(axes, ", "), shape.rank(), shape);
  }
}

Shape BroadcastShape(std::string_view op, const Shape& a, const Shape& b) {
  std::vector<int64_t> dims(static_cast<size_t>(std::max(a.rank(), b.rank())));
  for (size_t back = 1; back <= dims.size(); ++back) {
    int at = static_cast<int>(back);
    int64_t x = at <= a.rank() ? a[a.rank() - at] : 1;
    int64_t y = at <= b.rank() ? b[b.rank() - at] : 1;
    if (x != y && x != 1 && y != 1) ThrowUsage("{}: cannot broadcast {} with {}", op, a, b);
    dims[dims.size() - back] = x == 1 ? y : x;
  }
  return Shape(dims);
}

Shape GenericBroadcastShape(std::string_view op, const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) {
    ThrowUsage("{}: cannot broadcast {} with {}: {} axes and {}", op, a, b, a.rank(), b.rank());
  }
  std::vector<int64_t> dims;
  for (int axis = 0; axis < a.rank(); ++axis) {
    int64_t x = a[axis], y = b[axis];
    if (x != y && x != 1 && y != 1) {
      int64_t small = std::min(x, y), large = std::max(x, y);
      if (small == 0 || large % small != 0) {
        ThrowUsage("{}: cannot broadcast {} with {}: on axis {} {} is not a multiple of {}", op, a, b, axis, large,
                   small);
      }
    }
    dims.push_back(x == 1 ? y : (y == 1 ? x : std::max(x, y)));
  }
  return Shape(dims);
}

Shape ReshapedShape(std::string_view op, const Shape& from, std::span<const int64_t> dims) {
  std::vector<int64_t> known(dims.begin(), dims.end());
  auto open = std::find(known.begin(), known.end(), -1);
  if (open != known.end()) {
    *open = 1;
    int64_t rest = Shape(known).size();
    if (rest == 0 || from.size() % rest != 0) {
      ThrowUsage("{}: {} has {} elements, which [{}] cannot share out", op, from, from.size(), fmt::join(dims, ", "));
    }
    *open = from.size() / rest;
  }
  Shape to(known);
  if (to.size() != from.size()) {
    ThrowUsage("{}: {} has {} elements, {} wants {}", op, from, from.size(), to, to.size());
  }
  return to;
}

}  // namespace octavo
