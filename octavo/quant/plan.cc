#include "octavo/quant/plan.h"

#include <algorithm>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/ops/dot_dims.h"
#include "octavo/ops/float_dot.h"
#include "octavo/quant/plan_site.h"

namespace octavo::quant {
namespace {

// Answers every op of the dry run with a meta tensor and writes down what it was asked.
class Recorder : public ops::Interceptor {
 public:
  Recorder(const RuleSet& rules, const PlanOptions& options, Plan& plan)
      : rules_(rules), options_(options), plan_(plan) {}

  std::optional<ops::Var> Dot(ops::Context&, const ops::DotCall& call) override {
    SitePlan& site = Start(call.site, call.lhs, call.rhs);
    site.dims = call.dims;
    site.macs = ops::DotMacs(site.lhs, site.rhs, site.dims);
    Finish(site, false);
    return ops::Var(Tensor::Meta(DotShape(call.site.ToString(), site.lhs, site.rhs, site.dims), site.dtype));
  }

  // A dot inside a larger op: it has a place in the plan, but only as a float.
  void Fused(ops::Context&, const ops::DotCall& call) override {
    SitePlan& site = Start(call.site, call.lhs, call.rhs);
    site.dims = call.dims;
    site.macs = ops::DotMacs(site.lhs, site.rhs, site.dims);
    std::optional<int> rule = rules_.Match(site.site.path, site.site.op, !site.weight.empty());
    // Rules about weights mean matmuls; the scale of a norm is multiplied element by element.
    if (rule && site.dims.lhs_contract.empty() && rules_.rules()[static_cast<size_t>(*rule)].only_weights) rule.reset();
    if (rule && rules_.rules()[static_cast<size_t>(*rule)].treatment) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("rule {} '{}' would quantize {}, which is computed inside another op", *rule + 1,
                              rules_.rules()[static_cast<size_t>(*rule)].module_path, site.site.ToString()),
                  "put a rule without qtypes for it first, or name the ops that are meant (op_names: [dot_general])");
    }
    if (rule) site.rule = *rule;
    DescribeFloatSite(site);
  }

  std::optional<ops::Var> RaggedDot(ops::Context&, const ops::RaggedCall& call) override {
    SitePlan& site = Start(call.site, call.lhs, call.rhs);
    if (site.lhs.rank() != 2 || site.rhs.rank() != 3) {
      ThrowUsage("{}: lhs {} and rhs {}: expected [M, K] and [G, K, N]", call.site.ToString(), site.lhs, site.rhs);
    }
    site.macs = site.lhs.size() * site.rhs[2];
    Finish(site, true);
    return ops::Var(Tensor::Meta({site.lhs[0], site.rhs[2]}, site.dtype));
  }

  std::optional<ops::KvFormat> KvCache(ops::Context&, const ops::KvCall& call) override {
    const std::optional<int> rule = rules_.Match(call.site.path, ops::OpKind::kKvCache, false);
    if (!rule) return std::nullopt;
    const ops::KvFormat format = rules_.rules()[static_cast<size_t>(*rule)].kv->format;
    plan_.kv_caches.push_back({call.site, *rule, format});
    return format;
  }

 private:
  static DType TypeOf(const ops::Operand& operand) {
    return operand.quantized() ? operand.qarray().dtype() : operand.tensor().dtype();
  }

  SitePlan& Start(const ops::Site& at, const ops::Operand& lhs, const ops::Operand& rhs) {
    SitePlan& site = plan_.sites.emplace_back();
    site.site = at;
    site.lhs = lhs.shape();
    site.rhs = rhs.shape();
    site.dtype = ops::ProductType(TypeOf(lhs), TypeOf(rhs));
    const bool lhs_weight = lhs.role == ops::Role::kWeight, rhs_weight = rhs.role == ops::Role::kWeight;
    if (lhs_weight && rhs_weight) ThrowUsage("{}: both operands are weights", at.ToString());
    if (lhs_weight || rhs_weight) {
      const ops::Operand& weight = lhs_weight ? lhs : rhs;
      site.weight = weight.parameter == nullptr ? "(unnamed)" : weight.parameter->name;
      site.weight_is_lhs = lhs_weight;
      site.weight_dtype = TypeOf(weight);
      site.weight_elements = weight.shape().size();
    }
    return site;
  }

  void Finish(SitePlan& site, bool ragged) {
    const std::optional<int> rule = rules_.Match(site.site.path, site.site.op, !site.weight.empty());
    if (rule) {
      site.rule = *rule;
      site.treatment = rules_.rules()[static_cast<size_t>(*rule)].treatment;
    }
    if (site.treatment) {
      DescribeSite(site, ragged, options_.backward);
    } else {
      DescribeFloatSite(site);
    }
  }

  const RuleSet& rules_;
  const PlanOptions& options_;
  Plan& plan_;
};

