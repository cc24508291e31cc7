// Llama 2 and 3, and Mistral, which is the same block under another name: RMS norms, rotary positions, grouped heads,
// a gated MLP. Scores are not divided by sqrt(head_dim): the query kernels start out that much smaller instead. Qwen 2
// is the same block with biases on queries, keys and values (attention_bias), and does divide its scores.
//
//   x = x + attention(norm(x));  x = x + mlp(norm(x))
#include <cmath>
#include <deque>
#include <string>

#include "octavo/base/error.h"
#include "octavo/models/decoder.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"

namespace octavo::models {
namespace {

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : attention_norm(
            nn::Norm::Rms(at, "pre_self_attention_layer_norm", config.emb_dim, config.normalization_layer_epsilon)),
        attention(at, "self_attention", AttentionOptionsOf(config), rope),
        mlp_norm(
            nn::Norm::Rms(at, "post_self_attention_layer_norm", config.emb_dim, config.normalization_layer_epsilon)),
        mlp(at, "mlp", MlpOptionsOf(config)) {}

  nn::Norm attention_norm;
  nn::Attention attention;
  nn::Norm mlp_norm;
  nn::Mlp mlp;
};

class Llama : public Decoder {
 public:
  explicit Llama(const ModelConfig& config) : Decoder(config) {
    if (config.attention_type == "mla")
      ThrowUsage("decoder_block {}: attention_type mla is deepseek's", config.decoder_block);
    MakeEmbedding();
    const auto rope = std::make_shared<ops::RopeTable>(RopeConfigOf(config, config.head_dim));
    for (int64_t i = 0; i < config.num_decoder_layers; ++i) {
      blocks_.emplace_back(DecoderBuilder().Child("layers_" + std::to_string(i)), config, rope);
    }
    MakeHead(NormKind::kRms);
  }

  ops::Var Layer(ops::Context& context, int index, const ops::Var& x, const ops::Rows& rows) override {
    const ops::Scope decoder(context, "decoder"), layer(context, "layers_" + std::to_string(index));
    const Block& block = blocks_[static_cast<size_t>(index)];
    const ops::Var attended = ops::Add(context, x, block.attention(context, block.attention_norm(context, x), rows));
    const ops::Var out = ops::Add(context, attended, block.mlp(context, block.mlp_norm(context, attended)));
    return ops::Dropout(context, out, DropoutRate(), "layer_dropout");
  }

 private:
  std::deque<Block> blocks_;
};

}  // namespace

std::unique_ptr<Model> MakeLlama(const ModelConfig& config) { return std::make_unique<Llama>(config); }

std::unique_ptr<Model> MakeQwen2(const ModelConfig& config) {
  ModelConfig scaled = config;
  scaled.query_pre_attn_scalar = 1 / std::sqrt(static_cast<double>(config.head_dim));
  return MakeLlama(scaled);
}

}  // namespace octavo::models
