#include "octavo/ops/dot.h"

#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/ops/einsum_dims.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/float_dot.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/remat.h"
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

double BytesOf(const Tensor& a, const Tensor& b, const Tensor& c) {
  return static_cast<double>(a.bytes() + b.bytes() + c.bytes());
}

// One float product with its time.
Tensor TimedDot(Context& context, const std::string& where, std::string_view path, std::string_view pass,
                const Tensor& lhs, const Tensor& rhs, const DotDims& dims, DType result) {
  if (context.profile == nullptr) return FloatDot(context, where, lhs, rhs, dims, result);
  const auto start = std::chrono::steady_clock::now();
  Tensor out = FloatDot(context, where, lhs, rhs, dims, result);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  context.profile->Add(path, "matmul", pass, passed.count(),
                       static_cast<double>(DotMacs(lhs.shape(), rhs.shape(), dims)), BytesOf(lhs, rhs, out));
  return out;
}

struct DotGradient {
  std::string where, path;
  Tensor lhs, rhs;
  DotDims dims;
  bool lhs_needed, rhs_needed;

  std::vector<Tensor> operator()(Context& back, const Tensor& grad) const {
    Tensor grad_lhs, grad_rhs;
    if (lhs_needed) {
      const GradDot dot = GradLhsDot(lhs.rank(), rhs.rank(), dims);
      grad_lhs = TimedDot(back, where, path, "grad_lhs", grad, rhs, dot.dims, lhs.dtype()).Permute(dot.order);
    }
    if (rhs_needed) grad_rhs = GradRhs(back, grad);
    return {grad_lhs, grad_rhs};
  }

  // Computed as [lhs free, rhs free] where that is the operand's own order, so that the gradient is not a permuted
  // view: sums and the optimizer read it straight.
  Tensor GradRhs(Context& back, const Tensor& grad) const {
    const GradDot dot = GradRhsDot(lhs.rank(), rhs.rank(), dims);
    if (!dims.lhs_batch.empty()) {
      return TimedDot(back, where, path, "grad_rhs", grad, lhs, dot.dims, rhs.dtype()).Permute(dot.order);
    }
    const DotDims swapped{dot.dims.rhs_contract, dot.dims.lhs_contract, {}, {}};
    const int lhs_count = static_cast<int>(dims.lhs_contract.size()), rank = rhs.rank();
    std::vector<int> order;  // of the swapped product: contracted axes first
    for (int axis : dot.order) order.push_back(axis >= rank - lhs_count ? axis - (rank - lhs_count) : axis + lhs_count);
    return TimedDot(back, where, path, "grad_rhs", lhs, grad, swapped, rhs.dtype()).Permute(order);
  }
};

double MacsOf(const DotCall& call) {
  return static_cast<double>(DotMacs(call.lhs.shape(), call.rhs.shape(), call.dims));
}

// What the interceptor answers, with its time; its gradients are charged to the site too.
template <typename Macs, typename Ask>
std::optional<Var> Answered(Context& context, const Site& site, const Macs& macs_of, const Ask& ask) {
  if (context.profile == nullptr) return ask();
  const double macs = macs_of();
  const auto start = std::chrono::steady_clock::now();
  std::optional<Var> answer = ask();
  if (!answer) return answer;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  context.profile->Add(site.path, "matmul", "forward", passed.count(), macs);
  if (context.tape != nullptr) context.tape->Charge(*answer, site.path, 2 * macs);
  return answer;
}

// Computed in floats, with its two gradients recorded.
Var FloatProduct(Context& context, const DotCall& call, std::string_view op) {
  const std::string where = Where(op, call.site);
  const Tensor lhs = NeedFloat(where, "lhs", call.lhs), rhs = NeedFloat(where, "rhs", call.rhs);
  Tensor out;
  if (call.kept == nullptr) {
    const DType type = ProductType(lhs.dtype(), rhs.dtype());
    out = TimedDot(context, where, call.site.path, "forward", lhs, rhs, call.dims, type);
  } else {
    out = *call.kept;
    context.tape->CountSkipped();
  }
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {call.lhs.node, call.rhs.node},
      DotGradient{where, call.site.path, lhs, rhs, call.dims, call.lhs.node != kConstant, call.rhs.node != kConstant});
}

