#include "octavo/nn/moe.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/ops/aux_losses.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/rows.h"

namespace octavo::nn {

MoeBlock::MoeBlock(const Builder& builder, std::string_view name, const MoeOptions& options)
    : name_(name),
      options_(options),
      gate_(builder.Child(name), "gate", {options.emb_dim}, {options.experts},
            DenseInit({options.emb_dim}, options.init_scale)) {
  const int64_t emb = options.emb_dim, mlp = options.mlp_dim, experts = options.experts;
  if (experts < 1 || mlp < 1) ThrowUsage("{}: {} experts of width {}", builder.path(), experts, mlp);
  const Builder own = builder.Child(name);
  if (options.router_bias) bias_ = own.Child("gate").Make("bias", {experts}, Init::Zeros());
  wi_0_ = own.Make("wi_0", {experts, emb, mlp}, DenseInit({emb}, options.init_scale));
  wi_1_ = own.Make("wi_1", {experts, emb, mlp}, DenseInit({emb}, options.init_scale));
  wo_ = own.Make("wo", {experts, mlp, emb}, DenseInit({mlp}, options.init_scale));
}

ops::Var MoeBlock::operator()(ops::Context& context, const ops::Var& x) const {
  const ops::Scope scope(context, name_);
  const ops::Var logits = gate_(context, x);
  const int64_t tokens = x.value.size() / options_.emb_dim;
  const ops::Var rows = ops::Reshape(context, logits, {tokens, options_.experts});
  const Tensor bias = bias_ == nullptr ? Tensor() : bias_->tensor();
  const ops::Routing routing = ops::RouteTokens(context, rows, bias, options_.router);
  Report(context, logits, routing);
  if (options_.sparse) return Sparse(context, x, routing);
  return options_.capacity_factor > 0 ? Seated(context, x, routing) : Dense(context, x, routing);
}

ops::Var MoeBlock::Sparse(ops::Context& context, const ops::Var& x, const ops::Routing& routing) const {
  const int64_t tokens = routing.expert.dim(0);
  const ops::OpKind op = options_.gmm ? ops::OpKind::kGmm : ops::OpKind::kRaggedDot;
  const auto grouped = [&](const ops::Var& lhs, const ops::Parameter& weight, std::string_view save_name) {
    return ops::RaggedDot(context, ops::Activation(lhs), ops::Weight(context, weight, x.dtype()), routing.group_sizes,
                          op, save_name);
  };
  const ops::Var sorted = ops::DispatchRows(context, ops::Reshape(context, x, {tokens, options_.emb_dim}), routing);
  const ops::Var gate = grouped(sorted, *wi_0_, "moe_mlpwi_0"), up = grouped(sorted, *wi_1_, "moe_mlpwi_1");
  const ops::Var hidden = ops::Gate(context, gate, up, {ops::ActivationByName(options_.activation)});
  const ops::Var out = ops::CollectRows(context, grouped(hidden, *wo_, "moe_mlpwo"), routing);
  return ops::Reshape(context, ops::CombineExperts(context, out, routing.weight), x.shape());
}

ops::Var MoeBlock::Dense(ops::Context& context, const ops::Var& x, const ops::Routing& routing) const {
  const auto each = [&](std::string_view equation, const ops::Var& first, const ops::Parameter& weight,
                        std::string_view save_name) {
    return ops::Einsum(context, equation, ops::Activation(first), ops::Weight(context, weight, x.dtype()), save_name);
  };
  const ops::Var gate = each("BSM,EMH->BSEH", x, *wi_0_, "moe_mlpwi_0");
  const ops::Var up = each("BSM,EMH->BSEH", x, *wi_1_, "moe_mlpwi_1");
  const ops::Var hidden = ops::Gate(context, gate, up, {ops::ActivationByName(options_.activation)});
  const ops::Var out = each("BSEH,EHM->BSEM", hidden, *wo_, "moe_mlpwo");
  const ops::Var spread = ops::SpreadWeights(context, routing, options_.experts);
  const ops::Var weight = ops::Reshape(context, spread, {x.shape()[0], x.shape()[1], options_.experts});
  // Summed in f32 whatever the type of the computation.
  const ops::Var sum = ops::Einsum(context, "BSEM,BSE->BSM", ops::Activation(out), ops::Activation(weight));
  return ops::Cast(context, sum, x.dtype());
}

int64_t MoeBlock::Capacity(int64_t length) const {
  const int64_t choices = length * options_.router.top_k, share = (choices + options_.experts - 1) / options_.experts;
  // At least the factor itself, and one seat: a row may have fewer choices than there are experts.
  const double seats = std::max(static_cast<double>(share) * options_.capacity_factor, options_.capacity_factor);
  return std::max<int64_t>(1, static_cast<int64_t>(seats));
}

ops::Var MoeBlock::Seated(ops::Context& context, const ops::Var& x, const ops::Routing& routing) const {
  if (context.rows != nullptr && context.rows->kv != nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: experts of limited capacity drop tokens by the others of their row, which a cache "
                            "does not hold",
                            context.path()),
                "capacity_factor=-1 sends every token to all its experts");
  }
  const ops::Seats seats = ops::SeatTokens(context, routing, x.shape()[0], options_.experts, Capacity(x.shape()[1]));
  const auto each = [&](std::string_view equation, const ops::Var& first, const ops::Parameter& weight,
                        std::string_view save_name) {
    return ops::Einsum(context, equation, ops::Activation(first), ops::Weight(context, weight, x.dtype()), save_name);
  };
  const ops::Var taken = ops::Cast(context, ops::Var(seats.taken), x.dtype());
  const ops::Var seated = ops::Einsum(context, "BSM,BSEC->EBCM", ops::Activation(x), ops::Activation(taken));
  const ops::Var gate = each("EBCM,EMH->EBCH", seated, *wi_0_, "moe_mlpwi_0");
  const ops::Var up = each("EBCM,EMH->EBCH", seated, *wi_1_, "moe_mlpwi_1");
  const ops::Var hidden = ops::Gate(context, gate, up, {ops::ActivationByName(options_.activation)});
  const ops::Var out = each("EBCH,EHM->EBCM", hidden, *wo_, "moe_mlpwo");
  const ops::Var sum = ops::Einsum(context, "EBCM,BSEC->BSM", ops::Activation(out), ops::Activation(seats.weight));
  return ops::Cast(context, sum, x.dtype());
}

void MoeBlock::Report(ops::Context& context, const ops::Var& logits, const ops::Routing& routing) const {
  if (context.aux == nullptr || routing.group_sizes.is_meta()) return;
  if (options_.balance_loss) {
    const auto count = static_cast<double>(options_.experts);
    const ops::Var wide = ops::Cast(context, logits, DType::kF32);
    context.aux->load_balance.push_back(
        ops::BalanceLoss(context, wide, routing.expert, options_.router.score, count * count));
  }
  const std::vector<int32_t> sizes = routing.group_sizes.ToVector<int32_t>();
  context.aux->loads.push_back({context.path(), {sizes.begin(), sizes.end()}});
}

}  // namespace octavo::nn
