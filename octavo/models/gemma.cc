// Gemma: the block of Llama with a gelu gate and a tied head, and norms under other names. The reference folds the
// factor sqrt(emb_dim) of the embedding, the 1 of the norms' scales and the scaling of queries into the weights, as for
// gemma2.
//
//   x = x + attention(norm(x));  x = x + mlp(norm(x))
#include <deque>
#include <string>

#include "octavo/models/decoder.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"

namespace octavo::models {
namespace {

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : attention_norm(
            nn::Norm::Rms(at, "pre_self_attention_norm", config.emb_dim, config.normalization_layer_epsilon)),
        attention(at, "self_attention", AttentionOptionsOf(config), rope),
        mlp_norm(nn::Norm::Rms(at, "pre_ffw_norm", config.emb_dim, config.normalization_layer_epsilon)),
        mlp(at, "mlp", MlpOptionsOf(config)) {}

  nn::Norm attention_norm;
  nn::Attention attention;
  nn::Norm mlp_norm;
  nn::Mlp mlp;
};

class Gemma : public Decoder {
 public:
  explicit Gemma(const ModelConfig& config) : Decoder(config) {
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

std::unique_ptr<Model> MakeGemma(const ModelConfig& config) { return std::make_unique<Gemma>(config); }

}  // namespace octavo::models
