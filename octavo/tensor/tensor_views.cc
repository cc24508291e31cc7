// The view-making members of Tensor.
#include <algorithm>
#include <array>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/tensor/tensor.h"

namespace octavo {
namespace {

// Sizes or strides of a view that is being made, in place: views are made many times per product of a served token, and
// each visit to the heap costs it a few cold lines.
class AxisValues {
 public:
  AxisValues() = default;
  AxisValues(const int64_t* begin, int count) : count_(count) { std::copy_n(begin, count, values_.begin()); }

  int size() const { return count_; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  void push_back(int64_t value) { insert(count_, value); }
  void insert(int at, int64_t value) {
    if (count_ == Shape::kMaxRank) ThrowUsage("Tensor: a view of more than {} axes", Shape::kMaxRank);
    std::copy_backward(values_.begin() + at, values_.begin() + count_, values_.begin() + count_ + 1);
    values_[static_cast<size_t>(at)] = value;
    ++count_;
  }
  void erase(int at) {
    std::copy(values_.begin() + at + 1, values_.begin() + count_, values_.begin() + at);
    --count_;
  }
  operator std::span<const int64_t>() const { return {values_.data(), static_cast<size_t>(count_)}; }  // NOLINT

 private:
  std::array<int64_t, Shape::kMaxRank> values_;
  int count_ = 0;
};

}  // namespace

Tensor Tensor::View(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t offset) const {
  Tensor result = *this;
  result.shape_ = Shape(dims);
  result.strides_.fill(0);
  std::copy(strides.begin(), strides.end(), result.strides_.begin());
  result.offset_ = offset_ + offset;
  return result;
}

// The strides that show the same elements in the same order as `to`; false when there are none.
bool Tensor::StridesFor(const Shape& to, std::array<int64_t, Shape::kMaxRank>& result) const {
  AxisValues dims, steps;  // this tensor without axes of length 1
  for (int axis = 0; axis < rank(); ++axis) {
    if (shape_[axis] == 1) continue;
    dims.push_back(shape_[axis]);
    steps.push_back(strides_[static_cast<size_t>(axis)]);
  }
  result.fill(1);
  int old_axis = 0, new_axis = 0;
  while (new_axis < to.rank()) {
    if (to[new_axis] == 1) {
      ++new_axis;
      continue;
    }
    // The smallest run of old axes and the run of new axes with the same count.
    int old_end = old_axis, new_end = new_axis;
    int64_t old_count = dims[old_end++], new_count = to[new_end++];
    while (old_count != new_count) {
      if (old_count < new_count) {
        old_count *= dims[old_end++];
      } else {
        new_count *= to[new_end++];
      }
    }
    for (int i = old_axis; i + 1 < old_end; ++i) {
      if (steps[i] != steps[i + 1] * dims[i + 1]) return false;
    }
    int64_t step = steps[old_end - 1];
    for (int i = new_end - 1; i >= new_axis; --i) {
      result[static_cast<size_t>(i)] = step;
      step *= to[i];
    }
    old_axis = old_end;
    new_axis = new_end;
  }
  return true;
}

Tensor Tensor::Reshape(std::span<const int64_t> dims) const {
  CheckDefined("Reshape");
  Shape to = ReshapedShape("Reshape", shape_, dims);
  if (size() == 0) {
    Tensor plain = Meta(to, dtype_);
    plain.storage_ = storage_;
    return plain;
  }
  std::array<int64_t, Shape::kMaxRank> strides;
  if (StridesFor(to, strides)) return View(to.dims(), {strides.data(), to.dims().size()}, 0);
  return Clone().Reshape(to);
}

Tensor Tensor::Permute(std::span<const int> axes) const {
  CheckDefined("Permute");
  CheckPermutation("Permute", axes, shape_);
  AxisValues dims, strides;
  for (int axis : axes) {
    dims.push_back(shape_[axis]);
    strides.push_back(strides_[static_cast<size_t>(axis)]);
  }
  return View(dims, strides, 0);
}

Tensor Tensor::Transpose() const {
  std::vector<int> axes;
  for (int axis = rank(); axis-- > 0;) axes.push_back(axis);
  return Permute(axes);
}

Tensor Tensor::SwapAxes(int a, int b) const {
  CheckDefined("SwapAxes");
  a = CheckAxis("SwapAxes", a, shape_);
  b = CheckAxis("SwapAxes", b, shape_);
  std::vector<int> axes;
  for (int axis = 0; axis < rank(); ++axis) axes.push_back(axis == a ? b : (axis == b ? a : axis));
  return Permute(axes);
}

Tensor Tensor::Slice(int axis, int64_t begin, int64_t end, int64_t step) const {
  CheckDefined("Slice");
  axis = CheckAxis("Slice", axis, shape_);
  if (begin < 0 || end < begin || end > shape_[axis] || step < 1) {
    ThrowUsage("Slice: [{}, {}) by {} on axis {} of {}", begin, end, step, axis, shape_);
  }
  AxisValues dims(shape_.begin(), rank()), strides(strides_.data(), rank());
  dims[axis] = (end - begin) / step + ((end - begin) % step != 0);
  int64_t offset = dims[axis] == 0 ? 0 : begin * strides[axis];
  strides[axis] *= dims[axis] > 1 ? step : 1;
  return View(dims, strides, offset);
}

Tensor Tensor::Select(int axis, int64_t index) const {
  CheckDefined("Select");
  axis = CheckAxis("Select", axis, shape_);
  if (index < -shape_[axis] || index >= shape_[axis]) {
    ThrowUsage("Select: index {} on axis {} of {}", index, axis, shape_);
  }
  if (index < 0) index += shape_[axis];
  AxisValues dims(shape_.begin(), rank()), strides(strides_.data(), rank());
  int64_t offset = index * strides[axis];
  dims.erase(axis);
  strides.erase(axis);
  return View(dims, strides, offset);
}

Tensor Tensor::Index(std::span<const IndexItem> items) const {
  CheckDefined("Index");
  Tensor result = *this;
  int axis = 0;
  for (const IndexItem& item : ResolveIndex("Index", items, shape_)) {
    switch (item.kind) {
      case IndexItem::Kind::kAt:
        result = result.Select(axis, item.begin);
        break;
      case IndexItem::Kind::kNewAxis:
        result = result.ExpandDims(axis++);
        break;
      default:
        result = result.Slice(axis++, item.begin, item.end, item.step);
    }
  }
  return result;
}

Tensor Tensor::ExpandDims(int axis) const {
  CheckDefined("ExpandDims");
  if (axis < 0) axis += rank() + 1;
  if (axis < 0 || axis > rank()) ThrowUsage("ExpandDims: a new axis at {} of {}", axis, shape_);
  AxisValues dims(shape_.begin(), rank()), strides(strides_.data(), rank());
  dims.insert(axis, 1);
  strides.insert(axis, 1);
  return View(dims, strides, 0);
}

Tensor Tensor::BroadcastTo(const Shape& shape) const {
  CheckDefined("BroadcastTo");
  if (BroadcastShape("BroadcastTo", shape_, shape) != shape) {
    ThrowUsage("BroadcastTo: {} does not fit into {}", shape_, shape);
  }
  AxisValues strides;
  int added = shape.rank() - rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    bool same = axis >= added && shape_[axis - added] == shape[axis];
    strides.push_back(same ? strides_[static_cast<size_t>(axis - added)] : 0);
  }
  return View(shape.dims(), strides, 0);
}

Tensor Tensor::Rearrange(std::span<const std::optional<int>> axes) const {
  CheckDefined("Rearrange");
  std::array<bool, Shape::kMaxRank> used{};
  AxisValues dims, strides;
  for (const auto& entry : axes) {
    if (!entry) {
      dims.push_back(1);
      strides.push_back(1);
      continue;
    }
    size_t axis = static_cast<size_t>(CheckAxis("Rearrange", *entry, shape_));
    if (used[axis]) ThrowUsage("Rearrange: axis {} of {} is named twice", axis, shape_);
    used[axis] = true;
    dims.push_back(shape_[static_cast<int>(axis)]);
    strides.push_back(strides_[axis]);
  }
  for (int axis = 0; axis < rank(); ++axis) {
    if (!used[static_cast<size_t>(axis)] && shape_[axis] != 1) {
      ThrowUsage("Rearrange: axis {} of {} is left out, which is possible only for length 1", axis, shape_);
    }
  }
  return View(dims, strides, 0);
}

Tensor Tensor::RepeatTo(const Shape& shape) const {
  CheckDefined("RepeatTo");
  if (GenericBroadcastShape("RepeatTo", shape_, shape) != shape) {
    ThrowUsage("RepeatTo: {} does not fit into {}", shape_, shape);
  }
  if (shape == shape_) return *this;
  // An axis becomes (own length, repeats) with stride 0 on the repeats; merging the two copies.
  Tensor result = *this;
  for (int axis = 0; axis < rank(); ++axis) {
    int64_t repeats = shape_[axis] == 0 ? 1 : shape[axis] / shape_[axis];
    if (repeats == 1) continue;
    std::vector<int64_t> wide(result.shape_.begin(), result.shape_.end());
    wide.insert(wide.begin() + axis + 1, repeats);
    std::vector<int64_t> merged(result.shape_.begin(), result.shape_.end());
    merged[static_cast<size_t>(axis)] *= repeats;
    result = result.ExpandDims(axis + 1).BroadcastTo(Shape(wide)).Reshape(merged);
  }
  return result;
}

}  // namespace octavo
