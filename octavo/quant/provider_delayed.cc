// Sites with delayed scaling: scales come from the state, what was seen goes to the sink. The state does not change
// inside a step, so recomputation and micro-batches use the same scales and count once.
#include "octavo/base/error.h"
#include "octavo/quant/averaging.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/provider_dots.h"
#include "octavo/quant/te.h"

namespace octavo::quant {
namespace {

constexpr std::string_view kTensors[] = {"input", "kernel", "output_grad"};

Fp8Meta LoadMeta(const ops::StateStore* state, const ops::Site& site, std::string_view what, int history) {
  Fp8Meta meta = InitialFp8Meta(history);
  if (state == nullptr) return meta;
  const Tensor scale = state->Find(StateName(site, fmt::format("{}_scale", what)));
  const Tensor amax = state->Find(StateName(site, fmt::format("{}_amax_history", what)));
  if (scale.defined()) meta.scale = scale;
  if (amax.defined()) {
    if (amax.size() != history) {
      ThrowUsage("{}: the state holds {} steps of history, the recipe wants {}", site.ToString(), amax.size(), history);
    }
    meta.amax_history = amax;
  }
  return meta;
}

void Observe(ops::Context& context, const ops::Site& site, std::string_view what, float amax) {
  if (context.updates == nullptr) return;
  context.updates->Observe(StateName(site, fmt::format("{}_amax", what)),
                           Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{amax}));
}

float NewestAmax(const Fp8Meta& meta) { return meta.amax_history.ToVector<float>()[0]; }

// The forward pass with a frozen kernel: the same products and roundings as Fp8Dot.
Tensor ServeDelayed(const Run& run, const Tensor& x, const QArray& kernel, const DotDims& dims, const Fp8Meta& input,
                    const Fp8DotConfig& config) {
  const DType compute = kernel.dtype();
  const float scale = UpdatedFp8Meta(input, 0.0f, config.forward).scale.ToVector<float>()[0];
  const float kernel_scale = CastFloat(kernel.scale, DType::kF32).Contiguous().Values<float>()[0];
  const Codes codes = QuantizeFp8(CastFloat(x, compute), config.forward, scale);
  const Codes kernel_codes{kernel.qvalue, kernel.format};
  if (config.form == Fp8DotForm::kQdq) {
    return SlowDot(run, DequantizeFp8(codes, scale, compute), DequantizeFp8(kernel_codes, kernel_scale, compute), dims);
  }
  const Tensor raw = DotGeneral(run, codes, kernel_codes, dims, compute);
  std::vector<int64_t> ones(static_cast<size_t>(raw.rank()), 1);
  const Tensor product = Tensor::FromValues<float>(Shape(ones), DType::kF32, std::vector<float>{scale * kernel_scale});
  return TimesScale(raw, CastFloat(product, compute));
}

}  // namespace

Fp8DotConfig ConfigOf(const DelayedTreatment& treatment) {
  Fp8DotConfig config;
  config.form = treatment.form == DelayedTreatment::Form::kDecoded ? Fp8DotForm::kQdq : Fp8DotForm::kDirect;
  config.forward = treatment.forward;
  config.gradient = treatment.gradient;
  return config;
}

Fp8DotState LoadFp8State(const ops::StateStore* state, const ops::Site& site, int history) {
  return {LoadMeta(state, site, "input", history), LoadMeta(state, site, "kernel", history),
          LoadMeta(state, site, "output_grad", history)};
}

ops::Var DelayedDot(const SiteCall& call, const DelayedTreatment& treatment) {
  if (treatment.form == DelayedTreatment::Form::kTransformerEngine) return TeDelayedDot(call, treatment);
  const SitePlan& site = call.site;
  const Fp8DotConfig config = ConfigOf(treatment);
  const WeightRight dot(site);
  const ops::Operand &left = dot.Activation(call), &right = dot.Weight(call);
  Run run = call.provider.RunIn(call.context, site, right);
  run.exchanged = dot.turned;
  const Tensor& x = FloatOf(call, left);
  const Fp8DotState state = LoadFp8State(call.context.state, site.site, treatment.history);
  if (right.quantized()) {
    return ops::Var(dot.Restore(ServeDelayed(run, x, right.qarray(), dot.dims, state.input, config)));
  }
  Fp8DotForward forward = Fp8Dot(run, x, right.tensor(), dot.dims, state, config);
  Observe(call.context, site.site, kTensors[0], NewestAmax(forward.input));
  Observe(call.context, site.site, kTensors[1], NewestAmax(forward.kernel));
  Tensor out = dot.Restore(forward.out);
  if (call.context.tape == nullptr) return ops::Var(std::move(out));
  return call.context.tape->Record(std::move(out), {left.node, right.node},
                                   [provider = &call.provider, &site, config, state, dot, forward = std::move(forward)](
                                       ops::Context& back, const Tensor& grad) {
                                     const Tensor product = dot.Turn(grad);
                                     Run again = provider->RunIn(back, site);
                                     again.exchanged = dot.turned;
                                     Fp8DotGradients grads = Fp8DotBackward(again, forward, state, config, product);
                                     Observe(back, site.site, kTensors[2], NewestAmax(grads.output_grad));
                                     return std::vector<Tensor>{std::move(grads.x), std::move(grads.kernel)};
                                   });
}

namespace {

void AdvanceDelayed(const SitePlan& site, const DelayedTreatment& treatment, const ops::UpdateSink& observed,
                    ops::StateStore& state) {
  for (std::string_view what : kTensors) {
    const auto at = observed.observations().find(StateName(site.site, fmt::format("{}_amax", what)));
    const Fp8Meta before = LoadMeta(&state, site.site, what, treatment.history);
    Fp8Meta after = before;
    if (at != observed.observations().end()) {
      const Format format = what == kTensors[2] ? treatment.gradient : treatment.forward;
      const float amax = at->second.Values<float>()[0];
      after = treatment.form == DelayedTreatment::Form::kTransformerEngine ? TeUpdatedMeta(before, amax, format)
                                                                           : UpdatedFp8Meta(before, amax, format);
    }
    state.Set(StateName(site.site, fmt::format("{}_scale", what)), after.scale);
    state.Set(StateName(site.site, fmt::format("{}_amax_history", what)), after.amax_history);
  }
}

// The mask that was used stays until it is renewed; steps are counted where a mask was used.
void AdvanceSparsity(const SitePlan& site, const ops::UpdateSink& observed, ops::StateStore& state) {
  const auto at = observed.observations().find(StateName(site.site, "sparsity_mask"));
  if (at == observed.observations().end()) return;
  const std::string name = StateName(site.site, "sparsity_step");
  const Tensor before = state.Find(name);
  const float step = before.defined() ? before.ToVector<float>()[0] : 0.0f;
  state.Set(name, Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{step + 1.0f}));
  state.Set(StateName(site.site, "sparsity_mask"), at->second);
}

}  // namespace

void AdvanceState(const Plan& plan, const ops::UpdateSink& observed, ops::StateStore& state) {
  for (const SitePlan& site : plan.sites) {
    if (!site.treatment) continue;
    if (const auto* delayed = std::get_if<DelayedTreatment>(&*site.treatment)) {
      AdvanceDelayed(site, *delayed, observed, state);
    } else if (const auto* qwix = std::get_if<QwixTreatment>(&*site.treatment)) {
      AdvanceSparsity(site, observed, state);
      if (!qwix->static_activation) continue;
      AdvanceAverage(AveragePrefix(site.site, site.weight_is_lhs ? "rhs" : "lhs"), observed, state);
    }
  }
}

}  // namespace octavo::quant
