// The reference activations. Every line here has its twin in activation_avx2.cc, operation for operation.
#include <cstdint>

#include "octavo/kernels/activation_rows.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/math.h"

namespace octavo::kernels {
namespace {

struct ValueSlope {
  float value, slope;
};

// The sigmoid and its slope s (1 - s) = e / (1 + e)^2 with e = exp(-|z|), which does not cancel where s is near 1.
ValueSlope SigmoidSlope(float z) {
  const float e = Exp(-Abs(z)), d = 1.0f + e;
  return {Sigmoid(z), e / (d * d)};
}

// x * sigmoid(z(x)): slope s + x z' s (1 - s).
ValueSlope Gated(float x, float z, float z_slope) {
  const ValueSlope s = SigmoidSlope(z);
  return {x * s.value, Fma(x * z_slope, s.slope, s.value)};
}

ValueSlope Evaluate(const ActivationSpec& spec, float x) {
  switch (spec.kind) {
    case Activation::kLinear:
      return {x, 1.0f};
    case Activation::kRelu:
      return {Max(0.0f, x), x > 0.0f ? 1.0f : 0.0f};
    case Activation::kSilu:
      return Gated(x, spec.parameter * x, spec.parameter);
    case Activation::kGeluTanh: {
      const float square = x * x;
      const float z = gelu::kTwoRootTwoOverPi * x * Fma(gelu::kCubic, square, 1.0f);
      return Gated(x, z, gelu::kTwoRootTwoOverPi * Fma(gelu::kThreeCubic, square, 1.0f));
    }
    case Activation::kGeluErf: {
      const float area = Fma(0.5f, Erf(x * gelu::kRootHalf), 0.5f);
      const float density = gelu::kDensity * Exp(-0.5f * (x * x));
      return {x * area, Fma(x, density, area)};
    }
    case Activation::kSigmoid:
      return SigmoidSlope(x);
    case Activation::kTanh: {
      const float t = Tanh(x);
      return {t, (1.0f - t) * (1.0f + t)};
    }
    case Activation::kSoftCap: {
      const float t = Tanh(x / spec.parameter);
      return {spec.parameter * t, (1.0f - t) * (1.0f + t)};
    }
  }
  return {};
}

// Calls work(element, row, column) for every element of the part.
template <typename Work>
void ForElements(const ConstRows& m, Work work) {
  WithElement(m.dtype, [&](auto element) {
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t c = 0; c < m.cols; ++c) work(element, r, c);
    }
  });
}

}  // namespace

void ActivationForwardRef(const ActivationRows& args) {
  ForElements(args.x, [&](auto element, int64_t r, int64_t c) {
    using E = decltype(element);
    RowPointer<E>(args.out, r)[c] =
        E::Store(Evaluate(args.spec.activation, E::Load(RowPointer<E>(args.x, r)[c])).value);
  });
}

void ActivationBackwardRef(const ActivationRows& args) {
  ForElements(args.x, [&](auto element, int64_t r, int64_t c) {
    using E = decltype(element);
    const float slope = Evaluate(args.spec.activation, E::Load(RowPointer<E>(args.x, r)[c])).slope;
    RowPointer<E>(args.out, r)[c] = E::Store(E::Load(RowPointer<E>(args.grad_y, r)[c]) * slope);
  });
}

void GateForwardRef(const ActivationRows& args) {
  const float limit = args.spec.limit;
  ForElements(args.x, [&](auto element, int64_t r, int64_t c) {
    using E = decltype(element);
    const float gate = Min(limit, E::Load(RowPointer<E>(args.x, r)[c]));
    const float up = Max(-limit, Min(limit, E::Load(RowPointer<E>(args.up, r)[c])));
    RowPointer<E>(args.out, r)[c] = E::Store(Evaluate(args.spec.activation, gate).value * (up + args.spec.up_offset));
  });
}

void GateBackwardRef(const ActivationRows& args) {
  const float limit = args.spec.limit;
  ForElements(args.x, [&](auto element, int64_t r, int64_t c) {
    using E = decltype(element);
    const float gate_in = E::Load(RowPointer<E>(args.x, r)[c]), up_in = E::Load(RowPointer<E>(args.up, r)[c]);
    const float grad = E::Load(RowPointer<E>(args.grad_y, r)[c]);
    const float gate = Min(limit, gate_in);
    const float up = Max(-limit, Min(limit, up_in));
    const ValueSlope at = Evaluate(args.spec.activation, gate);
    const float grad_gate = grad * (up + args.spec.up_offset) * at.slope;
    const float grad_up = grad * at.value;
    RowPointer<E>(args.out, r)[c] = E::Store(limit < gate_in ? 0.0f : grad_gate);
    RowPointer<E>(args.out_up, r)[c] = E::Store(limit < Abs(up_in) ? 0.0f : grad_up);
  });
}

}  // namespace octavo::kernels
