// Sites under Transformer Engine's recipes.
#include "octavo/base/error.h"
#include "octavo/ops/dot_dims.h"
#include "octavo/quant/provider_dots.h"
#include "octavo/quant/te.h"

namespace octavo::quant {
namespace {

DType TypeOf(const ops::Operand& operand) {
  return operand.quantized() ? operand.qarray().dtype() : operand.tensor().dtype();
}

void ObserveAmax(ops::Context& context, const ops::Site& site, std::string_view what, const Tensor& tensor) {
  if (context.updates == nullptr) return;
  context.updates->Observe(StateName(site, what),
                           Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{AmaxOf(tensor)}));
}

// Products of codes with one scale per tensor: both gradients reuse the forward's codes.
ops::Var RecordTensorScaled(const SiteCall& call, Tensor out, const QArray& lhs, const QArray& rhs,
                            std::function<QArray(ops::Context&, const Tensor&)> quantize_grad) {
  if (call.context.tape == nullptr) return ops::Var(std::move(out));
  const SitePlan& site = call.site;
  return call.context.tape->Record(std::move(out), {call.lhs.node, call.rhs.node},
                                   [provider = &call.provider, &site, lhs, rhs,
                                    quantize_grad = std::move(quantize_grad)](ops::Context& back, const Tensor& grad) {
                                     const Run run = provider->RunIn(back, site);
                                     const QArray codes = quantize_grad(back, grad);
                                     const ops::GradDot to_lhs = ops::GradLhsDot(lhs.rank(), rhs.rank(), site.dims);
                                     const ops::GradDot to_rhs = ops::GradRhsDot(lhs.rank(), rhs.rank(), site.dims);
                                     return std::vector<Tensor>{
                                         DotGeneral(run, codes, rhs, to_lhs.dims, grad.dtype()).Permute(to_lhs.order),
                                         DotGeneral(run, codes, lhs, to_rhs.dims, grad.dtype()).Permute(to_rhs.order)};
                                   });
}

// One operand of a block product. Gradients of nvfp4 are rounded stochastically, those of the weight's product rotated.
QArray BlockOperand(const BlockTreatment& treatment, const Tensor& x, const std::vector<int>& contract, bool square,
                    bool rotate, std::optional<RngKey> key) {
  if (treatment.form == BlockTreatment::Form::kMxfp8) return TeQuantizeMx(x, contract);
  return TeQuantizeNv(rotate ? TeRotated(x, contract.back()) : x, contract, square, key);
}

// The axes `first`, as one axis, then the others as they are.
Tensor FlattenFirst(const Tensor& x, const std::vector<int>& first) {
  std::vector<int> order = first;
  int64_t length = 1;
  for (int axis : first) length *= x.dim(axis);
  std::vector<int64_t> dims = {length};
  for (int axis : FreeAxes(x.rank(), first, {})) {
    order.push_back(axis);
    dims.push_back(x.dim(axis));
  }
  return x.Permute(order).Reshape(dims);
}

// The gradient of a weight: blocks run over all tokens as one axis, whatever axes they lie on.
Tensor TokenProduct(const Run& run, const BlockTreatment& treatment, const Tensor& grad, const Tensor& other,
                    const ops::GradDot& dot, RngKey key) {
  const Tensor g = FlattenFirst(grad, dot.dims.lhs_contract), o = FlattenFirst(other, dot.dims.rhs_contract);
  const QArray g_codes = BlockOperand(treatment, g, {0}, false, treatment.hadamard, key);
  const QArray o_codes = BlockOperand(treatment, o, {0}, false, treatment.hadamard, std::nullopt);
  return SlowDot(run, g_codes, o_codes, {{0}, {0}, {}, {}}, grad.dtype()).Permute(dot.order);
}

ops::Var CurrentScalingDot(const SiteCall& call) {
  const Run run = call.provider.RunIn(call.context, call.site);
  const auto codes = [&](const ops::Operand& operand) {
    return operand.quantized() ? operand.qarray() : TeQuantizeCurrent(operand.tensor(), Format::kF8E4M3FN);
  };
  const QArray lhs = codes(call.lhs), rhs = codes(call.rhs);
  const DType dtype = call.lhs.quantized() ? TypeOf(call.rhs) : TypeOf(call.lhs);
  Tensor out = DotGeneral(run, lhs, rhs, call.site.dims, dtype);
  return RecordTensorScaled(call, std::move(out), lhs, rhs,
                            [](ops::Context&, const Tensor& grad) { return TeQuantizeCurrent(grad, Format::kF8E5M2); });
}

}  // namespace

