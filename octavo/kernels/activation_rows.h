// What activation.h describes, and the loops behind it over checked arguments. Plain structs only: an instruction-set
// unit includes this.
#pragma once

#include <cstdint>

#include "octavo/kernels/rows.h"

namespace octavo::kernels {

enum class Activation : uint8_t { kLinear, kRelu, kSilu, kGeluTanh, kGeluErf, kSigmoid, kTanh, kSoftCap };

struct ActivationSpec {
  Activation kind = Activation::kSilu;
  float parameter = 1;  // silu: p of sigmoid(p x); soft cap: the cap; not used by the others
};

struct GateSpec {
  ActivationSpec activation;
  float limit = __builtin_inff();
  float up_offset = 0;
};

// Constants of the two GELUs, shared by the reference and the fast loops.
namespace gelu {
inline constexpr float kTwoRootTwoOverPi = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
inline constexpr float kCubic = 0.044715f;
inline constexpr float kThreeCubic = 0.134145f;
inline constexpr float kRootHalf = 0x1.6a09e6p-1f;  // 1 / sqrt(2)
inline constexpr float kDensity = 0x1.988454p-2f;   // 1 / sqrt(2 pi)
}  // namespace gelu

// The views are parts of equal shape (rows.h, PartOf).
struct ActivationRows {
  GateSpec spec;
  ConstRows x, up, grad_y;
  MutRows out, out_up;
};
void ActivationForwardRef(const ActivationRows& args);  // x -> out
void ActivationForwardAvx2(const ActivationRows& args);
void ActivationBackwardRef(const ActivationRows& args);  // x, grad_y -> out
void ActivationBackwardAvx2(const ActivationRows& args);
void GateForwardRef(const ActivationRows& args);  // x (the gate), up -> out
void GateForwardAvx2(const ActivationRows& args);
void GateBackwardRef(const ActivationRows& args);  // x (the gate), up, grad_y -> out (grad_gate), out_up
void GateBackwardAvx2(const ActivationRows& args);

}  // namespace octavo::kernels
