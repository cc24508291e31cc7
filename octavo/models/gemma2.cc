// Gemma 2: layers in pairs, one that sees a window of the last tokens and one that sees everything; norms before and
// after each branch; capped scores and logits; the head is the embedding table. The reference folds the factor
// sqrt(emb_dim) of the embedding, the 1 of the norms' scales and the scaling of queries into the weights.
//
//   x = x + norm(attention(norm(x)));  x = x + norm(mlp(norm(x)))      for the local half, then for the global one
#include <array>
#include <memory>
#include <string>

#include "octavo/base/error.h"
#include "octavo/models/block_decoder.h"
#include "octavo/ops/add.h"

namespace octavo::models {
namespace {

nn::AttentionOptions Windowed(const ModelConfig& config, int64_t window) {
  nn::AttentionOptions options = AttentionOptionsOf(config);
  options.window = window;
  return options;
}

// One of the two halves; its modules' names end in its own.
struct Half {
  Half(const nn::Builder& at, const ModelConfig& config, const std::string& end, int64_t window,
       const std::shared_ptr<ops::RopeTable>& rope)
      : before_attention(RmsNormOf(at, "pre_self_attention_norm" + end, config)),
        attention(at, "self_attention" + end, Windowed(config, window), rope),
        after_attention(RmsNormOf(at, "post_self_attention_norm" + end, config)),
        before_mlp(RmsNormOf(at, "pre_ffw_norm" + end, config)),
        mlp(at, "mlp" + end, MlpOptionsOf(config)),
        after_mlp(RmsNormOf(at, "post_ffw_norm" + end, config)) {}

  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
    const ops::Var attended = after_attention(context, attention(context, before_attention(context, x), rows));
    const ops::Var middle = ops::Add(context, x, attended);
    return ops::Add(context, middle, after_mlp(context, mlp(context, before_mlp(context, middle))));
  }

  nn::Norm before_attention;
  nn::Attention attention;
  nn::Norm after_attention, before_mlp;
  nn::Mlp mlp;
  nn::Norm after_mlp;
};

// A layer of the model: a half that sees a window, then one that sees everything.
struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : local(at, config, "_local", config.sliding_window_size, rope), global(at, config, "_global", 0, rope) {}

  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
    return global(context, local(context, x, rows), rows);
  }

  Half local, global;
};

}  // namespace

std::unique_ptr<Model> MakeGemma2(const ModelConfig& config) {
  if (!config.use_post_attn_norm || !config.use_post_ffw_norm) {
    ThrowUsage("decoder_block gemma2: expected use_post_attn_norm and use_post_ffw_norm");
  }
  return std::make_unique<BlockDecoder<Block>>(config);
}

}  // namespace octavo::models
