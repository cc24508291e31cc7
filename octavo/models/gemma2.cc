// Gemma 2: layers in pairs, one that sees a window of the last tokens and one that sees everything; norms before and
// after each branch; capped scores and logits; the head is the embedding table. The reference folds the factor
// sqrt(emb_dim) of the embedding, the 1 of the norms' scales and the scaling of queries into the weights.
//
//   x = x + norm(attention(norm(x)));  x = x + norm(mlp(norm(x)))      for the local half, then for the global one
#include <array>
#include <deque>
#include <string>

#include "octavo/base/error.h"
#include "octavo/models/decoder.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"

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
      : before_attention(MakeNorm(at, config, "pre_self_attention_norm" + end)),
        attention(at, "self_attention" + end, Windowed(config, window), rope),
        after_attention(MakeNorm(at, config, "post_self_attention_norm" + end)),
        before_mlp(MakeNorm(at, config, "pre_ffw_norm" + end)),
        mlp(at, "mlp" + end, MlpOptionsOf(config)),
        after_mlp(MakeNorm(at, config, "post_ffw_norm" + end)) {}

  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
    const ops::Var attended = after_attention(context, attention(context, before_attention(context, x), rows));
    const ops::Var middle = ops::Add(context, x, attended);
    return ops::Add(context, middle, after_mlp(context, mlp(context, before_mlp(context, middle))));
  }

  static nn::Norm MakeNorm(const nn::Builder& at, const ModelConfig& config, const std::string& name) {
    return nn::Norm::Rms(at, name, config.emb_dim, config.normalization_layer_epsilon);
  }

  nn::Norm before_attention;
  nn::Attention attention;
  nn::Norm after_attention, before_mlp;
  nn::Mlp mlp;
  nn::Norm after_mlp;
};

class Gemma2 : public Decoder {
 public:
  explicit Gemma2(const ModelConfig& config) : Decoder(config) {
    if (!config.use_post_attn_norm || !config.use_post_ffw_norm) {
      ThrowUsage("decoder_block gemma2: expected use_post_attn_norm and use_post_ffw_norm");
    }
    MakeEmbedding();
    const auto rope = std::make_shared<ops::RopeTable>(RopeConfigOf(config, config.head_dim));
    for (int64_t i = 0; i < config.num_decoder_layers; ++i) {
      const nn::Builder at = DecoderBuilder().Child("layers_" + std::to_string(i));
      local_.emplace_back(at, config, "_local", config.sliding_window_size, rope);
      global_.emplace_back(at, config, "_global", 0, rope);
    }
    MakeHead(NormKind::kRms);
  }

  ops::Var Layer(ops::Context& context, int index, const ops::Var& x, const ops::Rows& rows) override {
    const ops::Scope decoder(context, "decoder"), layer(context, "layers_" + std::to_string(index));
    const auto at = static_cast<size_t>(index);
    const ops::Var out = global_[at](context, local_[at](context, x, rows), rows);
    return ops::Dropout(context, out, DropoutRate(), "layer_dropout");
  }

 private:
  std::deque<Half> local_, global_;  // one of each per pair
};

}  // namespace

std::unique_ptr<Model> MakeGemma2(const ModelConfig& config) { return std::make_unique<Gemma2>(config); }

}  // namespace octavo::models
