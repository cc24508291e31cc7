#include "octavo/tensor/qarray.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo {
namespace {

// `part` follows the axes of `whole`: same rank, each axis a divisor.
void CheckDivides(std::string_view op, const char* name, const Tensor& part, const Tensor& whole) {
  if (part.rank() != whole.rank()) {
    ThrowUsage("{}: {} {} has {} axes, qvalue {} has {}", op, name, part.shape(), part.rank(), whole.shape(),
               whole.rank());
  }
  for (int axis = 0; axis < whole.rank(); ++axis) {
    int64_t n = whole.shape()[axis], parts = part.shape()[axis];
    if (parts == n || (parts > 0 && n % parts == 0)) continue;
    ThrowUsage("{}: {} {} does not divide qvalue {} on axis {}", op, name, part.shape(), whole.shape(), axis);
  }
}

// A run of old axes [old_begin, old_end) and new axes with the same number of elements.
struct AxisRun {
  int old_begin, old_end, new_begin, new_end;
};

std::vector<AxisRun> MatchRuns(const Shape& from, const Shape& to) {
  std::vector<AxisRun> runs;
  int i = 0, j = 0;
  while (i < from.rank() || j < to.rank()) {
    AxisRun run{i, i, j, j};
    bool old_one = i < from.rank() && from[i] == 1, new_one = j < to.rank() && to[j] == 1;
    if (old_one || new_one) {
      i += old_one;
      j += new_one;
    } else {
      // Counts are equal in total, so neither side ends before the runs meet.
      int64_t old_count = from[i++], new_count = to[j++];
      while (old_count != new_count) {
        if (old_count < new_count) {
          old_count *= from[i++];
        } else {
          new_count *= to[j++];
        }
      }
    }
    run.old_end = i;
    run.new_end = j;
    runs.push_back(run);
  }
  return runs;
}

// The shape that a scale of shape `part` takes when `from` becomes `to`.
Shape ReshapedPart(const Shape& part, const Shape& from, const Shape& to) {
  std::vector<int64_t> dims;
  for (const AxisRun& run : MatchRuns(from, to)) {
    bool whole = true, single = true, first_only = run.old_end > run.old_begin && run.new_end > run.new_begin;
    for (int axis = run.old_begin; axis < run.old_end; ++axis) {
      whole = whole && part[axis] == from[axis];
      single = single && part[axis] == 1;
      first_only = first_only && (axis == run.old_begin || part[axis] == 1);
    }
    first_only = first_only && to[run.new_begin] % part[run.old_begin] == 0;
    if (!whole && !single && !first_only) {
      ThrowUsage("Reshape: {} to {} cuts through the tiles of scale {}", from, to, part);
    }
    for (int axis = run.new_begin; axis < run.new_end; ++axis) {
      if (whole) {
        dims.push_back(to[axis]);
      } else {
        dims.push_back(single || axis > run.new_begin ? 1 : part[run.old_begin]);
      }
    }
  }
  return Shape(dims);
}

// The indices that pick from `part` what `items` (resolved) picks from `whole`.
Tensor IndexPart(const Tensor& part, const Shape& whole, std::span<const IndexItem> items) {
  std::vector<IndexItem> own;
  int axis = 0;
  for (const IndexItem& item : items) {
    if (item.kind == IndexItem::Kind::kNewAxis) {
      own.push_back(item);
      continue;
    }
    int64_t n = whole[axis], parts = part.shape()[axis];
    bool at = item.kind == IndexItem::Kind::kAt;
    bool all = !at && item.begin == 0 && item.end == n && item.step == 1;
    if (n == parts) {
      own.push_back(item);
    } else if (parts == 1) {
      own.push_back(at ? IndexItem::At(0) : IndexItem::All());
    } else if (at) {
      own.push_back(IndexItem::At(item.begin / (n / parts)));
    } else if (all) {
      own.push_back(IndexItem::All());
    } else {
      ThrowUsage("Index: [{}, {}) by {} on axis {} of {}, which has {} tiles; take one index or the whole axis",
                 item.begin, item.end, item.step, axis, whole, parts);
    }
    ++axis;
  }
  return part.Index(own);
}

template <typename Fn>
QArray MapParts(const QArray& array, Fn&& fn) {
  QArray result{fn(array.qvalue), fn(array.scale), std::nullopt, array.format};
  if (array.zero_point) result.zero_point = fn(*array.zero_point);
  return result;
}

}  // namespace

