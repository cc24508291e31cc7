#include "octavo/ops/slice.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

// Axis `axis` of a contiguous tensor as [outer, axis, inner].
struct Blocks {
  int64_t outer = 1, inner = 1;
};
Blocks BlocksOf(const Shape& shape, int axis) {
  Blocks blocks;
  for (int i = 0; i < axis; ++i) blocks.outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) blocks.inner *= shape[i];
  return blocks;
}

// whole[.., begin …, ..] = part. Both have the same elements along the other axes; `part` may lack the axis.
void CopyInto(Context& context, const Tensor& part, Tensor& whole, int axis, int64_t begin) {
  const Blocks blocks = BlocksOf(whole.shape(), axis);
  const Tensor packed = part.Contiguous();
  const int64_t unit = SizeOf(whole.dtype());
  const int64_t bytes = packed.size() / std::max<int64_t>(blocks.outer, 1) * unit;
  const int64_t step = whole.dim(axis) * blocks.inner * unit;
  const std::byte* from = packed.RawData();
  std::byte* to = whole.MutableRawData() + begin * blocks.inner * unit;
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(bytes, 1));
  context.pool.ParallelFor(blocks.outer, grain, [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) std::memcpy(to + i * step, from + i * bytes, static_cast<size_t>(bytes));
  });
}

// The gradient that the parts of one tensor fill together.
struct SharedGradient {
  Tensor whole;
};

Var Parent(Context& context, const Var& x) {
  // A node of its own below the parts: the tape reaches it after all of them.
  return context.tape->Record(x.value, {x.node},
                              [](Context&, const Tensor& grad) { return std::vector<Tensor>{grad}; });
}

// One part as a node above `parent`; the first to come on the way back makes the gradient, the others fill it.
Var Part(Context& context, const Var& parent, const std::shared_ptr<SharedGradient>& shared, Tensor view, int axis,
         int64_t begin) {
  return context.tape->Record(std::move(view), {parent.node},
                              [shared, axis, begin, shape = parent.shape(), dtype = parent.dtype(),
                               path = context.path()](Context& back, const Tensor& grad) {
                                const Timed timed(back.profile, path, "elementwise", "backward");
                                const bool first = !shared->whole.defined();
                                if (first) shared->whole = Tensor::Zeros(shape, dtype);
                                CopyInto(back, grad, shared->whole, axis, begin);
                                return std::vector<Tensor>{first ? shared->whole : Tensor()};
                              });
}

}  // namespace

std::vector<Var> Split(Context& context, const Var& x, int axis, std::span<const int64_t> sizes) {
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != x.value.dim(axis)) {
    ThrowUsage("Split at {}: the parts do not add up to axis {} of {}", context.path(), axis, x.shape());
  }
  std::vector<Var> parts;
  const bool recorded = context.tape != nullptr && x.node != kConstant;
  const Var parent = recorded ? Parent(context, x) : x;
  const auto shared = std::make_shared<SharedGradient>();
  int64_t begin = 0;
  for (int64_t size : sizes) {
    Tensor view = x.value.is_meta() ? Tensor() : x.value.Slice(axis, begin, begin + size);
    if (x.value.is_meta()) {
      std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
      dims[static_cast<size_t>(axis)] = size;
      view = Tensor::Meta(Shape(dims), x.dtype());
    }
    parts.push_back(recorded ? Part(context, parent, shared, std::move(view), axis, begin) : Var(std::move(view)));
    begin += size;
  }
  return parts;
}

std::vector<Var> Unbind(Context& context, const Var& x, int axis) {
  std::vector<Var> parts;
  const bool recorded = context.tape != nullptr && x.node != kConstant;
  const Var parent = recorded ? Parent(context, x) : x;
  const auto shared = std::make_shared<SharedGradient>();
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  dims.erase(dims.begin() + axis);
  for (int64_t i = 0; i < x.value.dim(axis); ++i) {
    Tensor view = x.value.is_meta() ? Tensor::Meta(Shape(dims), x.dtype()) : x.value.Select(axis, i);
    parts.push_back(recorded ? Part(context, parent, shared, std::move(view), axis, i) : Var(std::move(view)));
  }
  return parts;
}

Var Slice(Context& context, const Var& x, int axis, int64_t begin, int64_t end) {
  const int64_t size = x.value.dim(axis);
  if (begin < 0 || end < begin || end > size) {
    ThrowUsage("Slice at {}: [{}, {}) of axis {} of {}", context.path(), begin, end, axis, x.shape());
  }
  const int64_t sizes[] = {begin, end - begin, size - end};
  return Split(context, x, axis, sizes)[1];
}

Var Concat(Context& context, std::span<const Var> parts, int axis) {
  if (parts.empty()) ThrowUsage("Concat at {}: no parts", context.path());
  std::vector<int64_t> dims(parts[0].shape().dims().begin(), parts[0].shape().dims().end()), sizes;
  int64_t total = 0;
  bool meta = false;
  for (const Var& part : parts) {
    std::vector<int64_t> these(part.shape().dims().begin(), part.shape().dims().end());
    sizes.push_back(part.value.dim(axis));
    total += sizes.back();
    meta = meta || part.value.is_meta();
    these[static_cast<size_t>(axis)] = dims[static_cast<size_t>(axis)];
    if (these != dims || part.dtype() != parts[0].dtype()) {
      ThrowUsage("Concat at {}: {} and {} differ outside axis {}", context.path(), parts[0].value.ToString(),
                 part.value.ToString(), axis);
    }
  }
  dims[static_cast<size_t>(axis)] = total;
  const Shape shape{std::span<const int64_t>(dims)};
  Tensor out = meta ? Tensor::Meta(shape, parts[0].dtype()) : Tensor::Empty(shape, parts[0].dtype());
  const Timed timed(context.profile, context.path(), "elementwise", "forward");
  std::vector<NodeId> nodes;
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!meta) CopyInto(context, parts[i].value, out, axis, begin);
    begin += sizes[i];
    nodes.push_back(parts[i].node);
  }
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), nodes, [axis, sizes](Context&, const Tensor& grad) {
    std::vector<Tensor> grads;
    int64_t at = 0;
    for (int64_t size : sizes) {
      grads.push_back(grad.Slice(axis, at, at + size));
      at += size;
    }
    return grads;
  });
}

Var Broadcast(Context& context, const Var& x, int axis, int64_t count) {
  if (x.value.dim(axis) != 1) ThrowUsage("Broadcast at {}: axis {} of {} is not 1", context.path(), axis, x.shape());
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  dims[static_cast<size_t>(axis)] = count;
  const Shape shape{std::span<const int64_t>(dims)};
  if (x.value.is_meta()) return RecordOutput(context, Tensor::Meta(shape, x.dtype()), {x.node});
  Tensor out = x.value.BroadcastTo(shape);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node}, [axis, count](Context& back, const Tensor& grad) {
    // Ascending over the copies.
    Tensor sum = grad.Slice(axis, 0, 1);
    for (int64_t i = 1; i < count; ++i) sum = AddTensors(back, sum, grad.Slice(axis, i, i + 1));
    return std::vector<Tensor>{sum};
  });
}

}  // namespace octavo::ops
