// A mixture of experts, MaxText's MoeBlock_0: a router (`gate`), experts with gated MLPs (`wi_0`, `wi_1`, `wo`, one
// tensor each for all experts), and the weighted sum of a token's experts. Used by models with experts.
//
// Sparse: rows sorted by expert, three grouped products (ragged_dot, or gmm), back, and summed in router order. Dense:
// every expert on every token by einsum; the same result for more work, and what rules about einsum mean. Neither drops
// a token. Dense with a capacity factor: an expert takes so many tokens of a row of the batch and no more (the first
// ones), all products are einsums. Which tokens are dropped depends on the row, so it is for training and evaluation
// of whole rows, and refused where keys and values come from a cache.
#pragma once

#include <string>
#include <string_view>

#include "octavo/nn/linear.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/moe.h"

namespace octavo::nn {

struct MoeOptions {
  int64_t emb_dim = 0, mlp_dim = 0, experts = 0;
  ops::RouterOptions router;
  bool router_bias = false;     // gate/bias: part of the choice, moved by loss-free balancing, no gradient
  bool sparse = true;           // sparse_matmul
  bool gmm = false;             // megablox: the grouped products are `gmm` sites
  double capacity_factor = -1;  // > 0, dense only: seats of an expert = factor * (even share of a row's choices)
  bool balance_loss = false;    // leaves a load-balance loss
  std::string activation = "silu";
  double init_scale = 1;
};

class MoeBlock {
 public:
  MoeBlock(const Builder& builder, std::string_view name, const MoeOptions& options);

  // x [B, T, E] -> [B, T, E]. Leaves the load-balance loss, if wanted, and the experts' loads in context.aux.
  ops::Var operator()(ops::Context& context, const ops::Var& x) const;

 private:
  ops::Var Sparse(ops::Context& context, const ops::Var& x, const ops::Routing& routing) const;
  ops::Var Dense(ops::Context& context, const ops::Var& x, const ops::Routing& routing) const;
  ops::Var Seated(ops::Context& context, const ops::Var& x, const ops::Routing& routing) const;
  int64_t Capacity(int64_t length) const;
  void Report(ops::Context& context, const ops::Var& logits, const ops::Routing& routing) const;

  std::string name_;
  MoeOptions options_;
  Linear gate_;
  ops::Parameter *bias_ = nullptr, *wi_0_, *wi_1_, *wo_;
};

}  // namespace octavo::nn
