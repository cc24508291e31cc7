#include "octavo/ops/features.h"

#include <cstring>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

constexpr int64_t kGrain = 256;  // rows

// A part of rows of `width` bytes, starting at byte `from`.
struct Bytes {
  std::byte* data;
  int64_t width, from;
};

// rows × count bytes from one place to another; a row of `in` may serve `repeat` rows of `out`.
void CopyRows(Context& context, int64_t rows, int64_t count, const std::byte* in, int64_t in_width, int64_t in_from,
              int64_t repeat, const Bytes& out) {
  context.pool.ParallelFor(rows, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(out.data + r * out.width + out.from, in + r / repeat * in_width + in_from,
                  static_cast<size_t>(count));
    }
  });
}

Shape WithLast(const Shape& shape, int64_t last) {
  std::vector<int64_t> dims(shape.begin(), shape.end());
  dims.back() = last;
  return Shape(dims);
}

Tensor Cut(Context& context, const Tensor& any, int64_t begin, int64_t end) {
  const Tensor x = any.Contiguous();
  const int64_t size = SizeOf(x.dtype()), width = x.dim(-1);
  Tensor out = Tensor::Empty(WithLast(x.shape(), end - begin), x.dtype());
  if (out.size() == 0) return out;
  const int64_t count = (end - begin) * size;
  CopyRows(context, x.size() / width, count, x.RawData(), width * size, begin * size, 1,
           {out.MutableRawData(), count, 0});
  return out;
}

// [rows, heads, m] -> [rows, 1, m]
Tensor SumOverHeads(Context& context, const Tensor& x, const Shape& shape) {
  const int64_t heads = x.dim(-2), width = x.dim(-1), rows = x.size() / (heads * width);
  Tensor out = Tensor::Empty(shape, x.dtype());
  const auto sum = [&](const auto* in, auto* result, auto load, auto store) {
    context.pool.ParallelFor(rows, kGrain, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < width; ++c) {
          float total = load(in[r * heads * width + c]);
          for (int64_t h = 1; h < heads; ++h) total += load(in[(r * heads + h) * width + c]);
          result[r * width + c] = store(total);
        }
      }
    });
  };
  if (x.dtype() == DType::kF32) {
    const auto same = [](float v) { return v; };
    sum(x.Data<float>(), out.MutableData<float>(), same, same);
  } else {
    sum(
        x.Data<uint16_t>(), out.MutableData<uint16_t>(), [](uint16_t v) { return BF16ToF32(v); },
        [](float v) { return F32ToBF16(v); });
  }
  return out;
}

}  // namespace

Var SliceFeatures(Context& context, const Var& x, int64_t begin, int64_t end) {
  const int64_t width = x.value.dim(-1);
  if (begin < 0 || end < begin || end > width) {
    ThrowUsage("SliceFeatures: [{}, {}) of {} features", begin, end, width);
  }
  if (x.value.is_meta()) return Var(Tensor::Meta(WithLast(x.shape(), end - begin), x.dtype()));
  Tensor out = Cut(context, x.value, begin, end);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node}, [shape = x.shape(), begin](Context& back, const Tensor& any) {
    const Tensor grad = any.Contiguous();
    Tensor whole = Tensor::Zeros(shape, grad.dtype());
    const int64_t size = SizeOf(grad.dtype()), all = shape.dim(-1), count = grad.dim(-1) * size;
    if (grad.size() > 0) {
      CopyRows(back, whole.size() / all, count, grad.RawData(), count, 0, 1,
               {whole.MutableRawData(), all * size, begin * size});
    }
    return std::vector<Tensor>{whole};
  });
}

Var JoinFeatures(Context& context, const Var& a, const Var& b) {
  const int rank = a.value.rank();
  const int64_t heads = rank >= 2 ? a.value.dim(-2) : 1, n = a.value.dim(-1), m = b.value.dim(-1);
  const bool shared = rank >= 2 && b.value.rank() == rank && b.value.dim(-2) == 1 && heads != 1;
  const bool fits =
      b.value.rank() == rank && a.dtype() == b.dtype() &&
      a.value.size() / std::max<int64_t>(n, 1) == b.value.size() / std::max<int64_t>(m, 1) * (shared ? heads : 1);
  if (!fits) ThrowUsage("JoinFeatures: {} and {} do not fit", a.value.ToString(), b.value.ToString());
  const Shape shape = WithLast(a.shape(), n + m);
  if (a.value.is_meta()) return Var(Tensor::Meta(shape, a.dtype()));
  const Tensor x = a.value.Contiguous(), y = b.value.Contiguous();
  const int64_t size = SizeOf(a.dtype()), rows = shape.size() / (n + m);
  Tensor out = Tensor::Empty(shape, a.dtype());
  CopyRows(context, rows, n * size, x.RawData(), n * size, 0, 1, {out.MutableRawData(), (n + m) * size, 0});
  CopyRows(context, rows, m * size, y.RawData(), m * size, 0, shared ? heads : 1,
           {out.MutableRawData(), (n + m) * size, n * size});
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {a.node, b.node},
                              [n, m, shared, before = b.shape()](Context& back, const Tensor& grad) {
                                Tensor second = Cut(back, grad, n, n + m);
                                if (shared) second = SumOverHeads(back, second, before);
                                return std::vector<Tensor>{Cut(back, grad, 0, n), second};
                              });
}

}  // namespace octavo::ops
