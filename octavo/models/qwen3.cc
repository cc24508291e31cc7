// Qwen3: the block of Llama with queries and keys normalized per head before they are turned, and scores divided by
// sqrt(head_dim). The mixture form has experts in place of the MLP, weighed by the softmax of the chosen logits.
//
//   x = x + attention(norm(x));  x = x + ffn(norm(x))
#include <cmath>
#include <deque>
#include <optional>
#include <string>

#include "octavo/models/decoder.h"
#include "octavo/models/experts.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"

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
      : attention_norm(
            nn::Norm::Rms(at, "pre_self_attention_layer_norm", config.emb_dim, config.normalization_layer_epsilon)),
        attention(at, "self_attention", ScaledAttention(config), rope),
        ffn_norm(
            nn::Norm::Rms(at, "post_self_attention_layer_norm", config.emb_dim, config.normalization_layer_epsilon)) {
    if (config.num_experts > 1) {
      experts.emplace(at, "moe_block", MoeOptionsOf(config));
    } else {
      mlp.emplace(at, "mlp", MlpOptionsOf(config));
    }
  }

  nn::Norm attention_norm;
  nn::Attention attention;
  nn::Norm ffn_norm;
  std::optional<nn::Mlp> mlp;
  std::optional<nn::MoeBlock> experts;
};

class Qwen3 : public Decoder {
 public:
  explicit Qwen3(const ModelConfig& config) : Decoder(config) {
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
    const ops::Var normed = block.ffn_norm(context, attended);
    const ops::Var added = block.mlp ? (*block.mlp)(context, normed) : (*block.experts)(context, normed);
    return ops::Dropout(context, ops::Add(context, attended, added), DropoutRate(), "layer_dropout");
  }

 private:
  std::deque<Block> blocks_;
};

}  // namespace

std::unique_ptr<Model> MakeQwen3(const ModelConfig& config) { return std::make_unique<Qwen3>(config); }

}  // namespace octavo::models
