// Mixtral: the block of Llama with experts in place of the MLP. The router's logits choose the best experts of a token,
// and the softmax of the chosen logits weighs them.
//
//   x = x + attention(norm(x));  x = x + experts(norm(x))
#include <memory>

#include "octavo/models/block_decoder.h"
#include "octavo/models/experts.h"
#include "octavo/ops/add.h"

namespace octavo::models {
namespace {

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : attention_norm(RmsNormOf(at, "pre_self_attention_layer_norm", config)),
        attention(at, "self_attention", AttentionOptionsOf(config), rope),
        experts_norm(RmsNormOf(at, "post_self_attention_layer_norm", config)),
        experts(at, "MoeBlock_0", MoeOptionsOf(config)) {}

  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
    const ops::Var attended = ops::Add(context, x, attention(context, attention_norm(context, x), rows));
    return ops::Add(context, attended, experts(context, experts_norm(context, attended)));
  }

  nn::Norm attention_norm;
  nn::Attention attention;
  nn::Norm experts_norm;
  nn::MoeBlock experts;
};

}  // namespace

std::unique_ptr<Model> MakeMixtral(const ModelConfig& config) { return std::make_unique<BlockDecoder<Block>>(config); }

}  // namespace octavo::models
