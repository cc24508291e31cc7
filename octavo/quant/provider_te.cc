// Sites under Transformer Engine's recipes.
#include "octavo/base/error.h"
#include "octavo/ops/dot_dims.h"
#include "octavo/quant/health.h"
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

QArray Observed(const Run& run, OperandSide side, const Tensor& values, QArray codes, bool follows) {
  ObserveHealth(run, {ProductKind::kForward, side}, values, codes, follows);
  return codes;
}

// Products of codes with one scale per tensor: both gradients reuse the forward's codes.
ops::Var RecordTensorScaled(const SiteCall& call, Tensor out, const QArray& lhs, const QArray& rhs, bool follows,
                            std::function<QArray(ops::Context&, const Tensor&)> quantize_grad) {
  if (call.context.tape == nullptr) return ops::Var(std::move(out));
  const SitePlan& site = call.site;
  return call.context.tape->Record(
      std::move(out), {call.lhs.node, call.rhs.node},
      [provider = &call.provider, &site, lhs, rhs, follows, wanted = WantedOf(call),
       quantize_grad = std::move(quantize_grad)](ops::Context& back, const Tensor& grad) {
        const Run run = provider->RunIn(back, site);
        const QArray codes = quantize_grad(back, grad);
        std::vector<Tensor> grads(2);
        if (wanted.lhs) {
          ObserveHealth(run, {ProductKind::kGradLhs, OperandSide::kLhs}, grad, codes, follows);
          const ops::GradDot dot = ops::GradLhsDot(lhs.rank(), rhs.rank(), site.dims);
          grads[0] = DotGeneral(run, codes, rhs, dot.dims, grad.dtype()).Permute(dot.order);
        }
        if (wanted.rhs) {
          ObserveHealth(run, {ProductKind::kGradRhs, OperandSide::kLhs}, grad, codes, follows);
          const ops::GradDot dot = ops::GradRhsDot(lhs.rank(), rhs.rank(), site.dims);
          grads[1] = DotGeneral(run, codes, lhs, dot.dims, grad.dtype()).Permute(dot.order);
        }
        return grads;
      });
}

// One operand of a block product. Gradients of nvfp4 are rounded stochastically.
QArray BlockOperand(const BlockTreatment& treatment, const Tensor& x, const std::vector<int>& contract, bool square,
                    std::optional<RngKey> key) {
  if (treatment.form == BlockTreatment::Form::kMxfp8) return TeQuantizeMx(x, contract);
  return TeQuantizeNv(x, contract, square, key);
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
Tensor TokenProduct(const Run& run, ProductKind product, const BlockTreatment& treatment, const Tensor& grad,
                    const Tensor& other, const ops::GradDot& dot, RngKey key) {
  Tensor g = FlattenFirst(grad, dot.dims.lhs_contract), o = FlattenFirst(other, dot.dims.rhs_contract);
  if (treatment.hadamard) {
    g = TeRotated(g, 0);
    o = TeRotated(o, 0);
  }
  const QArray g_codes = BlockOperand(treatment, g, {0}, false, key);
  const QArray o_codes = BlockOperand(treatment, o, {0}, false, std::nullopt);
  ObserveHealth(run, {product, OperandSide::kLhs}, g, g_codes, true);
  ObserveHealth(run, {product, OperandSide::kRhs}, o, o_codes, true);
  return SlowDot(run, g_codes, o_codes, {{0}, {0}, {}, {}}, grad.dtype()).Permute(dot.order);
}

ops::Var CurrentScalingDot(const SiteCall& call) {
  const Run run = call.provider.RunIn(call.context, call.site, call.rhs);
  const auto codes = [&](const ops::Operand& operand, OperandSide side) {
    if (operand.quantized()) return operand.qarray();
    return Observed(run, side, operand.tensor(), TeQuantizeCurrent(operand.tensor(), Format::kF8E4M3FN), true);
  };
  const QArray lhs = codes(call.lhs, OperandSide::kLhs), rhs = codes(call.rhs, OperandSide::kRhs);
  const DType dtype = call.lhs.quantized() ? TypeOf(call.rhs) : TypeOf(call.lhs);
  Tensor out = DotGeneral(run, lhs, rhs, call.site.dims, dtype);
  return RecordTensorScaled(call, std::move(out), lhs, rhs, true,
                            [](ops::Context&, const Tensor& grad) { return TeQuantizeCurrent(grad, Format::kF8E5M2); });
}

}  // namespace

