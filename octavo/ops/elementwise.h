// The small operations between matmuls, with gradients: biases, constant factors, casts, dropout, and a parameter in
// the type of the computation. f32 math; bf16 is rounded once per op.
#pragma once

#include <initializer_list>
#include <string_view>

#include "octavo/ops/context.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// Without a tape.
Tensor CastTensor(Context& context, const Tensor& x, DType dtype);  // itself when it has the type already
Tensor ScaleTensor(Context& context, const Tensor& x, double factor);

Var Cast(Context& context, const Var& x, DType dtype);
// The parameter as a leaf of the tape, cast to the type of the computation. Frozen parameters are an error.
Var ParameterAs(Context& context, const Parameter& parameter, DType dtype);

Var Scale(Context& context, const Var& x, double factor);  // x * factor, the factor rounded to f32

// x [..., features], bias [features] where features may be several axes: x [B, T, H, D] + bias [H, D].
Var BiasAdd(Context& context, const Var& x, const Parameter& bias);

// x / (1 - rate) with probability 1 - rate, else 0, in training only. The mask is a function of the run's key, the
// step, the module's path and `name`, and the index in the global batch: shards and replays see their part of it.
Var Dropout(Context& context, const Var& x, double rate, std::string_view name = "dropout");

// Records an output that has no gradient function: meta tensors of a dry run.
Var RecordOutput(Context& context, Tensor output, std::initializer_list<NodeId> inputs);

}  // namespace octavo::ops
