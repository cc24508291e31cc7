// Parts of a tensor along one axis, and parts put together, with gradients. Parts are views: nothing is copied on the
// way forward; on the way back all parts write into one gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// Consecutive parts of the given sizes, which add up to the axis.
std::vector<Var> Split(Context& context, const Var& x, int axis, std::span<const int64_t> sizes);
// Parts of size 1 without the axis: x [B, T, 3, H, D] -> three [B, T, H, D].
std::vector<Var> Unbind(Context& context, const Var& x, int axis);
Var Slice(Context& context, const Var& x, int axis, int64_t begin, int64_t end);
Var Concat(Context& context, std::span<const Var> parts, int axis);
// The same elements repeated over new positions of an axis of length 1: one rotary key for all heads.
Var Broadcast(Context& context, const Var& x, int axis, int64_t count);

}  // namespace octavo::ops