ops::Var TeDelayedDot(const SiteCall& call, const DelayedTreatment& treatment) {
  const SitePlan& site = call.site;
  const Run run = call.provider.RunIn(call.context, site, call.rhs);
  const Fp8DotState state = LoadFp8State(call.context.state, site.site, treatment.history);
  const auto codes = [&](const ops::Operand& operand, bool kernel) {
    if (operand.quantized()) return operand.qarray();
    ObserveAmax(call.context, site.site, kernel ? "kernel_amax" : "input_amax", operand.tensor());
    const float scale = (kernel ? state.kernel : state.input).scale.ToVector<float>()[0];
    return Observed(run, &operand == &call.lhs ? OperandSide::kLhs : OperandSide::kRhs, operand.tensor(),
                    TeQuantizeTensor(operand.tensor(), treatment.forward, scale), false);
  };
  const QArray lhs = codes(call.lhs, site.weight_is_lhs), rhs = codes(call.rhs, !site.weight_is_lhs);
  const DType dtype = call.lhs.quantized() ? TypeOf(call.rhs) : TypeOf(call.lhs);
  Tensor out = DotGeneral(run, lhs, rhs, site.dims, dtype);
  const float grad_scale = state.output_grad.scale.ToVector<float>()[0];
  return RecordTensorScaled(
      call, std::move(out), lhs, rhs, false,
      [at = site.site, grad_scale, format = treatment.gradient](ops::Context& back, const Tensor& grad) {
        ObserveAmax(back, at, "output_grad_amax", grad);
        return TeQuantizeTensor(grad, format, grad_scale);
      });
}

ops::Var BlockDot(const SiteCall& call, const BlockTreatment& treatment) {
  if (treatment.form == BlockTreatment::Form::kCurrentScaling) return CurrentScalingDot(call);
  const SitePlan& site = call.site;
  const Run run = call.provider.RunIn(call.context, site, call.rhs);
  const auto codes = [&](const ops::Operand& operand, const std::vector<int>& contract, bool weight) {
    if (operand.quantized()) return operand.qarray();
    return Observed(run, &operand == &call.lhs ? OperandSide::kLhs : OperandSide::kRhs, operand.tensor(),
                    BlockOperand(treatment, operand.tensor(), contract, weight, std::nullopt), true);
  };
  const QArray lhs = codes(call.lhs, site.dims.lhs_contract, site.weight_is_lhs);
  const QArray rhs = codes(call.rhs, site.dims.rhs_contract, !site.weight_is_lhs && !site.weight.empty());
  const DType dtype = call.lhs.quantized() ? TypeOf(call.rhs) : TypeOf(call.lhs);
  Tensor out = SlowDot(run, lhs, rhs, site.dims, dtype);
  if (call.context.tape == nullptr) return ops::Var(std::move(out));
  const RngKey key = NoiseKey(call.context, site.site);
  return call.context.tape->Record(
      std::move(out), {call.lhs.node, call.rhs.node},
      [provider = &call.provider, &site, treatment, key, x = call.lhs.tensor(), w = call.rhs.tensor(),
       wanted = WantedOf(call)](ops::Context& back, const Tensor& grad) {
        const Run again = provider->RunIn(back, site);
        const ops::GradDot dots[] = {ops::GradLhsDot(x.rank(), w.rank(), site.dims),
                                     ops::GradRhsDot(x.rank(), w.rank(), site.dims)};
        const Tensor* const others[] = {&w, &x};
        std::vector<Tensor> grads(2);
        for (uint32_t i : {0u, 1u}) {
          if (!(i == 0 ? wanted.lhs : wanted.rhs)) continue;
          const ProductKind product = i == 0 ? ProductKind::kGradLhs : ProductKind::kGradRhs;
          // The product that sums over tokens gives the weight's gradient: there nothing is square, and both rotate.
          const bool weight_gradient = site.weight_is_lhs == (i == 0);
          const RngKey noise = key.FoldIn(i);
          if (weight_gradient && dots[i].dims.lhs_batch.empty()) {
            grads[i] = TokenProduct(again, product, treatment, grad, *others[i], dots[i], noise);
            continue;
          }
          const QArray g = BlockOperand(treatment, grad, dots[i].dims.lhs_contract, false, noise);
          const QArray other = BlockOperand(treatment, *others[i], dots[i].dims.rhs_contract, true, std::nullopt);
          ObserveHealth(again, {product, OperandSide::kLhs}, grad, g, true);
          ObserveHealth(again, {product, OperandSide::kRhs}, *others[i], other, true);
          grads[i] = SlowDot(again, g, other, dots[i].dims, grad.dtype()).Permute(dots[i].order);
        }
        return grads;
      });
}

QArray TeFreeze(const SitePlan& site, const BlockTreatment& treatment, const Tensor& weight) {
  const std::vector<int>& contract = site.weight_is_lhs ? site.dims.lhs_contract : site.dims.rhs_contract;
  if (treatment.form == BlockTreatment::Form::kCurrentScaling) return TeQuantizeCurrent(weight, Format::kF8E4M3FN);
  return BlockOperand(treatment, weight, contract, true, std::nullopt);
}

}  // namespace octavo::quant