// Asks the interceptor, else computes in floats.
Var DotAtSite(Context& context, DotCall call, std::string_view op, std::string_view save_name) {
  const std::vector<Tensor> kept = Recall(context, save_name);
  if (!kept.empty()) call.kept = &kept[0];
  if (context.interceptor != nullptr) {
    if (std::optional<Var> answer = Answered(
            context, call.site, [&] { return MacsOf(call); },
            [&] { return context.interceptor->Dot(context, call); })) {
      if (kept.empty()) {
        if (context.frame != nullptr) Keep(context, save_name, {answer->value});
        context.interceptor->Observe(context, call.site, answer->value);
      }
      if (!kept.empty() && answer->value.SharesStorageWith(kept[0])) context.tape->CountSkipped();
      return *std::move(answer);
    }
  }
  Var out = FloatProduct(context, call, op);
  if (kept.empty()) {
    Keep(context, save_name, {out.value});
    if (context.interceptor != nullptr) context.interceptor->Observe(context, call.site, out.value);
  }
  return out;
}

// The last axes of lhs against the first of rhs, of equal lengths: what every projection is. Checked first, since the
// text that an error of other dots would need costs more than a small product's share of a step.
bool IsProjection(const Shape& lhs, const Shape& rhs, const DotDims& dims) {
  const int count = static_cast<int>(dims.lhs_contract.size());
  if (!dims.lhs_batch.empty() || !dims.rhs_batch.empty() || count != static_cast<int>(dims.rhs_contract.size()) ||
      count > lhs.rank() || count > rhs.rank()) {
    return false;
  }
  for (int i = 0; i < count; ++i) {
    const int left = lhs.rank() - count + i;
    const auto at = static_cast<size_t>(i);
    if (dims.lhs_contract[at] != left || dims.rhs_contract[at] != i || lhs[left] != rhs[i]) return false;
  }
  return true;
}

// The last axes of x against the first of a kernel.
DotDims ProjectionDims(const Var& x, int contracted_axes) {
  DotDims dims;
  for (int i = 0; i < contracted_axes; ++i) {
    dims.lhs_contract.push_back(x.value.rank() - contracted_axes + i);
    dims.rhs_contract.push_back(i);
  }
  return dims;
}

}  // namespace

Operand Activation(const Var& value) { return Operand{value.value, Role::kActivation, nullptr, value.node}; }

Operand Weight(Context& context, const Parameter& parameter) {
  if (parameter.frozen()) return Operand{&parameter.qarray(), Role::kWeight, &parameter, kConstant};
  if (context.tape == nullptr) return Operand{parameter.tensor(), Role::kWeight, &parameter, kConstant};
  const Var leaf = context.tape->Leaf(parameter);
  return Operand{leaf.value, Role::kWeight, &parameter, leaf.node};
}

Operand Weight(Context& context, const Parameter& parameter, DType dtype) {
  Operand weight = Weight(context, parameter);
  if (weight.quantized() || weight.tensor().dtype() == dtype) return weight;
  const Var cast = Cast(context, Var(weight.tensor(), weight.node), dtype);
  return Operand{cast.value, Role::kWeight, &parameter, cast.node};
}

Var DotGeneral(Context& context, const Operand& lhs, const Operand& rhs, const DotDims& dims,
               std::string_view save_name) {
  const Site site = context.NextSite(OpKind::kDotGeneral);
  if (!IsProjection(lhs.shape(), rhs.shape(), dims)) {
    DotShape(Where("DotGeneral", site), lhs.shape(), rhs.shape(), dims);
  }
  return DotAtSite(context, DotCall{site, lhs, rhs, dims, ""}, "DotGeneral", save_name);
}

Var FloatAnswer(Context& context, const DotCall& call) {
  return FloatProduct(context, call, call.site.op == OpKind::kEinsum ? "Einsum" : "DotGeneral");
}

Var Project(Context& context, const Var& x, const Parameter& kernel, int contracted_axes, std::string_view save_name) {
  return DotGeneral(context, Activation(x), Weight(context, kernel, x.dtype()), ProjectionDims(x, contracted_axes),
                    save_name);
}

