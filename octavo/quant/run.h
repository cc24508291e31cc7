// What a computation of quant/ runs with: threads, instruction set, scratch memory, arithmetic switches and a counter
// of the work done. Made by whoever starts a computation (a provider from its Context, a test), passed by reference,
// never stored.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/arena.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/workspace.h"
#include "octavo/quant/arithmetic.h"

namespace octavo::quant {

// Multiply-adds that were executed, by the kind of kernel. A plan's promise "this site runs in int8" is checked
// against it.
struct MacCount {
  int64_t integer = 0, floating = 0;
};

struct Run {
  ThreadPool& pool;
  kernels::Isa isa = kernels::Isa::kReference;
  kernels::Workspace& workspace;
  kernels::Arena& arena;
  Arithmetic arithmetic = {};
  MacCount* macs = nullptr;  // may be null
  bool reference = false;    // the plain scalar ways everywhere, which the others are tested against
};

}  // namespace octavo::quant
