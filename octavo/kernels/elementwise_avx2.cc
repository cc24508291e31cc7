// elementwise.h, eight elements at a time.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/elementwise_rows.h"
#include "octavo/kernels/threefry_avx2.h"

namespace octavo::kernels {
namespace {

template <ElementwiseOp kOp>
inline __m256 Apply8(__m256 a, __m256 b, __m256 scalar) {
  switch (kOp) {
    case ElementwiseOp::kAdd:
      return _mm256_add_ps(a, b);
    case ElementwiseOp::kMultiply:
      return _mm256_mul_ps(a, b);
    case ElementwiseOp::kScale:
      return _mm256_mul_ps(a, scalar);
    case ElementwiseOp::kAddScaled:
      return _mm256_add_ps(a, _mm256_mul_ps(scalar, b));
  }
}

template <ElementwiseOp kOp>
void RunOp(const ConstRows& a, const ConstRows& b, float scalar, const MutRows& out) {
  const __m256 factor = _mm256_set1_ps(scalar);
  WithElement8(a.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = 0; r < a.rows; ++r) {
      const auto* from_a = RowOf<E>(a, r);
      const auto* from_b = RowOf<E>(b, r);
      auto* to = RowOf<E>(out, r);
      ForEights(a.cols, [&](int64_t at, auto io) {
        const __m256 left = io.template Load<E>(from_a + at);
        const __m256 right = kOp == ElementwiseOp::kScale ? left : io.template Load<E>(from_b + at);
        io.template Store<E>(to + at, Apply8<kOp>(left, right, factor));
      });
    }
  });
}

template <typename From, typename To>
void CastRows(const ConstRows& in, const MutRows& out) {
  for (int64_t r = 0; r < in.rows; ++r) {
    const auto* from = RowOf<From>(in, r);
    auto* to = RowOf<To>(out, r);
    ForEights(in.cols, [&](int64_t at, auto io) { io.template Store<To>(to + at, io.template Load<From>(from + at)); });
  }
}

template <typename From>
void CastFrom(const ConstRows& in, const MutRows& out) {
  switch (out.dtype) {
    case DType::kF32:
      return CastRows<From, F32x8>(in, out);
    case DType::kBF16:
      return CastRows<From, Bf16x8>(in, out);
    default:
      return CastRows<From, F16x8>(in, out);
  }
}

}  // namespace

void ElementwiseAvx2(ElementwiseOp op, const ConstRows& a, const ConstRows& b, float scalar, const MutRows& out) {
  switch (op) {
    case ElementwiseOp::kAdd:
      return RunOp<ElementwiseOp::kAdd>(a, b, scalar, out);
    case ElementwiseOp::kMultiply:
      return RunOp<ElementwiseOp::kMultiply>(a, b, scalar, out);
    case ElementwiseOp::kScale:
      return RunOp<ElementwiseOp::kScale>(a, b, scalar, out);
    case ElementwiseOp::kAddScaled:
      return RunOp<ElementwiseOp::kAddScaled>(a, b, scalar, out);
  }
}

void CastAvx2(const ConstRows& in, const MutRows& out) {
  switch (in.dtype) {
    case DType::kF32:
      return CastFrom<F32x8>(in, out);
    case DType::kBF16:
      return CastFrom<Bf16x8>(in, out);
    default:
      return CastFrom<F16x8>(in, out);
  }
}

void BiasAddAvx2(const ConstRows& x, const float* bias, const MutRows& out) {
  WithElement8(x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = 0; r < x.rows; ++r) {
      const auto* from = RowOf<E>(x, r);
      auto* to = RowOf<E>(out, r);
      ForEights(x.cols, [&](int64_t at, auto io) {
        const __m256 sum = _mm256_add_ps(io.template Load<E>(from + at), io.template Load<F32x8>(bias + at));
        io.template Store<E>(to + at, sum);
      });
    }
  });
}

void ColumnSumAvx2(const ConstRows& x, float* sum) {
  for (int64_t c = 0; c < x.cols; ++c) sum[c] = 0;
  WithElement8(x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = 0; r < x.rows; ++r) {
      const auto* row = RowOf<E>(x, r);
      ForEights(x.cols, [&](int64_t at, auto io) {
        const __m256 chain = io.template Load<F32x8>(sum + at);
        io.template Store<F32x8>(sum + at, _mm256_add_ps(chain, io.template Load<E>(row + at)));
      });
    }
  });
}

void DropoutRowAvx2(const DropoutRow& args, uint64_t index, int64_t cols) {
  constexpr int kWidth = 4;
  const uint32_t key0 = args.key0, key1 = args.key1;
  const __m256 keep = _mm256_set1_ps(args.keep), scale = _mm256_set1_ps(args.scale);
  WithElement8(args.dtype, [&](auto element) {
    using E = decltype(element);
    const auto* x = static_cast<const typename E::Type*>(args.x);
    auto* out = static_cast<typename E::Type*>(args.out);
    const auto drop = [&](int64_t at, __m256i bits, auto io) {
      const __m256 kept = _mm256_cmp_ps(Uniform8(bits), keep, _CMP_LT_OQ);
      io.template Store<E>(out + at, _mm256_and_ps(kept, _mm256_mul_ps(io.template Load<E>(x + at), scale)));
    };
    int64_t at = 0;
    for (; at + 8 * kWidth <= cols; at += 8 * kWidth) {
      __m256i bits[kWidth];
      ThreefryBits<kWidth>(key0, key1, index + static_cast<uint64_t>(at), bits);
      for (int k = 0; k < kWidth; ++k) drop(at + 8 * k, bits[k], WholeEight());
    }
    ForEights(cols - at, [&](int64_t more, auto io) {
      __m256i bits[1];
      ThreefryBits<1>(key0, key1, index + static_cast<uint64_t>(at + more), bits);
      drop(at + more, bits[0], io);
    });
  });
}

}  // namespace octavo::kernels
