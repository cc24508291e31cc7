// AQT sites. The weight is always the right operand here: an einsum that has it on the left is turned around, in
// training and in serving alike.
#include "octavo/base/error.h"
#include "octavo/quant/provider_dots.h"

namespace octavo::quant {
namespace {

AqtNumerics NumericsOf(std::optional<Format> format) {
  if (!format) return AqtNumerics::None();
  const FormatInfo& info = Info(*format);
  return info.kind == FormatKind::kInteger ? AqtNumerics::Integer(info.bits) : AqtNumerics::Fp8(*format);
}

}  // namespace

AqtConfig ConfigOf(const AqtTreatment& treatment) {
  AqtConfig config;
  if (treatment.forward_codes) {
    config = AqtDotGeneralMake(NumericsOf(treatment.activation), NumericsOf(treatment.weight));
  } else {
    const AqtBits bits{NumericsOf(treatment.weight), NumericsOf(treatment.grad_lhs), NumericsOf(treatment.grad_rhs)};
    const AqtNoise noise = treatment.gradient_rounding == Rounding::kNearest ? AqtNoise::kNone : AqtNoise::kUniform;
    const int64_t shards = treatment.grad_rhs ? treatment.weight_gradient_shards : 0;
    if (bits.forward.kind == AqtNumerics::Kind::kInteger) {
      config = AqtConfigV3(bits, noise, treatment.grad_rhs ? std::optional(DType::kI32) : std::nullopt, shards);
    } else {
      config = AqtConfigV4(bits, noise);
    }
    if (treatment.bf16_products) {
      config.forward.accumulator = DType::kBF16;
      if (treatment.grad_lhs) config.grad_lhs.accumulator = DType::kBF16;
      if (treatment.grad_rhs) config.grad_rhs.accumulator = DType::kBF16;
    }
  }
  if (treatment.per_tensor) {
    std::vector<double> bounds;
    for (const std::optional<double>& bound : treatment.constant_bounds) {
      if (bound) bounds.push_back(*bound);
    }
    SetAqtPerTensor(config, bounds);
  }
  if (treatment.activation_clip != 1) config.forward.lhs.clipping_scale = treatment.activation_clip;
  if (treatment.weight_clip != 1) config.forward.rhs.clipping_scale = treatment.weight_clip;
  config.tile = treatment.tile;
  return config;
}

ops::Var AqtDot(const SiteCall& call, const AqtTreatment& treatment) {
  const SitePlan& site = call.site;
  const AqtConfig config = ConfigOf(treatment);
  const WeightRight dot(site);
  const ops::Operand &left = dot.Activation(call), &right = dot.Weight(call);
  Run run = call.provider.RunIn(call.context, site, right);
  run.exchanged = dot.turned;
  const Tensor& activation = FloatOf(call, left);
  if (right.quantized()) return ops::Var(dot.Restore(AqtServe(run, activation, right.qarray(), dot.dims, config)));
  std::shared_ptr<const PreparedWeight> prepared;
  if (right.parameter != nullptr && config.forward.rhs.numerics.kind != AqtNumerics::Kind::kNone) {
    prepared = call.provider.weights().Find(*right.parameter, site, right.tensor(), [&] {
      return AqtPrepareWeight(run, right.tensor(), dot.dims, config, call.context.tape != nullptr);
    });
  }
  AqtForward forward = AqtDotGeneral(run, activation, right.tensor(), dot.dims, config, prepared);
  Tensor out = dot.Restore(forward.out);
  if (call.context.tape == nullptr) return ops::Var(std::move(out));
  const RngKey key = NoiseKey(call.context, site.site);
  const Wanted wanted{left.node != ops::kConstant, right.node != ops::kConstant};
  return call.context.tape->Record(std::move(out), {left.node, right.node},
                                   [provider = &call.provider, &site, config, key, dot, wanted,
                                    residuals = std::move(forward.residuals)](ops::Context& back, const Tensor& grad) {
                                     Run again = provider->RunIn(back, site);
                                     again.exchanged = dot.turned;
                                     AqtGradients grads =
                                         AqtDotGeneralBackward(again, residuals, config, dot.Turn(grad), key, wanted);
                                     return std::vector<Tensor>{std::move(grads.lhs), std::move(grads.rhs)};
                                   });
}

}  // namespace octavo::quant