ops::Var TeDelayedDot(const SiteCall& call, const DelayedTreatment& treatment) {
  const SitePlan& site = call.site;
  const Run run = call.provider.RunIn(call.context, site);
  const Fp8DotState state = LoadFp8State(call.context.state, site.site, treatment.history);
  const auto codes = [&](const ops::Operand& operand, bool kernel) {
    if (operand.quantized()) return operand.qarray();
    ObserveAmax(call.context, site.site, kernel ? "kernel_amax" : "input_amax", operand.tensor());
    const float scale = (kernel ? state.kernel : state.input).scale.ToVector<float>()[0];
    return TeQuantizeTensor(operand.tensor(), treatment.forward, scale);
  };
  const QArray lhs = codes(call.lhs, site.weight_is_lhs), rhs = codes(call.rhs, !site.weight_is_lhs);
  const DType dtype = call.lhs.quantized() ? TypeOf(call.rhs) : TypeOf(call.lhs);
  Tensor out = DotGeneral(run, lhs, rhs, site.dims, dtype);
  const float grad_scale = state.output_grad.scale.ToVector<float>()[0];
  return RecordTensorScaled(
      call, std::move(out), lhs, rhs,
      [at = site.site, grad_scale, format = treatment.gradient](ops::Context& back, const Tensor& grad) {
        ObserveAmax(back, at, "output_grad_amax", grad);
        return TeQuantizeTensor(grad, format, grad_scale);
      });
}

ops::Var BlockDot(const SiteCall& call, const BlockTreatment& treatment) {
  if (treatment.form == BlockTreatment::Form::kCurrentScaling) return CurrentScalingDot(call);
  const SitePlan& site = call.site;
  const Run run = call.provider.RunIn(call.context, site);
  const auto codes = [&](const ops::Operand& operand, const std::vector<int>& contract, bool weight) {
    return operand.quantized() ? operand.qarray()
                               : BlockOperand(treatment, operand.tensor(), contract, weight, false, std::nullopt);
  };
  const QArray lhs = codes(call.lhs, site.dims.lhs_contract, site.weight_is_lhs);
  const QArray rhs = codes(call.rhs, site.dims.rhs_contract, !site.weight_is_lhs && !site.weight.empty());
  const DType dtype = call.lhs.quantized() ? TypeOf(call.rhs) : TypeOf(call.lhs);
  Tensor out = SlowDot(run, lhs, rhs, site.dims, dtype);
  if (call.context.tape == nullptr) return ops::Var(std::move(out));
  const RngKey key = NoiseKey(call.context, site.site);
  return call.context.tape->Record(
      std::move(out), {call.lhs.node, call.rhs.node},
      [provider = &call.provider, &site, treatment, key, x = call.lhs.tensor(), w = call.rhs.tensor()](
          ops::Context& back, const Tensor& grad) {
        const Run again = provider->RunIn(back, site);
        const ops::GradDot dots[] = {ops::GradLhsDot(x.rank(), w.rank(), site.dims),
                                     ops::GradRhsDot(x.rank(), w.rank(), site.dims)};
        const Tensor* const others[] = {&w, &x};
        std::vector<Tensor> grads;
        for (uint32_t i : {0u, 1u}) {
          // The product that sums over tokens gives the weight's gradient: there nothing is square, and both rotate.
          const bool weight_gradient = site.weight_is_lhs == (i == 0);
          const RngKey noise = key.FoldIn(i);
          if (weight_gradient && dots[i].dims.lhs_batch.empty()) {
            grads.push_back(TokenProduct(again, treatment, grad, *others[i], dots[i], noise));
            continue;
          }
          const QArray g = BlockOperand(treatment, grad, dots[i].dims.lhs_contract, false, false, noise);
          const QArray other =
              BlockOperand(treatment, *others[i], dots[i].dims.rhs_contract, true, false, std::nullopt);
          grads.push_back(SlowDot(again, g, other, dots[i].dims, grad.dtype()).Permute(dots[i].order));
        }
        return grads;
      });
}

QArray TeFreeze(const SitePlan& site, const BlockTreatment& treatment, const Tensor& weight) {
  const std::vector<int>& contract = site.weight_is_lhs ? site.dims.lhs_contract : site.dims.rhs_contract;
  if (treatment.form == BlockTreatment::Form::kCurrentScaling) return TeQuantizeCurrent(weight, Format::kF8E4M3FN);
  return BlockOperand(treatment, weight, contract, true, false, std::nullopt);
}

}  // namespace octavo::quant
