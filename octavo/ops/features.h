// Cutting and joining the last axis, with gradients: the parts of a head's vector that latent attention treats apart.
// Copies bytes; no arithmetic except where gradients of a shared part meet.
#pragma once

#include <cstdint>

#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// Features [begin, end) of the last axis.
Var SliceFeatures(Context& context, const Var& x, int64_t begin, int64_t end);

// a [..., H, n] and b [..., H or 1, m] -> [..., H, n + m]. A part of one head is shared by all; its gradient is the sum
// over heads, ascending, in f32, rounded once.
Var JoinFeatures(Context& context, const Var& a, const Var& b);

}  // namespace octavo::ops
