#include "octavo/convert/divergence.h"

#include <algorithm>
#include <memory>

#include "octavo/eval/compare.h"
#include "octavo/quant/provider.h"

namespace octavo::convert {
namespace {

constexpr int64_t kLongestWindow = 512;  // tokens
constexpr int64_t kMostTokens = 4096;
constexpr size_t kCandidates = 6, kShownParts = 3;

// A loaded model with who answers its dots.
struct Loaded {
  Loaded(const weights::StoredModel& stored, weights::Holding holding, ThreadPool& pool, kernels::Isa isa) {
    weights::LoadOptions options;
    options.holding = holding;
    model = weights::LoadModel(stored, options, pool, isa);
    provider = std::make_unique<quant::Provider>(*model.plan);
    provider->StartStep();  // weights do not change: what is made of them is kept
  }
  eval::Subject Subject() {
    return {model.model.get(), model.recipe_name.empty() ? nullptr : provider.get(), &model.state,
            eval::HasCoupledHead(*model.plan)};
  }

  weights::LoadedModel model;
  std::unique_ptr<quant::Provider> provider;
};

// The target's plan with one module quantized and the rest in float.
quant::Plan OnlyModule(const quant::Plan& plan, const std::string& path) {
  quant::Plan only = plan;
  for (quant::SitePlan& site : only.sites) {
    if (site.site.path != path) site.treatment.reset();
  }
  return only;
}

// By KL of the module alone: of those whose outputs differ most, since each takes two passes.
std::vector<std::pair<std::string, double>> LargestParts(const eval::Comparison& all, Loaded& source, Loaded& target,
                                                         const eval::Windows& windows, ThreadPool& pool) {
  std::vector<std::pair<std::string, double>> parts;
  for (const eval::SiteError& site : all.sites) {
    if (parts.size() == kCandidates) break;
    std::string path = site.site.substr(0, site.site.find(' '));
    const bool quantized =
        std::any_of(target.model.plan->sites.begin(), target.model.plan->sites.end(),
                    [&](const quant::SitePlan& one) { return one.site.path == path && one.treatment; });
    const bool known = std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.first == path; });
    if (!quantized || known || !source.model.recipe_name.empty()) continue;
    const quant::Plan only = OnlyModule(*target.model.plan, path);
    quant::Provider provider(only);
    provider.StartStep();
    eval::Subject subject = source.Subject();
    subject.provider = &provider;
    subject.state = &target.model.state;
    eval::CompareOptions options;
    options.sites = false;
    const eval::Comparison one = eval::Compare(source.Subject(), subject, windows, pool, options);
    parts.emplace_back(std::move(path), one.kl.mean());
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (parts.size() > kShownParts) parts.resize(kShownParts);
  return parts;
}

}  // namespace

Divergence MeasureDivergence(const weights::StoredModel& source, const weights::StoredModel& target,
                             const std::vector<int32_t>& tokens, double budget, ThreadPool& pool, kernels::Isa isa) {
  Loaded a(source, weights::Holding::kFloats, pool, isa), b(target, weights::Holding::kCodes, pool, isa);
  eval::WindowOptions options;
  options.length = std::min(kLongestWindow, a.model.model->config().max_target_length);
  options.length = std::min<int64_t>(options.length, static_cast<int64_t>(tokens.size()) - 1);
  options.most = std::max<int64_t>(1, kMostTokens / std::max<int64_t>(1, options.length));
  const eval::Windows windows(tokens, options);
  const eval::Comparison comparison = eval::Compare(a.Subject(), b.Subject(), windows, pool);
  Divergence result{comparison.kl.mean(), comparison.kl.standard_error(), comparison.tokens, comparison.equal, {}};
  if (result.kl > budget) {
    eval::WindowOptions fewer = options;
    fewer.most = 1;
    result.parts = LargestParts(comparison, a, b, eval::Windows(tokens, fewer), pool);
  }
  return result;
}

}  // namespace octavo::convert
