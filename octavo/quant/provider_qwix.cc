// Qwix sites, plain and ragged, and ours with grouped weights.
#include "octavo/base/error.h"
#include "octavo/ops/dot_dims.h"
#include "octavo/quant/averaging.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/frozen_weight.h"
#include "octavo/quant/health.h"
#include "octavo/quant/provider_dots.h"
#include "octavo/quant/quantize_run.h"
#include "octavo/quant/ragged_dot.h"

namespace octavo::quant {
namespace {

// A forward operand quantized by itself.
QArray Rows(const Run& run, OperandSide side, const Tensor& values, const HowToQuantize& how) {
  const Spot spot{ProductKind::kForward, side};
  QArray result = Quantize(At(run, spot), values, how);
  const bool follows = how.calibration.method == CalibrationMethod::kAbsMax && how.calibration.factor >= 1;
  ObserveHealth(run, spot, values, result, follows);
  return result;
}

// An operand of the serving form: frozen codes as they are, floats quantized as `how` says.
DotOperand ServingOperand(const Run& run, OperandSide side, const ops::Operand& operand,
                          const std::optional<HowToQuantize>& how) {
  if (operand.quantized()) return operand.qarray();
  if (!how) return operand.tensor();
  return Rows(run, side, operand.tensor(), *how);
}

// Rows in int8 with a scale each by their largest magnitude: nothing else about them needs to be known.
bool QuantizesPlainRows(const QwixTreatment& treatment) {
  return treatment.activation == Format::kInt8 && treatment.activation_calibration == Calibration{} &&
         !treatment.tile && !treatment.per_tensor && !treatment.static_activation && !treatment.HasSparsity();
}

// The last axes of x, gapless, against the contracted axes of the panels.
bool ContractsTheEnd(const Tensor& x, const DotDims& dims, const PackedWeight& weight) {
  const int count = static_cast<int>(dims.lhs_contract.size());
  for (int i = 0; i < count; ++i) {
    if (dims.lhs_contract[static_cast<size_t>(i)] != x.rank() - count + i) return false;
  }
  return dims.lhs_batch.empty() && x.is_contiguous() && dims.rhs_contract == weight.contract();
}

// The panels of a projection that goes the short way: int8 rows, quantized once for all weights that read them, times
// panels that exist, with the kernels of the long way. Null: this product is not of that form, or somebody looks at it.
const PackedWeight* ServedWeight(const SiteCall& call, const Run& run) {
  const PackedWeight* weight = run.frozen == nullptr ? nullptr : run.frozen->integer();
  const bool looked_at = call.context.tape != nullptr || run.health != nullptr || call.kept != nullptr;
  if (weight == nullptr || looked_at || call.lhs.quantized() || !weight->TakesRows()) return nullptr;
  const Tensor& x = call.lhs.tensor();
  if (x.dtype() != DType::kF32 || x.is_meta() || x.size() == 0) return nullptr;
  return ContractsTheEnd(x, call.site.dims, *weight) ? weight : nullptr;
}

// Whether contracted axes are the first of a weight, in their order.
bool ContractsTheBeginning(const std::vector<int>& contract) {
  for (size_t i = 0; i < contract.size(); ++i) {
    if (contract[i] != static_cast<int>(i)) return false;
  }
  return true;
}

// What a product on the short way needs to know; kept with the weight once its codes are gone, else in `fresh`. Null:
// the call does not go that way.
ServedSite* Serving(const SiteCall& call, const Run& run, ServedSite& fresh) {
  const PackedWeight* weight = ServedWeight(call, run);
  if (weight == nullptr) return nullptr;
  fresh.weight = weight;
  fresh.lhs_rank = call.lhs.tensor().rank();
  fresh.contracted = static_cast<int>(call.site.dims.lhs_contract.size());
  const bool plain = call.rhs.parameter != nullptr && ContractsTheBeginning(call.site.dims.rhs_contract);
  FrozenWeight* settled = plain ? call.provider.weights().Settled(*call.rhs.parameter) : nullptr;
  if (settled == nullptr) return &fresh;
  settled->served() = fresh;
  settled->served().site = &call.site;
  return &settled->served();
}

// The rows of x [..., K], quantized now or by the product before.
const QArray& ServedRows(Provider& provider, const Run& run, const Tensor& x, int64_t depth) {
  QuantizedRows& last = provider.last_rows();
  const bool same = last.source.defined() && last.source.SharesStorageWith(x) && last.source.size() == x.size() &&
                    last.source.Data<float>() == x.Data<float>() && last.rows.qvalue.dim(1) == depth;
  if (!same) {
    HowToQuantize how;
    how.format = Format::kInt8;
    how.granularity.channelwise_axes = {0};
    const Tensor rows = x.Reshape({x.size() / depth, depth});
    last.rows = Quantize(At(run, {ProductKind::kForward, OperandSide::kLhs}), rows, how);
    last.source = x;
  }
  return last.rows;
}

// Before a few rows stream weights: notes that they follow the ones before, and asks for those that followed them.
void FetchNext(Provider& provider, ThreadPool& pool, ServedSite& site, std::span<const PackedWeight* const> weights) {
  ServedSite*& last = provider.last_stream();
  if (last != nullptr) last->next = PackedWeight::StreamOf(weights, pool.size());
  last = &site;
  if (site.next.data != nullptr) pool.FetchAhead(site.next.data, site.next.stride, site.next.each);
}

}  // namespace

std::vector<ops::Var> Serve(Provider& provider, const Run& run, const Tensor& x, std::span<ServedSite* const> sites) {
  constexpr int64_t kStreamedRows = 8;  // more are computed, not read
  std::vector<const PackedWeight*> weights;
  weights.reserve(sites.size());
  for (const ServedSite* site : sites) weights.push_back(site->weight);
  const QArray& rows = ServedRows(provider, run, x, weights[0]->depth());
  if (rows.qvalue.dim(0) <= kStreamedRows && sites[0]->site != nullptr) {
    FetchNext(provider, run.pool, *sites[0], weights);
  }
  const std::span<const int64_t> lead = x.shape().dims().first(static_cast<size_t>(x.rank() - sites[0]->contracted));
  std::vector<ops::Var> results;
  results.reserve(sites.size());
  for (Tensor& out : PackedWeight::MultiplyRows(run, weights, rows.qvalue, rows.scale, lead)) {
    results.emplace_back(std::move(out));
  }
  return results;
}

namespace {

std::optional<ops::Var> ServedProjection(const SiteCall& call, const Run& run) {
  ServedSite fresh;
  ServedSite* const site = Serving(call, run, fresh);
  if (site == nullptr) return std::nullopt;
  return std::move(Serve(call.provider, run, call.lhs.tensor(), {&site, 1})[0]);
}

// Whether a site's rows are quantized as the short way does it.
bool ServesRows(const SitePlan& site) {
  if (const auto* plain = std::get_if<QwixTreatment>(&*site.treatment)) return QuantizesPlainRows(*plain);
  const auto* grouped = std::get_if<GroupedTreatment>(&*site.treatment);
  return grouped != nullptr && grouped->activation == Format::kInt8 && !site.weight_is_lhs;
}

std::vector<int64_t> Sizes(const Tensor& group_sizes) {
  std::vector<int64_t> result;
  for (int32_t size : group_sizes.ToVector<int32_t>()) result.push_back(size);
  return result;
}

}  // namespace

ops::Var QwixDot(const SiteCall& call, const QwixTreatment& treatment) {
  const SitePlan& site = call.site;
  const Run run = call.provider.RunIn(call.context, site, call.rhs);
  if (ServesRows(site)) {
    if (std::optional<ops::Var> served = ServedProjection(call, run)) return *std::move(served);
  }
  const bool rhs_is_weight = !site.weight.empty() && !site.weight_is_lhs;
  DotQtConfig config = ConfigOf(treatment, site.weight_is_lhs, rhs_is_weight);
  if (call.lhs.quantized() || call.rhs.quantized()) {
    const DotOperand lhs =
        ServingOperand(run, OperandSide::kLhs, call.lhs, LeftHow(config, call.lhs.shape(), site.dims));
    const DotOperand rhs =
        ServingOperand(run, OperandSide::kRhs, call.rhs, RightHow(config, call.rhs.shape(), site.dims));
    return ops::Var(DotGeneral(run, lhs, rhs, site.dims));
  }
  Tensor weight = call.rhs.tensor();
  const Tensor mask = rhs_is_weight ? ScheduledMask(call.context.state, site.site, treatment, weight) : Tensor();
  if (mask.defined()) {
    config.rhs_sparsity.reset();
    if (call.context.updates != nullptr)
      call.context.updates->Observe(StateName(site.site, "sparsity_mask"), MaskAsFloats(mask));
    weight = Pruned(weight, mask);
  }
  DotQtGiven given;
  given.out = call.kept;
  std::optional<CalibrationRange> average;
  if (treatment.static_activation) {
    const bool lhs = !site.weight_is_lhs;
    const Tensor& activation = lhs ? call.lhs.tensor() : call.rhs.tensor();
    const auto how =
        lhs ? LeftHow(config, activation.shape(), site.dims) : RightHow(config, activation.shape(), site.dims);
    average = RunningRange(call.context, site.site, lhs ? "lhs" : "rhs", Calibrate(run, activation, *how),
                           treatment.activation_batch_axes);
    (lhs ? given.lhs : given.rhs) = &*average;
  }
  if (rhs_is_weight && call.rhs.parameter != nullptr && config.rhs.format && !treatment.HasSparsity()) {
    given.weight = call.provider.weights().Find(*call.rhs.parameter, site, weight, [&] {
      return PrepareWeight(run, weight, call.lhs.shape().rank(), site.dims, config, call.context.tape != nullptr);
    });
  }
  DotQtForward forward = DotGeneralQt(run, call.lhs.tensor(), weight, site.dims, config, given);
  if (call.context.tape == nullptr) return ops::Var(std::move(forward.out));
  const RngKey key = NoiseKey(call.context, site.site);
  return call.context.tape->Record(std::move(forward.out), {call.lhs.node, call.rhs.node},
                                   [provider = &call.provider, &site, config, key, mask, wanted = WantedOf(call),
                                    residuals = std::move(forward.residuals)](ops::Context& back, const Tensor& grad) {
                                     DotQtGradients grads = DotGeneralQtBackward(provider->RunIn(back, site), residuals,
                                                                                 config, grad, key, false, wanted);
                                     // A pruned weight gets no gradient.
                                     if (mask.defined() && wanted.rhs) grads.rhs = Pruned(grads.rhs, mask);
                                     return std::vector<Tensor>{std::move(grads.lhs), std::move(grads.rhs)};
                                   });
}

ops::Var GroupedDot(const SiteCall& call, const GroupedTreatment& treatment) {
  const SitePlan& site = call.site;
  const Run run = call.provider.RunIn(call.context, site, call.rhs);
  if (ServesRows(site)) {
    if (std::optional<ops::Var> served = ServedProjection(call, run)) return *std::move(served);
  }
  const ops::Operand& weight = site.weight_is_lhs ? call.lhs : call.rhs;
  const ops::Operand& activation = site.weight_is_lhs ? call.rhs : call.lhs;
  const Tensor& x = FloatOf(call, activation);
  const QArray codes = weight.quantized() ? weight.qarray() : Freeze(run, site, weight.tensor());
  HowToQuantize how;
  how.format = treatment.activation;
  how.granularity =
      GranularityForDot(x.shape(), site.weight_is_lhs ? site.dims.rhs_contract : site.dims.lhs_contract, std::nullopt);
  const QArray rows = Rows(run, site.weight_is_lhs ? OperandSide::kRhs : OperandSide::kLhs, x, how);
  Tensor out = site.weight_is_lhs ? FastDot(run, codes, rows, site.dims) : FastDot(run, rows, codes, site.dims);
  if (call.context.tape == nullptr) return ops::Var(std::move(out));
  // Straight-through: float gradients at the values the forward pass used.
  return call.context.tape->Record(
      std::move(out), {call.lhs.node, call.rhs.node},
      [provider = &call.provider, &site, rows, codes, dims = site.dims](ops::Context& back, const Tensor& grad) {
        const Run again = provider->RunIn(back, site);
        const Tensor used_rows = Dequantize(again, rows), used_weight = Dequantize(again, codes);
        const Tensor& lhs = site.weight_is_lhs ? used_weight : used_rows;
        const Tensor& rhs = site.weight_is_lhs ? used_rows : used_weight;
        const ops::GradDot to_lhs = ops::GradLhsDot(lhs.rank(), rhs.rank(), dims);
        const ops::GradDot to_rhs = ops::GradRhsDot(lhs.rank(), rhs.rank(), dims);
        return std::vector<Tensor>{SlowDot(again, grad, rhs, to_lhs.dims).Permute(to_lhs.order),
                                   SlowDot(again, grad, lhs, to_rhs.dims).Permute(to_rhs.order)};
      });
}

std::optional<std::vector<ops::Var>> ServedDots(std::span<const SiteCall> calls) {
  std::vector<ServedSite> fresh(calls.size());
  std::vector<ServedSite*> sites;
  for (size_t i = 0; i < calls.size(); ++i) {
    const SiteCall& call = calls[i];
    if (!ServesRows(call.site)) return std::nullopt;
    sites.push_back(Serving(call, call.provider.RunIn(call.context, call.site, call.rhs), fresh[i]));
    if (sites.back() == nullptr || !GoTogether(*sites[0], *sites.back())) return std::nullopt;
  }
  return Serve(calls[0].provider, calls[0].provider.RunIn(calls[0].context, calls[0].site), calls[0].lhs.tensor(),
               sites);
}

ops::Var RaggedSiteDot(const SiteCall& call, const Tensor& group_sizes) {
  const SitePlan& site = call.site;
  const Run run = call.provider.RunIn(call.context, site, call.rhs);
  const std::vector<int64_t> sizes = Sizes(group_sizes);
  HowToQuantize row_how;
  row_how.granularity.channelwise_axes = {0};
  row_how.format = *site.forward.lhs.format;
  if (call.rhs.quantized()) {
    return ops::Var(
        RaggedDot(run, Rows(run, OperandSide::kLhs, FloatOf(call, call.lhs), row_how), call.rhs.qarray(), sizes));
  }
  if (std::holds_alternative<GroupedTreatment>(*site.treatment)) {
    const QArray rows = Rows(run, OperandSide::kLhs, FloatOf(call, call.lhs), row_how);
    return ops::Var(RaggedDot(run, rows, Freeze(run, site, call.rhs.tensor()), sizes));
  }
  RaggedDotQtConfig config;
  config.lhs = *site.forward.lhs.format;
  config.rhs = *site.forward.rhs.format;
  config.grad_lhs = site.grad_lhs.lhs.format;
  config.grad_rhs = site.grad_rhs.lhs.format;
  RaggedDotQtForward forward = RaggedDotQt(run, FloatOf(call, call.lhs), call.rhs.tensor(), sizes, config, call.kept);
  const Tensor out = forward.out;
  if (call.context.tape == nullptr) return ops::Var(out);
  return call.context.tape->Record(out, {call.lhs.node, call.rhs.node},
                                   [provider = &call.provider, &site, config, sizes, forward = std::move(forward)](
                                       ops::Context& back, const Tensor& grad) {
                                     RaggedDotQtGradients grads =
                                         RaggedDotQtBackward(provider->RunIn(back, site), forward, sizes, config, grad);
                                     return std::vector<Tensor>{std::move(grads.lhs), std::move(grads.rhs)};
                                   });
}

}  // namespace octavo::quant
