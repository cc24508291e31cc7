// The activations, eight elements at a time: the twin of activation_ref.cc, operation for operation.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/activation_rows.h"
#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

struct ValueSlope8 {
  __m256 value, slope;
};

OCTAVO_INLINE __m256 Mul8(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
OCTAVO_INLINE __m256 OneMinus8(__m256 a) { return _mm256_sub_ps(Fill8(1.0f), a); }

OCTAVO_INLINE ValueSlope8 SigmoidSlope8(__m256 z) {
  const __m256 e = ExpNotPositive8(_mm256_or_ps(z, Fill8(-0.0f))), d = _mm256_add_ps(Fill8(1.0f), e);
  return {Sigmoid8(z), _mm256_div_ps(e, Mul8(d, d))};
}

OCTAVO_INLINE ValueSlope8 Gated8(__m256 x, __m256 z, __m256 z_slope) {
  const ValueSlope8 s = SigmoidSlope8(z);
  return {Mul8(x, s.value), Fma8(Mul8(x, z_slope), s.slope, s.value)};
}

OCTAVO_INLINE __m256 OneMinusSquare8(__m256 t) { return Mul8(OneMinus8(t), _mm256_add_ps(Fill8(1.0f), t)); }

// What a caller does not use of the result, the compiler drops.
template <Activation kKind>
OCTAVO_INLINE ValueSlope8 Evaluate8(__m256 x, __m256 parameter) {
  if constexpr (kKind == Activation::kLinear) {
    return {x, Fill8(1.0f)};
  } else if constexpr (kKind == Activation::kRelu) {
    const __m256 zero = _mm256_setzero_ps();
    return {_mm256_max_ps(zero, x), _mm256_and_ps(Less8(zero, x), Fill8(1.0f))};
  } else if constexpr (kKind == Activation::kSilu) {
    return Gated8(x, Mul8(parameter, x), parameter);
  } else if constexpr (kKind == Activation::kGeluTanh) {
    const __m256 square = Mul8(x, x), factor = Fill8(gelu::kTwoRootTwoOverPi), one = Fill8(1.0f);
    const __m256 z = Mul8(Mul8(factor, x), Fma8(Fill8(gelu::kCubic), square, one));
    return Gated8(x, z, Mul8(factor, Fma8(Fill8(gelu::kThreeCubic), square, one)));
  } else if constexpr (kKind == Activation::kGeluErf) {
    const __m256 area = Fma8(Fill8(0.5f), Erf8(Mul8(x, Fill8(gelu::kRootHalf))), Fill8(0.5f));
    const __m256 density = Mul8(Fill8(gelu::kDensity), Exp8(Mul8(Fill8(-0.5f), Mul8(x, x))));
    return {Mul8(x, area), Fma8(x, density, area)};
  } else if constexpr (kKind == Activation::kSigmoid) {
    return SigmoidSlope8(x);
  } else if constexpr (kKind == Activation::kTanh) {
    const __m256 t = Tanh8(x);
    return {t, OneMinusSquare8(t)};
  } else {
    const __m256 t = Tanh8(_mm256_div_ps(x, parameter));
    return {Mul8(parameter, t), OneMinusSquare8(t)};
  }
}

template <Activation kKind>
struct Kind {
  static constexpr Activation value = kKind;
};

template <typename Work>
void WithKind(Activation kind, Work work) {
  switch (kind) {
    case Activation::kLinear:
      return work(Kind<Activation::kLinear>());
    case Activation::kRelu:
      return work(Kind<Activation::kRelu>());
    case Activation::kSilu:
      return work(Kind<Activation::kSilu>());
    case Activation::kGeluTanh:
      return work(Kind<Activation::kGeluTanh>());
    case Activation::kGeluErf:
      return work(Kind<Activation::kGeluErf>());
    case Activation::kSigmoid:
      return work(Kind<Activation::kSigmoid>());
    case Activation::kTanh:
      return work(Kind<Activation::kTanh>());
    case Activation::kSoftCap:
      return work(Kind<Activation::kSoftCap>());
  }
}

// work(kind, element, r) for every row, with the types of kind and element known to the compiler.
template <typename Work>
void ForRows(const ActivationRows& args, Work work) {
  WithElement8(args.x.dtype, [&](auto element) {
    WithKind(args.spec.activation.kind, [&](auto kind) {
      for (int64_t r = 0; r < args.x.rows; ++r) work(kind, element, r);
    });
  });
}

}  // namespace

