// What a computation of quant/ runs with: threads, instruction set, scratch memory, arithmetic switches and a counter
// of the work done. Made by whoever starts a computation (a provider from its Context, a test), passed by reference,
// never stored.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/workspace.h"
#include "octavo/quant/arithmetic.h"

namespace octavo::quant {

// Multiply-adds that were executed, by the kind of kernel. A plan's promise "this site runs in int8" is checked
// against it.
struct MacCount {
  int64_t integer = 0, floating = 0;
};

// One operand of one of a dot's three products. In the gradient products the left side is the incoming gradient.
enum class ProductKind : uint8_t { kForward, kGradLhs, kGradRhs };
enum class OperandSide : uint8_t { kLhs, kRhs };
struct Spot {
  ProductKind product;
  OperandSide side;
};
std::string_view NameOf(Spot spot);    // "forward.lhs", "grad_rhs.lhs"
std::string_view Describe(Spot spot);  // "grad_rhs.lhs (output gradient)"
// The same operand when the dot was turned around: the weight always right.
Spot Exchanged(Spot spot);

class HealthSink;    // health.h
class FrozenWeight;  // frozen_weight.h

struct Run {
  ThreadPool& pool;
  kernels::Isa isa = kernels::Isa::kReference;
  kernels::Workspace& workspace;
  Arithmetic arithmetic = {};
  MacCount* macs = nullptr;      // may be null
  bool reference = false;        // the plain scalar ways everywhere, which the others are tested against
  HealthSink* health = nullptr;  // null: nothing is counted
  bool exchanged = false;        // the site's operands stand the other way round here
  // The panels of the right operand, a frozen weight, whose codes may be gone (meta); null: operands are as given.
  FrozenWeight* frozen = nullptr;
};

// The same run with the operand's name in error texts.
Run At(const Run& run, Spot spot);

}  // namespace octavo::quant
