// A tensor and its place on the tape: what ops take and give. Copied freely. A constant has no place.
#pragma once

#include <cstdint>
#include <utility>

#include "octavo/tensor/tensor.h"

namespace octavo::ops {

using NodeId = int32_t;
inline constexpr NodeId kConstant = -1;
inline constexpr NodeId kUnrecorded = -2;  // depends on the tape, but inside a layer that will be replayed (remat)

struct Var {
  Tensor value;
  NodeId node = kConstant;

  Var() = default;
  Var(Tensor tensor, NodeId at = kConstant) : value(std::move(tensor)), node(at) {}  // NOLINT: a tensor is a constant

  const Shape& shape() const { return value.shape(); }
  DType dtype() const { return value.dtype(); }
};

}  // namespace octavo::ops
