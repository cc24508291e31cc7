// Weights as their sites use them.
#include "octavo/base/error.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/provider_dots.h"
#include "octavo/quant/quantize_run.h"
#include "octavo/quant/te.h"

namespace octavo::quant {
namespace {

const std::vector<int>& WeightContract(const SitePlan& site) {
  return site.weight_is_lhs ? site.dims.lhs_contract : site.dims.rhs_contract;
}

QArray FreezeQwix(const Run& run, const SitePlan& site, const QwixTreatment& treatment, const Tensor& weight,
                  const ops::StateStore* state) {
  const DotQtConfig config = ConfigOf(treatment, site.weight_is_lhs, !site.weight_is_lhs);
  const auto how =
      site.weight_is_lhs ? LeftHow(config, weight.shape(), site.dims) : RightHow(config, weight.shape(), site.dims);
  Tensor kept = weight;
  if (config.rhs_sparsity && !site.weight_is_lhs) {
    const Tensor mask = ScheduledMask(state, site.site, treatment, weight);
    kept = Pruned(weight, mask.defined() ? mask : SparsityMask(weight, *config.rhs_sparsity));
  }
  return Quantize(run, kept, *how);
}

// Groups lie along the contracted axis that is listed last; ragged weights [G, K, N] contract axis 1.
QArray FreezeGrouped(const Run& run, const SitePlan& site, const GroupedTreatment& treatment, const Tensor& weight) {
  const bool ragged = site.site.op == ops::OpKind::kRaggedDot || site.site.op == ops::OpKind::kGmm;
  const std::vector<int> contract = ragged ? std::vector<int>{1} : WeightContract(site);
  HowToQuantize how;
  how.format = treatment.weight;
  how.granularity = GranularityForDot(weight.shape(), contract,
                                      treatment.group == 0 ? std::nullopt : std::optional<TileSize>(treatment.group));
  return Quantize(run, weight, how);
}

// A ragged weight of the training form: one scale per output column, shared by all groups.
QArray FreezeRagged(const Run& run, const SitePlan& site, const Tensor& weight) {
  HowToQuantize how;
  how.format = *site.forward.rhs.format;
  how.granularity.channelwise_axes = {2};
  return Quantize(run, weight, how);
}

QArray FreezeDelayed(const SitePlan& site, const DelayedTreatment& treatment, const Tensor& weight,
                     const ops::StateStore* state) {
  const Fp8Meta meta = LoadFp8State(state, site.site, treatment.history).kernel;
  if (treatment.form == DelayedTreatment::Form::kTransformerEngine) {
    return TeQuantizeTensor(weight, treatment.forward, meta.scale.ToVector<float>()[0]);
  }
  const float scale = UpdatedFp8Meta(meta, 0.0f, treatment.forward).scale.ToVector<float>()[0];
  const Codes codes = QuantizeFp8(weight, treatment.forward, scale);
  const std::vector<int64_t> ones(static_cast<size_t>(weight.rank()), 1);
  const Tensor one = Tensor::FromValues<float>(Shape(ones), DType::kF32, std::vector<float>{scale});
  return QArray{codes.values, one, std::nullopt, treatment.forward};
}

}  // namespace

bool FreezesWeight(const SitePlan& site) {
  if (site.weight.empty() || !site.treatment) return false;
  return (site.weight_is_lhs ? site.forward.lhs : site.forward.rhs).format.has_value();
}

QArray Freeze(const Run& run, const SitePlan& site, const Tensor& weight, const ops::StateStore* state) {
  if (!FreezesWeight(site)) ThrowUsage("{}: the plan keeps this weight in float", site.site.ToString());
  const bool ragged = site.site.op == ops::OpKind::kRaggedDot || site.site.op == ops::OpKind::kGmm;
  if (const auto* grouped = std::get_if<GroupedTreatment>(&*site.treatment))
    return FreezeGrouped(run, site, *grouped, weight);
  if (ragged) return FreezeRagged(run, site, weight);
  if (const auto* qwix = std::get_if<QwixTreatment>(&*site.treatment))
    return FreezeQwix(run, site, *qwix, weight, state);
  if (const auto* aqt = std::get_if<AqtTreatment>(&*site.treatment)) {
    const DotDims dims = WeightRight(site).dims;
    return AqtFreeze(run, weight, dims, ConfigOf(*aqt));
  }
  if (const auto* delayed = std::get_if<DelayedTreatment>(&*site.treatment))
    return FreezeDelayed(site, *delayed, weight, state);
  return TeFreeze(site, std::get<BlockTreatment>(*site.treatment), weight);
}

}  // namespace octavo::quant
