// Gemma: the block of Llama with a gelu gate and a tied head, and norms under other names. The reference folds the
// factor sqrt(emb_dim) of the embedding, the 1 of the norms' scales and the scaling of queries into the weights, as for
// gemma2.
//
//   x = x + attention(norm(x));  x = x + mlp(norm(x))
#include <memory>

#include "octavo/models/block_decoder.h"
#include "octavo/ops/add.h"

namespace octavo::models {
namespace {

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : attention_norm(RmsNormOf(at, "pre_self_attention_norm", config)),
        attention(at, "self_attention", AttentionOptionsOf(config), rope),
        mlp_norm(RmsNormOf(at, "pre_ffw_norm", config)),
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

std::unique_ptr<Model> MakeGemma(const ModelConfig& config) { return std::make_unique<BlockDecoder<Block>>(config); }

}  // namespace octavo::models