void Validate(std::string_view op, const QArray& array) {
  if (!array.qvalue.defined() || !array.scale.defined())
    ThrowUsage("{}: a quantized array without qvalue or scale", op);
  const FormatInfo& info = Info(array.format);
  if (array.qvalue.dtype() != info.dtype) {
    ThrowUsage("{}: qvalue is {}, codes of {} are stored in {}", op, array.qvalue.ToString(), info.name,
               NameOf(info.dtype));
  }
  if (!IsFloat(array.scale.dtype())) {
    ThrowUsage("{}: scale is {}, expected bf16, f16, f32 or f64", op, array.scale.ToString());
  }
  CheckDivides(op, "scale", array.scale, array.qvalue);
  if (!array.zero_point) return;
  if (array.zero_point->dtype() != array.qvalue.dtype()) {
    ThrowUsage("{}: zero point is {}, qvalue is {}; both must have one dtype", op, array.zero_point->ToString(),
               array.qvalue.ToString());
  }
  CheckDivides(op, "zero point", *array.zero_point, array.qvalue);
}

std::vector<int64_t> TileShape(const QArray& array) {
  Validate("TileShape", array);
  std::vector<int64_t> tiles;
  for (int axis = 0; axis < array.rank(); ++axis) {
    int64_t parts = array.scale.shape()[axis];
    tiles.push_back(parts == 0 ? 1 : array.shape()[axis] / parts);
  }
  return tiles;
}

std::vector<TiledAxis> TiledAxes(const QArray& array) {
  Validate("TiledAxes", array);
  std::vector<TiledAxis> result;
  for (int axis = 0; axis < array.rank(); ++axis) {
    int64_t n = array.shape()[axis], parts = array.scale.shape()[axis];
    if (parts != n && parts != 1) result.push_back({axis, n / parts});
  }
  return result;
}

std::string ToString(const QArray& array) {
  std::string text = fmt::format("{}{} scale {}", Info(array.format).name, array.shape(), array.scale.ToString());
  if (array.zero_point) text += fmt::format(" zero point {}", array.zero_point->ToString());
  return text;
}

QArray Permute(const QArray& array, std::span<const int> axes) {
  return MapParts(array, [&](const Tensor& part) { return part.Permute(axes); });
}

QArray Transpose(const QArray& array) {
  return MapParts(array, [](const Tensor& part) { return part.Transpose(); });
}

QArray SwapAxes(const QArray& array, int a, int b) {
  return MapParts(array, [&](const Tensor& part) { return part.SwapAxes(a, b); });
}

QArray Reshape(const QArray& array, std::span<const int64_t> dims) {
  Validate("Reshape", array);
  Shape from = array.shape(), to = ReshapedShape("Reshape", from, dims);
  if (from.size() == 0 && from != to) ThrowUsage("Reshape: {} to {}: tiles of an empty array are lost", from, to);
  return MapParts(array, [&](const Tensor& part) { return part.Reshape(ReshapedPart(part.shape(), from, to)); });
}

QArray Index(const QArray& array, std::span<const IndexItem> items) {
  Validate("Index", array);
  std::vector<IndexItem> resolved = ResolveIndex("Index", items, array.shape());
  return MapParts(array, [&](const Tensor& part) { return IndexPart(part, array.shape(), resolved); });
}

QArray RepeatTo(const QArray& array, const Shape& shape) {
  Validate("RepeatTo", array);
  if (shape == array.shape()) return array;
  return MapParts(array, [&](const Tensor& part) { return part.RepeatTo(shape); });
}

}  // namespace octavo
