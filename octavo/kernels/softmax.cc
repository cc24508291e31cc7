#include "octavo/kernels/softmax.h"

#include <algorithm>

#include "octavo/kernels/element.h"
#include "octavo/kernels/lanes.h"
#include "octavo/kernels/math.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = __builtin_inff();

const void* RowData(const ConstRows& m, int64_t r) {
  return static_cast<const char*>(m.data) + r * m.row_stride * SizeOf(m.dtype);
}
void* RowData(const MutRows& m, int64_t r) { return static_cast<char*>(m.data) + r * m.row_stride * SizeOf(m.dtype); }

}  // namespace

TileSum TileSumRef(const void* x, DType dtype, int64_t count) {
  TileSum out{-kInf, 0};
  WithElement(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* values = static_cast<const typename E::Type*>(x);
    for (int64_t i = 0; i < count; ++i) out.max = Max(E::Load(values[i]), out.max);
    out.max = out.max + 0.0f;  // a maximum of -0 and +0 is +0 in any order
    const float shift = out.max == -kInf ? 0.0f : out.max;
    LaneSum<float> sum;
    for (int64_t i = 0; i < count; ++i) sum.lane[i % kLanes] += Exp(E::Load(values[i]) - shift);
    out.sum = sum.Fold();
  });
  return out;
}

void ExpScaleRef(const void* x, void* y, DType dtype, int64_t count, float shift, float factor) {
  WithElement(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* from = static_cast<const typename E::Type*>(x);
    auto* to = static_cast<typename E::Type*>(y);
    for (int64_t i = 0; i < count; ++i) to[i] = E::Store(Exp(E::Load(from[i]) - shift) * factor);
  });
}

void SoftmaxGradRowRef(const void* y, const void* grad_y, void* grad_x, DType dtype, int64_t count) {
  WithElement(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* p = static_cast<const typename E::Type*>(y);
    const auto* g = static_cast<const typename E::Type*>(grad_y);
    auto* out = static_cast<typename E::Type*>(grad_x);
    LaneSum<float> dot;
    for (int64_t i = 0; i < count; ++i) dot.lane[i % kLanes] = Fma(E::Load(p[i]), E::Load(g[i]), dot.lane[i % kLanes]);
    const float mean = dot.Fold();
    for (int64_t i = 0; i < count; ++i) out[i] = E::Store(E::Load(p[i]) * (E::Load(g[i]) - mean));
  });
}

float ExpSum::LogSum() const {
  return static_cast<float>(static_cast<double>(max) + static_cast<double>(Log(static_cast<float>(sum))));
}

void AddToExpSum(Isa isa, const void* x, DType dtype, int64_t count, ExpSum& state) {
  for (int64_t at = 0; at < count; at += kVocabTile) {
    const void* data = static_cast<const char*>(x) + at * SizeOf(dtype);
    const int64_t size = std::min(kVocabTile, count - at);
    const TileSum tile = isa >= Isa::kAvx2 ? TileSumAvx2(data, dtype, size) : TileSumRef(data, dtype, size);
    ExpSum merged;
    merged.max = Max(tile.max, state.max);
    const float shift = merged.Shift();
    merged.sum = state.sum * static_cast<double>(Exp(state.max - shift)) +
                 static_cast<double>(tile.sum) * static_cast<double>(Exp(tile.max - shift));
    state = merged;
  }
}

void SoftmaxForward(ThreadPool& pool, Isa isa, const SoftmaxArgs& args) {
  constexpr const char* kOp = "SoftmaxForward";
  CheckRows(kOp, "x", args.x);
  CheckRows(kOp, "y", args.y);
  CheckSameShape(kOp, "x", args.x, "y", args.y);
  CheckSameDType(kOp, "x", args.x, "y", args.y);
  pool.ParallelFor(args.x.cols == 0 ? 0 : args.x.rows, RowGrain(4 * args.x.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const void* x = RowData(args.x, r);
      ExpSum state;
      AddToExpSum(isa, x, args.x.dtype, args.x.cols, state);
      const float factor = state.sum == 0 ? 0.0f : static_cast<float>(1 / state.sum);
      const auto scale = isa >= Isa::kAvx2 ? ExpScaleAvx2 : ExpScaleRef;
      scale(x, RowData(args.y, r), args.x.dtype, args.x.cols, state.Shift(), factor);
    }
  });
}

void SoftmaxBackward(ThreadPool& pool, Isa isa, const SoftmaxGradArgs& args) {
  constexpr const char* kOp = "SoftmaxBackward";
  CheckRows(kOp, "y", args.y);
  CheckRows(kOp, "grad_y", args.grad_y);
  CheckRows(kOp, "grad_x", args.grad_x);
  CheckSameShape(kOp, "y", args.y, "grad_y", args.grad_y);
  CheckSameShape(kOp, "y", args.y, "grad_x", args.grad_x);
  CheckSameDType(kOp, "y", args.y, "grad_y", args.grad_y);
  CheckSameDType(kOp, "y", args.y, "grad_x", args.grad_x);
  pool.ParallelFor(args.y.cols == 0 ? 0 : args.y.rows, RowGrain(args.y.cols), [&](int64_t begin, int64_t end) {
    const auto row = isa >= Isa::kAvx2 ? SoftmaxGradRowAvx2 : SoftmaxGradRowRef;
    for (int64_t r = begin; r < end; ++r) {
      row(RowData(args.y, r), RowData(args.grad_y, r), RowData(args.grad_x, r), args.y.dtype, args.y.cols);
    }
  });
}

}  // namespace octavo::kernels
