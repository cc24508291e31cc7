// GPT-3 as MaxText has it: trained positions, layer norms whose scale is stored less one, one fused projection of
// queries, keys and values with biases, an MLP with a norm of its own, and a head tied to the token table.
//
//   x = x + attention(norm(x));  x = x + mlp(x)
#include <cmath>
#include <deque>
#include <string>

#include "octavo/models/decoder.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"

namespace octavo::models {
namespace {

nn::AttentionOptions Gpt3Attention(const ModelConfig& config) {
  nn::AttentionOptions options = AttentionOptionsOf(config);
  options.layout = config.fused_qkv ? nn::QkvLayout::kFusedThree : nn::QkvLayout::kSeparate;
  options.bias = options.out_bias = true;
  options.law = nn::Init::Law::kNormal;
  options.query_init_by_depth = false;  // queries are divided by sqrt(head_dim) in the forward pass instead
  options.scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  return options;
}

nn::MlpOptions Gpt3Mlp(const ModelConfig& config) {
  nn::MlpOptions options = MlpOptionsOf(config);
  options.bias = true;
  options.layer_norm_epsilon = config.normalization_layer_epsilon;
  return options;
}

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config)
      : norm(nn::Norm::Layer(at, "pre_self_attention_norm", config.emb_dim, config.normalization_layer_epsilon)),
        attention(at, "self_attention", Gpt3Attention(config), nullptr),
        mlp(at, "mlp", Gpt3Mlp(config)) {}

  nn::Norm norm;
  nn::Attention attention;
  nn::Mlp mlp;
};

class Gpt3 : public Decoder {
 public:
  explicit Gpt3(const ModelConfig& config) : Decoder(config) {
    MakeEmbedding();
    for (int64_t i = 0; i < config.num_decoder_layers; ++i) {
      blocks_.emplace_back(DecoderBuilder().Child("layers_" + std::to_string(i)), config);
    }
    MakeHead(NormKind::kLayer);
  }

  ops::Var Layer(ops::Context& context, int index, const ops::Var& x, const ops::Rows& rows) override {
    const ops::Scope decoder(context, "decoder"), layer(context, "layers_" + std::to_string(index));
    const Block& block = blocks_[static_cast<size_t>(index)];
    const ops::Var attended = ops::Add(context, x, block.attention(context, block.norm(context, x), rows));
    const ops::Var out = ops::Add(context, attended, block.mlp(context, attended));
    return ops::Dropout(context, out, DropoutRate(), "layer_dropout");
  }

 private:
  std::deque<Block> blocks_;
};

}  // namespace

std::unique_ptr<Model> MakeGpt3(const ModelConfig& config) { return std::make_unique<Gpt3>(config); }

}  // namespace octavo::models
