// The dots of each family as a provider runs them: forward, what is recorded, what is observed. Only provider files use
// it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/ops/context.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/tape.h"
#include "octavo/quant/aqt.h"
#include "octavo/quant/fp8_delayed.h"
#include "octavo/quant/provider.h"

namespace octavo::quant {

// One dot at one site. References live as long as the call; what a gradient needs is copied.
struct SiteCall {
  Provider& provider;
  ops::Context& context;
  const SitePlan& site;
  const ops::Operand& lhs;
  const ops::Operand& rhs;
  const Tensor* kept = nullptr;  // remat kept the output: the product need not run again
};

// Which gradients the tape will use.
inline Wanted WantedOf(const SiteCall& call) {
  return {call.lhs.node != ops::kConstant, call.rhs.node != ops::kConstant};
}

ops::Var QwixDot(const SiteCall& call, const QwixTreatment& treatment);
ops::Var AqtDot(const SiteCall& call, const AqtTreatment& treatment);
ops::Var DelayedDot(const SiteCall& call, const DelayedTreatment& treatment);
ops::Var BlockDot(const SiteCall& call, const BlockTreatment& treatment);
ops::Var TeDelayedDot(const SiteCall& call, const DelayedTreatment& treatment);
ops::Var GroupedDot(const SiteCall& call, const GroupedTreatment& treatment);
// The short way of serving (decision 0017): products of one activation with weights of one depth, contracting as many
// of its axes.
std::vector<ops::Var> Serve(Provider& provider, const Run& run, const Tensor& x, std::span<ServedSite* const> sites);
// The projections of one activation when every one goes the short way of serving; else nullopt.
std::optional<std::vector<ops::Var>> ServedDots(std::span<const SiteCall> calls);
ops::Var RaggedSiteDot(const SiteCall& call, const Tensor& group_sizes);

AqtConfig ConfigOf(const AqtTreatment& treatment);
Fp8DotConfig ConfigOf(const DelayedTreatment& treatment);

// A weight under a block recipe.
QArray TeFreeze(const SitePlan& site, const BlockTreatment& treatment, const Tensor& weight);

// The key of a site's noise: the run's key, folded with the site's name.
RngKey NoiseKey(const ops::Context& context, const ops::Site& site);

// The activation of a call whose other operand is the weight; a usage error names a site where it is quantized already.
const Tensor& FloatOf(const SiteCall& call, const ops::Operand& operand);

// A site's dot with its weight on the right, where some families want it: the operands of a site that has it on the
// left are exchanged.
struct WeightRight {
  explicit WeightRight(const SitePlan& site);

  const ops::Operand& Activation(const SiteCall& call) const { return turned ? call.rhs : call.lhs; }
  const ops::Operand& Weight(const SiteCall& call) const { return turned ? call.lhs : call.rhs; }
  // The product with its axes as the site has them, and its gradient with those of `dims`.
  Tensor Restore(const Tensor& product) const { return turned ? product.Permute(order) : product; }
  Tensor Turn(const Tensor& grad) const { return turned ? grad.Permute(inverse) : grad; }

  bool turned;
  DotDims dims;
  std::vector<int> order, inverse;  // of the product's axes
};

// The mask that a scheduled n:m rule prunes its weight with at this step, from the named state "sparsity_step" and
// "sparsity_mask". Undefined without a rule of that kind, and without a state: then the dot masks by itself.
Tensor ScheduledMask(const ops::StateStore* state, const ops::Site& site, const QwixTreatment& treatment,
                     const Tensor& weight);
Tensor MaskAsFloats(const Tensor& mask);

// Names of a delayed site's state: "decoder/layers_0/mlp/wi_0/dot_general0/input_scale", ….
std::string StateName(const ops::Site& site, std::string_view what);
Fp8DotState LoadFp8State(const ops::StateStore* state, const ops::Site& site, int history);

}  // namespace octavo::quant
