#include "octavo/quant/provider.h"

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/health.h"
#include "octavo/quant/provider_dots.h"

namespace octavo::quant {

Provider::Provider(const Plan& plan, const ProviderOptions& options) : plan_(plan), options_(options) {
  for (const SitePlan& site : plan_.sites) by_site_.emplace(site.site, &site);
  for (const KvPlan& cache : plan_.kv_caches) caches_.emplace(cache.site, cache.format);
}

const SitePlan& Provider::Find(const ops::Site& site) const {
  const auto at = by_site_.find(site);
  if (at != by_site_.end()) return *at->second;
  std::vector<std::string> names;
  for (const SitePlan& known : plan_.sites) names.push_back(known.site.ToString());
  const std::vector<std::string_view> views(names.begin(), names.end());
  throw Error(ErrorCode::kUsage, fmt::format("site {} is not in the plan", site.ToString()),
              fmt::format("nearest: {}; the plan was made for another model or workload",
                          fmt::join(NearestNames(site.ToString(), views, 3), ", ")));
}

Run Provider::RunIn(ops::Context& context, const SitePlan& site) {
  Run run{context.pool, context.isa, context.workspace, options_.arithmetic, options_.macs};
  run.arithmetic.site = site.site.path;
  if (options_.health != nullptr && options_.health->Wants(site.site.path)) run.health = options_.health;
  return run;
}

Run Provider::RunIn(ops::Context& context, const SitePlan& site, const ops::Operand& weight) {
  Run run = RunIn(context, site);
  if (weight.quantized() && weight.parameter != nullptr) run.frozen = &weights_.Frozen(*weight.parameter);
  return run;
}

ServedSite* Provider::Known(const ops::Context& context, const ops::DotCall& call) {
  if (context.tape != nullptr || options_.health != nullptr || call.kept != nullptr) return nullptr;
  if (call.rhs.parameter == nullptr || !call.rhs.quantized() || call.lhs.quantized()) return nullptr;
  FrozenWeight* const weight = weights_.Settled(*call.rhs.parameter);
  if (weight == nullptr || weight->served().site == nullptr) return nullptr;
  ServedSite& known = weight->served();
  const Tensor& x = call.lhs.tensor();
  const auto count = static_cast<size_t>(known.contracted);
  const bool fits = x.dtype() == DType::kF32 && x.rank() == known.lhs_rank && call.dims.lhs_batch.empty() &&
                    call.dims.rhs_batch.empty() && call.dims.lhs_contract.size() == count &&
                    call.dims.rhs_contract.size() == count;
  if (!fits || x.is_meta() || x.size() == 0 || !x.is_contiguous()) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    const int left = known.lhs_rank - known.contracted + static_cast<int>(i);
    if (call.dims.lhs_contract[i] != left || call.dims.rhs_contract[i] != static_cast<int>(i)) return nullptr;
  }
  return known.site->site == call.site ? &known : nullptr;
}

std::optional<ops::Var> Provider::Dot(ops::Context& context, const ops::DotCall& call) {
  if (ServedSite* const known = Known(context, call)) {
    return std::move(Serve(*this, RunIn(context, *known->site), call.lhs.tensor(), {&known, 1})[0]);
  }
  const SitePlan& site = Find(call.site);
  if (!site.treatment) return std::nullopt;
  SiteCall at{*this, context, site, call.lhs, call.rhs, call.kept};
  if (site.dims != call.dims) {
    ThrowUsage("{}: the plan contracts other axes than this call", call.site.ToString());
  }
  return std::visit(
      [&](const auto& treatment) -> ops::Var {
        using T = std::decay_t<decltype(treatment)>;
        if constexpr (std::is_same_v<T, QwixTreatment>) return QwixDot(at, treatment);
        if constexpr (std::is_same_v<T, AqtTreatment>) return AqtDot(at, treatment);
        if constexpr (std::is_same_v<T, DelayedTreatment>) return DelayedDot(at, treatment);
        if constexpr (std::is_same_v<T, BlockTreatment>) return BlockDot(at, treatment);
        if constexpr (std::is_same_v<T, GroupedTreatment>) return GroupedDot(at, treatment);
      },
      *site.treatment);
}

std::optional<std::vector<ops::Var>> Provider::Dots(ops::Context& context, std::span<const ops::DotCall> calls) {
  std::vector<ServedSite*> known;
  for (const ops::DotCall& call : calls) {
    known.push_back(Known(context, call));
    if (known.back() == nullptr || !GoTogether(*known[0], *known.back())) break;
    if (known.size() == calls.size()) return Serve(*this, RunIn(context, *known[0]->site), call.lhs.tensor(), known);
  }
  std::vector<SiteCall> at;
  for (const ops::DotCall& call : calls) {
    const SitePlan& site = Find(call.site);
    if (!site.treatment || site.dims != call.dims) return std::nullopt;  // Dot says what is wrong
    at.push_back(SiteCall{*this, context, site, call.lhs, call.rhs, call.kept});
  }
  return ServedDots(at);
}

std::optional<ops::Var> Provider::RaggedDot(ops::Context& context, const ops::RaggedCall& call) {
  const SitePlan& site = Find(call.site);
  if (!site.treatment) return std::nullopt;
  return RaggedSiteDot(SiteCall{*this, context, site, call.lhs, call.rhs, call.kept}, call.group_sizes);
}

bool Provider::Answers(const ops::Site& site) const { return Find(site).treatment.has_value(); }

void Provider::Fused(ops::Context&, const ops::DotCall& call) {
  if (Find(call.site).treatment) {
    ThrowUsage("{}: the plan quantizes it, but it was computed inside another op", call.site.ToString());
  }
}

std::optional<ops::KvFormat> Provider::KvCache(ops::Context&, const ops::KvCall& call) {
  if (caches_.empty()) return std::nullopt;
  const auto at = caches_.find(call.site);
  return at == caches_.end() ? std::nullopt : std::optional(at->second);
}

RngKey NoiseKey(const ops::Context& context, const ops::Site& site) {
  // FNV-1a: a fixed function of the name, equal on every machine.
  uint32_t hash = 2166136261u;
  for (char c : site.ToString()) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return context.key.FoldIn(hash);
}

const Tensor& FloatOf(const SiteCall& call, const ops::Operand& operand) {
  if (operand.quantized()) {
    ThrowUsage("{}: an operand is quantized already, but the recipe wants it in float", call.site.site.ToString());
  }
  return operand.tensor();
}

WeightRight::WeightRight(const SitePlan& site) : turned(site.weight_is_lhs), dims(site.dims) {
  if (!turned) return;
  dims = {site.dims.rhs_contract, site.dims.lhs_contract, site.dims.rhs_batch, site.dims.lhs_batch};
  const int batch = static_cast<int>(site.dims.lhs_batch.size());
  const int lhs_free = site.lhs.rank() - batch - static_cast<int>(site.dims.lhs_contract.size());
  const int rhs_free = site.rhs.rank() - batch - static_cast<int>(site.dims.rhs_contract.size());
  for (int i = 0; i < batch; ++i) order.push_back(i);
  for (int i = 0; i < lhs_free; ++i) order.push_back(batch + rhs_free + i);
  for (int i = 0; i < rhs_free; ++i) order.push_back(batch + i);
  inverse.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
}

std::string StateName(const ops::Site& site, std::string_view what) {
  return fmt::format("{}/{}/{}", site.path, site.OpId(), what);
}

}  // namespace octavo::quant