void ActivationForwardAvx2(const ActivationRows& args) {
  const __m256 parameter = Fill8(args.spec.activation.parameter);
  ForRows(args, [&](auto kind, auto element, int64_t r) {
    using E = decltype(element);
    const auto* x = RowOf<E>(args.x, r);
    auto* out = RowOf<E>(args.out, r);
    ForEights(args.x.cols, [&](int64_t at, auto io) {
      io.template Store<E>(out + at, Evaluate8<decltype(kind)::value>(io.template Load<E>(x + at), parameter).value);
    });
  });
}

void ActivationBackwardAvx2(const ActivationRows& args) {
  const __m256 parameter = Fill8(args.spec.activation.parameter);
  ForRows(args, [&](auto kind, auto element, int64_t r) {
    using E = decltype(element);
    const auto* x = RowOf<E>(args.x, r);
    const auto* grad_y = RowOf<E>(args.grad_y, r);
    auto* out = RowOf<E>(args.out, r);
    ForEights(args.x.cols, [&](int64_t at, auto io) {
      const __m256 slope = Evaluate8<decltype(kind)::value>(io.template Load<E>(x + at), parameter).slope;
      io.template Store<E>(out + at, Mul8(io.template Load<E>(grad_y + at), slope));
    });
  });
}

void GateForwardAvx2(const ActivationRows& args) {
  const __m256 parameter = Fill8(args.spec.activation.parameter), offset = Fill8(args.spec.up_offset);
  const __m256 limit = Fill8(args.spec.limit), low = Fill8(-args.spec.limit);
  ForRows(args, [&](auto kind, auto element, int64_t r) {
    using E = decltype(element);
    const auto* gate_row = RowOf<E>(args.x, r);
    const auto* up_row = RowOf<E>(args.up, r);
    auto* out = RowOf<E>(args.out, r);
    ForEights(args.x.cols, [&](int64_t at, auto io) {
      const __m256 gate = _mm256_min_ps(limit, io.template Load<E>(gate_row + at));
      const __m256 up = _mm256_max_ps(low, _mm256_min_ps(limit, io.template Load<E>(up_row + at)));
      const __m256 value = Evaluate8<decltype(kind)::value>(gate, parameter).value;
      io.template Store<E>(out + at, Mul8(value, _mm256_add_ps(up, offset)));
    });
  });
}

void GateBackwardAvx2(const ActivationRows& args) {
  const __m256 parameter = Fill8(args.spec.activation.parameter), offset = Fill8(args.spec.up_offset);
  const __m256 limit = Fill8(args.spec.limit), low = Fill8(-args.spec.limit);
  ForRows(args, [&](auto kind, auto element, int64_t r) {
    using E = decltype(element);
    const auto* gate_row = RowOf<E>(args.x, r);
    const auto* up_row = RowOf<E>(args.up, r);
    const auto* grad_y = RowOf<E>(args.grad_y, r);
    auto* out = RowOf<E>(args.out, r);
    auto* out_up = RowOf<E>(args.out_up, r);
    ForEights(args.x.cols, [&](int64_t at, auto io) {
      const __m256 gate_in = io.template Load<E>(gate_row + at), up_in = io.template Load<E>(up_row + at);
      const __m256 grad = io.template Load<E>(grad_y + at);
      const __m256 up = _mm256_max_ps(low, _mm256_min_ps(limit, up_in));
      const ValueSlope8 here = Evaluate8<decltype(kind)::value>(_mm256_min_ps(limit, gate_in), parameter);
      const __m256 grad_gate = Mul8(Mul8(grad, _mm256_add_ps(up, offset)), here.slope);
      const __m256 grad_up = Mul8(grad, here.value);
      io.template Store<E>(out + at, _mm256_andnot_ps(Less8(limit, gate_in), grad_gate));
      io.template Store<E>(out_up + at, _mm256_andnot_ps(Less8(limit, Abs8(up_in)), grad_up));
    });
  });
}

}  // namespace octavo::kernels