// The paths most like an expression: its special characters are no help in measuring.
std::vector<std::string> NearestPaths(const Plan& plan, const std::string& expression) {
  std::string plain;
  for (char c : expression) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '/') plain += c;
  }
  std::vector<std::string_view> paths;
  for (const SitePlan& site : plan.sites) {
    if (std::find(paths.begin(), paths.end(), site.site.path) == paths.end()) paths.push_back(site.site.path);
  }
  return NearestNames(plain, paths, 3);
}

void CheckUse(const Plan& plan, const PlanOptions& options) {
  if (plan.rules.empty()) return;
  std::set<int> used;
  for (const SitePlan& site : plan.sites) used.insert(site.rule);
  for (const KvPlan& cache : plan.kv_caches) used.insert(cache.rule);
  for (size_t i = 0; i < plan.rules.size() && !options.allow_unused_rules; ++i) {
    if (used.contains(static_cast<int>(i))) continue;
    const Rule& rule = plan.rules[i];
    std::vector<std::string_view> ops;
    for (ops::OpKind op : rule.ops) ops.push_back(NameOf(op));
    throw Error(ErrorCode::kUsage,
                fmt::format("rule {} '{}'{} matches no site of {}", i + 1, rule.module_path,
                            ops.empty() ? "" : fmt::format(" ({})", fmt::join(ops, ", ")), options.model_name),
                fmt::format("nearest sites: {}", fmt::join(NearestPaths(plan, rule.module_path), ", ")));
  }
  const bool asked =
      std::any_of(plan.rules.begin(), plan.rules.end(), [](const Rule& rule) { return rule.treatment.has_value(); });
  const bool covered = std::any_of(plan.sites.begin(), plan.sites.end(),
                                   [](const SitePlan& site) { return site.treatment.has_value(); });
  if (asked && !covered) {
    throw Error(ErrorCode::kUsage,
                fmt::format("quantization was asked for, but no site of {} is quantized", options.model_name),
                fmt::format("sites: {}", fmt::join(NearestPaths(plan, plan.rules.front().module_path), ", ")));
  }
}

}  // namespace

std::string_view NameOf(Coupling coupling) {
  switch (coupling) {
    case Coupling::kNone:
      return "none";
    case Coupling::kSequence:
      return "sequence";
    case Coupling::kShard:
      return "shard";
    case Coupling::kBatch:
      return "batch";
  }
  return "unknown";
}

const SitePlan* Plan::Find(const ops::Site& site) const {
  for (const SitePlan& plan : sites) {
    if (plan.site.ordinal == site.ordinal && plan.site.op == site.op && plan.site.path == site.path &&
        plan.site.model == site.model) {
      return &plan;
    }
  }
  return nullptr;
}

int64_t Plan::macs() const {
  int64_t total = 0;
  for (const SitePlan& site : sites) total += site.macs;
  return total;
}

double Plan::quantized_share() const {
  int64_t quantized = 0;
  for (const SitePlan& site : sites) quantized += site.treatment ? site.macs : 0;
  return macs() == 0 ? 0 : static_cast<double>(quantized) / static_cast<double>(macs());
}

Plan MakePlan(FunctionRef<void(ops::Context&)> model, const RuleSet& rules, const PlanOptions& options) {
  Plan plan;
  plan.rules = rules.rules();
  ThreadPool pool(1);
  kernels::Workspace workspace;
  ops::Context context(pool, kernels::Isa::kReference, workspace);
  Recorder recorder(rules, options, plan);
  context.interceptor = &recorder;
  model(context);
  CheckUse(plan, options);
  return plan;
}

DotQtConfig ConfigOf(const QwixTreatment& treatment, bool lhs_is_weight, bool rhs_is_weight) {
  DotQtConfig config;
  const auto side = [&](bool weight) {
    return ForwardOperand{weight ? treatment.weight : treatment.activation,
                          weight ? treatment.weight_calibration : treatment.activation_calibration,
                          treatment.per_tensor};
  };
  config.lhs = side(lhs_is_weight);
  config.rhs = side(rhs_is_weight);
  config.tile = treatment.tile;
  GradientProduct gradient;
  gradient.format = treatment.gradient;
  gradient.calibration = treatment.gradient_calibration;
  gradient.per_tensor = treatment.per_tensor;
  gradient.rounding = treatment.gradient_rounding;
  gradient.noise_axes = treatment.noise_axes;
  config.grad_lhs = gradient;
  config.grad_rhs = gradient;
  if (treatment.gradient && lhs_is_weight) config.grad_lhs.tile = treatment.weight_gradient_tile;
  if (treatment.gradient && rhs_is_weight) config.grad_rhs.tile = treatment.weight_gradient_tile;
  const bool quantized = config.lhs.format || config.rhs.format;
  config.original_residuals = treatment.original_residuals.value_or(quantized && !treatment.gradient);
  config.mask_gradients = treatment.mask_gradient;
  if (treatment.sparsity_n > 0)
    config.rhs_sparsity = SparsityPattern{.n = treatment.sparsity_n, .m = treatment.sparsity_m};
  return config;
}

}  // namespace octavo::quant
