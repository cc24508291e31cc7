// Qwen3: the block of Llama with queries and keys normalized per head before they are turned, and scores divided by
// sqrt(head_dim). The mixture form has experts in place of the MLP, weighed by the softmax of the chosen logits.
//
//   x = x + attention(norm(x));  x = x + ffn(norm(x))
#include <cmath>
#include <memory>
#include <optional>

#include "octavo/models/block_decoder.h"
#include "octavo/models/experts.h"
#include "octavo/ops/add.h"

namespace octavo::models {
namespace {

nn::AttentionOptions ScaledAttention(const ModelConfig& config) {
  nn::AttentionOptions options = AttentionOptionsOf(config);
  options.scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  options.query_init_by_depth = false;
  return options;
}

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : attention_norm(RmsNormOf(at, "pre_self_attention_layer_norm", config)),
        attention(at, "self_attention", ScaledAttention(config), rope),
        ffn_norm(RmsNormOf(at, "post_self_attention_layer_norm", config)) {
    if (config.num_experts > 1) {
      experts.emplace(at, "moe_block", MoeOptionsOf(config));
    } else {
      mlp.emplace(at, "mlp", MlpOptionsOf(config));
    }
  }

  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
    const ops::Var attended = ops::Add(context, x, attention(context, attention_norm(context, x), rows));
    const ops::Var normed = ffn_norm(context, attended);
    return ops::Add(context, attended, mlp ? (*mlp)(context, normed) : (*experts)(context, normed));
  }

  nn::Norm attention_norm;
  nn::Attention attention;
  nn::Norm ffn_norm;
  std::optional<nn::Mlp> mlp;
  std::optional<nn::MoeBlock> experts;
};

}  // namespace

std::unique_ptr<Model> MakeQwen3(const ModelConfig& config) { return std::make_unique<BlockDecoder<Block>>(config); }

}  // namespace octavo::models
