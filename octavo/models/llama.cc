// Llama 2 and 3, and Mistral, which is the same block under another name: RMS norms, rotary positions, grouped heads,
// a gated MLP. Scores are not divided by sqrt(head_dim): the query kernels start out that much smaller instead. Qwen 2
// is the same block with biases on queries, keys and values (attention_bias), and does divide its scores.
//
//   x = x + attention(norm(x));  x = x + mlp(norm(x))
#include <cmath>
#include <memory>

#include "octavo/base/error.h"
#include "octavo/models/block_decoder.h"
#include "octavo/ops/add.h"

namespace octavo::models {
namespace {

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : attention_norm(RmsNormOf(at, "pre_self_attention_layer_norm", config)),
        attention(at, "self_attention", AttentionOptionsOf(config), rope),
        mlp_norm(RmsNormOf(at, "post_self_attention_layer_norm", config)),
        mlp(at, "mlp", MlpOptionsOf(config)) {}

  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
    const ops::Var attended = ops::Add(context, x, attention(context, attention_norm(context, x), rows));
    return ops::Add(context, attended, mlp(context, mlp_norm(context, attended)));
  }

  nn::Norm attention_norm;
  nn::Attention attention;
  nn::Norm mlp_norm;
  nn::Mlp mlp;
};

}  // namespace

std::unique_ptr<Model> MakeLlama(const ModelConfig& config) {
  if (config.attention_type == "mla") {
    ThrowUsage("decoder_block {}: attention_type mla is deepseek's", config.decoder_block);
  }
  return std::make_unique<BlockDecoder<Block>>(config);
}

std::unique_ptr<Model> MakeQwen2(const ModelConfig& config) {
  ModelConfig scaled = config;
  scaled.query_pre_attn_scalar = 1 / std::sqrt(static_cast<double>(config.head_dim));
  return MakeLlama(scaled);
}

}  // namespace octavo::models
