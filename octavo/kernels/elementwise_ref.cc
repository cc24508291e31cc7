// The reference of elementwise.h: one element at a time.
#include <cstdint>

#include "octavo/base/rng.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/elementwise_rows.h"

namespace octavo::kernels {
namespace {

float Apply(ElementwiseOp op, float a, float b, float scalar) {
  switch (op) {
    case ElementwiseOp::kAdd:
      return a + b;
    case ElementwiseOp::kMultiply:
      return a * b;
    case ElementwiseOp::kScale:
      return a * scalar;
    case ElementwiseOp::kAddScaled:
      return a + scalar * b;
  }
  return 0;
}

template <typename Work>
void WithAnyElement(DType dtype, Work work) {
  dtype == DType::kF16 ? work(F16Element()) : WithElement(dtype, work);
}

}  // namespace

void ElementwiseRef(ElementwiseOp op, const ConstRows& a, const ConstRows& b, float scalar, const MutRows& out) {
  WithElement(a.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = 0; r < a.rows; ++r) {
      const auto *from_a = RowPointer<E>(a, r), *from_b = RowPointer<E>(b, r);
      auto* to = RowPointer<E>(out, r);
      for (int64_t c = 0; c < a.cols; ++c) {
        to[c] = E::Store(Apply(op, E::Load(from_a[c]), E::Load(from_b[c]), scalar));
      }
    }
  });
}

void CastRef(const ConstRows& in, const MutRows& out) {
  WithAnyElement(in.dtype, [&](auto from_element) {
    WithAnyElement(out.dtype, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      for (int64_t r = 0; r < in.rows; ++r) {
        const auto* from = RowPointer<From>(in, r);
        auto* to = RowPointer<To>(out, r);
        for (int64_t c = 0; c < in.cols; ++c) to[c] = To::Store(From::Load(from[c]));
      }
    });
  });
}

void BiasAddRef(const ConstRows& x, const float* bias, const MutRows& out) {
  WithElement(x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = 0; r < x.rows; ++r) {
      const auto* from = RowPointer<E>(x, r);
      auto* to = RowPointer<E>(out, r);
      for (int64_t c = 0; c < x.cols; ++c) to[c] = E::Store(E::Load(from[c]) + bias[c]);
    }
  });
}

void ColumnSumRef(const ConstRows& x, float* sum) {
  WithElement(x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t c = 0; c < x.cols; ++c) {
      float chain = 0;
      for (int64_t r = 0; r < x.rows; ++r) chain += E::Load(RowPointer<E>(x, r)[c]);
      sum[c] = chain;
    }
  });
}

void DropoutRowRef(const DropoutRow& args, uint64_t index, int64_t cols) {
  const RngKey key{args.key0, args.key1};
  WithElement(args.dtype, [&](auto element) {
    using E = decltype(element);
    const auto* x = static_cast<const typename E::Type*>(args.x);
    auto* out = static_cast<typename E::Type*>(args.out);
    for (int64_t c = 0; c < cols; ++c) {
      const bool kept = Uniform(key, index + static_cast<uint64_t>(c)) < args.keep;
      out[c] = kept ? E::Store(E::Load(x[c]) * args.scale) : E::Store(0.0f);
    }
  });
}

}  // namespace octavo::kernels
