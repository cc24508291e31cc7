#include "octavo/ops/dot.h"

#include <numeric>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/ops/einsum_dims.h"
#include "octavo/ops/float_dot.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

std::string Where(std::string_view op, const Site& site) {
  return fmt::format("{} at {}", op, site.path.empty() ? "the root" : site.path);
}

const Tensor& NeedFloat(const std::string& where, std::string_view side, const Operand& operand) {
  if (!operand.quantized()) return operand.tensor();
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: {} {} is quantized, but no provider answers this site", where, side,
                          operand.parameter == nullptr ? std::string("operand") : operand.parameter->name),
              "run with the recipe the weights were frozen by");
}

// Asks the interceptor, else computes in floats and records the two gradients.
Var DotAtSite(Context& context, const DotCall& call, std::string_view op) {
  if (context.interceptor != nullptr) {
    if (std::optional<Var> answer = context.interceptor->Dot(context, call)) return *std::move(answer);
  }
  const std::string where = Where(op, call.site);
  const Tensor lhs = NeedFloat(where, "lhs", call.lhs), rhs = NeedFloat(where, "rhs", call.rhs);
  const DotDims dims = call.dims;
  Tensor out = FloatDot(context, where, lhs, rhs, dims, ProductType(lhs.dtype(), rhs.dtype()));
  if (context.tape == nullptr) return Var(std::move(out));
  const bool lhs_needed = call.lhs.node != kConstant, rhs_needed = call.rhs.node != kConstant;
  return context.tape->Record(std::move(out), {call.lhs.node, call.rhs.node},
                              [where, lhs, rhs, dims, lhs_needed, rhs_needed](Context& back, const Tensor& grad) {
                                Tensor grad_lhs, grad_rhs;
                                if (lhs_needed) {
                                  const GradDot dot = GradLhsDot(lhs.rank(), rhs.rank(), dims);
                                  grad_lhs = FloatDot(back, where, grad, rhs, dot.dims, lhs.dtype()).Permute(dot.order);
                                }
                                if (rhs_needed) {
                                  const GradDot dot = GradRhsDot(lhs.rank(), rhs.rank(), dims);
                                  grad_rhs = FloatDot(back, where, grad, lhs, dot.dims, rhs.dtype()).Permute(dot.order);
                                }
                                return std::vector<Tensor>{grad_lhs, grad_rhs};
                              });
}

}  // namespace

Operand Activation(const Var& value) { return Operand{value.value, Role::kActivation, nullptr, value.node}; }

Operand Weight(Context& context, const Parameter& parameter) {
  if (parameter.frozen()) return Operand{parameter.qarray(), Role::kWeight, &parameter, kConstant};
  if (context.tape == nullptr) return Operand{parameter.tensor(), Role::kWeight, &parameter, kConstant};
  const Var leaf = context.tape->Leaf(parameter);
  return Operand{leaf.value, Role::kWeight, &parameter, leaf.node};
}

Var DotGeneral(Context& context, const Operand& lhs, const Operand& rhs, const DotDims& dims) {
  const Site site = context.NextSite(OpKind::kDotGeneral);
  DotShape(Where("DotGeneral", site), lhs.shape(), rhs.shape(), dims);
  return DotAtSite(context, DotCall{site, lhs, rhs, dims, ""}, "DotGeneral");
}

Var Project(Context& context, const Var& x, const Parameter& kernel, int contracted_axes) {
  DotDims dims;
  for (int i = 0; i < contracted_axes; ++i) {
    dims.lhs_contract.push_back(x.value.rank() - contracted_axes + i);
    dims.rhs_contract.push_back(i);
  }
  return DotGeneral(context, Activation(x), Weight(context, kernel), dims);
}

Var Einsum(Context& context, std::string_view equation, const Operand& first, const Operand& second) {
  const Site site = context.NextSite(OpKind::kEinsum);
  const EinsumDims parsed = ParseEinsum(Where("Einsum", site), equation, first.shape(), second.shape());
  const Var product = DotAtSite(context, DotCall{site, second, first, parsed.dims, equation}, "Einsum");
  return Permute(context, product, parsed.order);
}

Var RaggedDot(Context& context, const Operand& lhs, const Operand& rhs, const Tensor& group_sizes, OpKind op) {
  const RaggedCall call{context.NextSite(op), lhs, rhs, group_sizes};
  if (context.interceptor != nullptr) {
    if (std::optional<Var> answer = context.interceptor->RaggedDot(context, call)) return *std::move(answer);
  }
  const std::string where = Where("RaggedDot", call.site);
  const Tensor a = NeedFloat(where, "lhs", lhs), b = NeedFloat(where, "rhs", rhs), sizes = group_sizes;
  Tensor out = FloatRaggedDot(context, where, a, b, sizes, ProductType(a.dtype(), b.dtype()));
  if (context.tape == nullptr) return Var(std::move(out));
  const bool lhs_needed = lhs.node != kConstant, rhs_needed = rhs.node != kConstant;
  return context.tape->Record(std::move(out), {lhs.node, rhs.node},
                              [where, a, b, sizes, lhs_needed, rhs_needed](Context& back, const Tensor& grad) {
                                Tensor grad_lhs, grad_rhs;
                                if (lhs_needed)
                                  grad_lhs = FloatRaggedDot(back, where, grad, b.SwapAxes(1, 2), sizes, a.dtype());
                                if (rhs_needed) grad_rhs = FloatRaggedGradRhs(back, where, a, grad, sizes, b.dtype());
                                return std::vector<Tensor>{grad_lhs, grad_rhs};
                              });
}

}  // namespace octavo::ops