std::vector<Var> ProjectEach(Context& context, const Var& x, std::span<const Branch> branches) {
  // Who measures wants the time of each, and a tape the node of each.
  if (context.interceptor != nullptr && context.tape == nullptr && context.profile == nullptr) {
    const Operand lhs = Activation(x);
    std::vector<Operand> weights;
    std::vector<DotDims> dims;
    std::vector<DotCall> calls;
    weights.reserve(branches.size());
    dims.reserve(branches.size());
    bool projections = true;
    for (const Branch& branch : branches) {
      const Scope scope(context, branch.module);
      weights.push_back(Weight(context, branch.kernel, x.dtype()));
      dims.push_back(ProjectionDims(x, branch.contracted_axes));
      projections = projections && IsProjection(x.shape(), weights.back().shape(), dims.back());
      calls.push_back(DotCall{context.PeekSite(OpKind::kDotGeneral), lhs, weights.back(), dims.back(), ""});
    }
    std::optional<std::vector<Var>> answers;
    if (projections) answers = context.interceptor->Dots(context, calls);
    if (answers) {
      for (size_t i = 0; i < branches.size(); ++i) {
        const Scope scope(context, branches[i].module);
        context.interceptor->Observe(context, context.NextSite(OpKind::kDotGeneral), (*answers)[i].value);
      }
      return *std::move(answers);
    }
  }
  std::vector<Var> results;
  for (const Branch& branch : branches) {
    const Scope scope(context, branch.module);
    results.push_back(Project(context, x, branch.kernel, branch.contracted_axes, branch.save_name));
  }
  return results;
}

Var Einsum(Context& context, std::string_view equation, const Operand& first, const Operand& second,
           std::string_view save_name) {
  const Site site = context.NextSite(OpKind::kEinsum);
  const EinsumDims parsed = ParseEinsum(Where("Einsum", site), equation, first.shape(), second.shape());
  const Var product = DotAtSite(context, DotCall{site, second, first, parsed.dims, equation}, "Einsum", save_name);
  return Permute(context, product, parsed.order);
}

void AnnounceEinsum(Context& context, const Site& site, std::string_view equation, const Operand& first,
                    const Operand& second) {
  // Inference: who would not answer the site has nothing to say about it either.
  if (context.tape == nullptr && !context.interceptor->Answers(site)) return;
  const EinsumDims parsed = ParseEinsum(Where("Einsum", site), equation, first.shape(), second.shape());
  context.interceptor->Fused(context, DotCall{site, second, first, parsed.dims, equation});
}

Var RaggedDot(Context& context, const Operand& lhs, const Operand& rhs, const Tensor& group_sizes, OpKind op,
              std::string_view save_name) {
  RaggedCall call{context.NextSite(op), lhs, rhs, group_sizes};
  const std::vector<Tensor> kept = Recall(context, save_name);
  if (!kept.empty()) call.kept = &kept[0];
  if (context.interceptor != nullptr) {
    const auto all = [&] { return static_cast<double>(lhs.shape().size()) * static_cast<double>(rhs.shape()[2]); };
    if (std::optional<Var> answer =
            Answered(context, call.site, all, [&] { return context.interceptor->RaggedDot(context, call); })) {
      if (kept.empty()) {
        Keep(context, save_name, {answer->value});
        context.interceptor->Observe(context, call.site, answer->value);
      }
      if (!kept.empty() && answer->value.SharesStorageWith(kept[0])) context.tape->CountSkipped();
      return *std::move(answer);
    }
  }
  const std::string where = Where("RaggedDot", call.site), path = call.site.path;
  const Tensor a = NeedFloat(where, "lhs", lhs), b = NeedFloat(where, "rhs", rhs), sizes = group_sizes;
  const double macs = static_cast<double>(a.size()) * static_cast<double>(b.shape()[2]);
  Tensor out;
  if (kept.empty()) {
    const Timed timed(context.profile, path, "matmul", "forward", macs);
    out = FloatRaggedDot(context, where, a, b, sizes, ProductType(a.dtype(), b.dtype()));
    Keep(context, save_name, {out});
    if (context.interceptor != nullptr) context.interceptor->Observe(context, call.site, out);
  } else {
    out = kept[0];
    context.tape->CountSkipped();
  }
  if (context.tape == nullptr) return Var(std::move(out));
  const bool lhs_needed = lhs.node != kConstant, rhs_needed = rhs.node != kConstant;
  return context.tape->Record(std::move(out), {lhs.node, rhs.node}, [=](Context& back, const Tensor& grad) {
    Tensor grad_lhs, grad_rhs;
    if (lhs_needed) {
      const Timed timed(back.profile, path, "matmul", "grad_lhs", macs);
      grad_lhs = FloatRaggedDot(back, where, grad, b.SwapAxes(1, 2), sizes, a.dtype());
    }
    if (rhs_needed) {
      const Timed timed(back.profile, path, "matmul", "grad_rhs", macs);
      grad_rhs = FloatRaggedGradRhs(back, where, a, grad, sizes, b.dtype());
    }
    return std::vector<Tensor>{grad_lhs, grad_rhs};
  });
}

}  // namespace octavo::ops
