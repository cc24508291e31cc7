// The dots of a model: each asks the interceptor first, runs the float version otherwise, and records its gradient.
// This is the door through which rules reach a model that knows nothing of them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "octavo/ops/context.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// An activation, or a weight (a leaf of the tape when there is one).
Operand Activation(const Var& value);
Operand Weight(Context& context, const Parameter& parameter);
// The same, cast to the type of the computation first (the reference's kernels are).
Operand Weight(Context& context, const Parameter& parameter, DType dtype);

// Result axes: batch, lhs free, rhs free. Remat may keep the output under `save_name`.
Var DotGeneral(Context& context, const Operand& lhs, const Operand& rhs, const DotDims& dims,
               std::string_view save_name = "");

// The float version of a dot, with its gradients, without asking anybody: for providers that add to it.
Var FloatAnswer(Context& context, const DotCall& call);

// Contracts the last axes of `x` that `kernel` begins with: x [..., K], kernel [K, ...], in the type of x.
Var Project(Context& context, const Var& x, const Parameter& kernel, int contracted_axes = 1,
            std::string_view save_name = "");

// One of several weights that read the same activation.
struct Branch {
  std::string_view module;  // the scope it runs in
  const Parameter& kernel;
  int contracted_axes = 1;
  std::string_view save_name = "";
};
// Project for each. In inference a provider may multiply them together.
std::vector<Var> ProjectEach(Context& context, const Var& x, std::span<const Branch> branches);

// Two operands, explicit result, letters and "...": "btd,df->btf". The dot's lhs is the second operand, as in the
// reference: rules about sides and the order of scales depend on it.
Var Einsum(Context& context, std::string_view equation, const Operand& first, const Operand& second,
           std::string_view save_name = "");

// Tells the interceptor of an einsum that the calling op computes itself (Interceptor::Fused).
void AnnounceEinsum(Context& context, const Site& site, std::string_view equation, const Operand& first,
                    const Operand& second);

// lhs [M, K] with rows sorted by group, rhs [G, K, N], group_sizes i32 [G]. `op` is kRaggedDot or kGmm.
Var RaggedDot(Context& context, const Operand& lhs, const Operand& rhs, const Tensor& group_sizes,
              OpKind op = OpKind::kRaggedDot, std::string_view save_name = "");

}  // namespace octavo::ops
