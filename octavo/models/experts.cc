#include "octavo/models/experts.h"

#include "octavo/base/error.h"

namespace octavo::models {
namespace {

ops::RouterOptions RouterOptionsOf(const ModelConfig& config) {
  ops::RouterOptions router;
  router.top_k = config.num_experts_per_tok;
  router.scale = config.routed_scaling_factor;
  if (config.n_routing_groups > 0) {
    router.groups = config.n_routing_groups;
    router.top_groups = config.topk_routing_group;
  }
  if (config.routed_score_func.empty()) {
    router.score = ops::RouterScore::kSoftmaxOfTopK;
    router.scale = 1;
  } else if (config.routed_score_func == "softmax") {
    router.score = ops::RouterScore::kSoftmax;
    router.normalize = config.norm_topk_prob;
  } else if (config.routed_score_func == "sigmoid") {
    router.score = ops::RouterScore::kSigmoid;
    router.normalize = true;
  } else {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("routed_score_func={}: is not a score that experts are chosen by", config.routed_score_func),
        "known: softmax sigmoid, or empty for the softmax of the chosen");
  }
  return router;
}

}  // namespace

nn::MoeOptions MoeOptionsOf(const ModelConfig& config) {
  if (config.capacity_factor > 0 && config.sparse_matmul) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("capacity_factor={}: grouped products (sparse_matmul) drop no token", config.capacity_factor),
        "capacity_factor=-1 sends every token to all its experts, sparse_matmul=false limits them");
  }
  if (config.mlp_activations.size() != 2 || config.mlp_activations[1] != "linear") {
    ThrowUsage("mlp_activations: experts are gated, expected an activation and linear");
  }
  nn::MoeOptions options;
  options.emb_dim = config.emb_dim;
  options.mlp_dim = config.moe_mlp_dim > 0 ? config.moe_mlp_dim : config.mlp_dim;
  options.experts = config.num_experts;
  options.router = RouterOptionsOf(config);
  options.router_bias = config.routed_bias;
  options.sparse = config.sparse_matmul;
  options.gmm = config.megablox;
  options.capacity_factor = config.capacity_factor;
  options.balance_loss = config.load_balance_loss_weight > 0;
  options.activation = config.mlp_activations[0];
  options.init_scale = config.dense_init_scale;
  return options;
}

}  // namespace octavo::models
