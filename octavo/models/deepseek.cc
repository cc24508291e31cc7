// DeepSeek V2 and V3: latent attention, a few dense layers, then layers with many small experts of which a token gets
// some, and shared experts that every token gets.
//
//   x = x + mla(norm(x));  x = x + ffn(norm(x))      ffn: an MLP, or experts + shared experts
//
// V2 scores experts by softmax. V3 scores by sigmoid, adds a bias to the choice (which balancing moves, not the
// gradient), and divides the chosen scores by their sum. Positions are YaRN's; when it stretches them the scores are
// sharpened by mscale. Training may add layers that predict further tokens (mtp_num_layers).
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <string>

#include "octavo/base/error.h"
#include "octavo/models/decoder.h"
#include "octavo/models/experts.h"
#include "octavo/nn/mla.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/slice.h"

namespace octavo::models {
namespace {

nn::MlaOptions MlaOptionsOf(const ModelConfig& config) {
  nn::MlaOptions options;
  options.emb_dim = config.emb_dim;
  options.heads = config.num_query_heads;
  options.q_lora_rank = config.q_lora_rank;
  options.kv_lora_rank = config.kv_lora_rank;
  options.nope_dim = config.qk_nope_head_dim;
  options.rope_dim = config.qk_rope_head_dim;
  options.v_dim = config.v_head_dim;
  options.epsilon = config.normalization_layer_epsilon;
  options.interleaved = RopeLayoutOf(config) == kernels::RopeLayout::kPairs;
  options.init_scale = config.dense_init_scale;
  options.scale = 1 / std::sqrt(static_cast<double>(options.nope_dim + options.rope_dim));
  if (config.max_position_embeddings > config.original_max_position_embeddings) {
    const double sharper = kernels::YarnMscale(config.rope_factor, config.mscale);
    options.scale *= sharper * sharper;
  }
  return options;
}

nn::MlpOptions SharedExpertsOf(const ModelConfig& config) {
  nn::MlpOptions options = MlpOptionsOf(config);
  options.mlp_dim = config.shared_experts * config.moe_mlp_dim;
  return options;
}

// DeepSeekMoeBlock_0: the experts a token chose, and those that all tokens share.
struct Experts {
  Experts(const nn::Builder& at, const ModelConfig& config) : routed(at, "MoeBlock_0", MoeOptionsOf(config)) {
    if (config.shared_experts > 0) shared.emplace(at, "shared_experts", SharedExpertsOf(config));
  }
  ops::Var operator()(ops::Context& context, const ops::Var& x) const {
    const ops::Scope scope(context, kName);
    const ops::Var chosen = routed(context, x);
    return shared ? ops::Add(context, chosen, (*shared)(context, x)) : chosen;
  }

  static constexpr const char* kName = "DeepSeekMoeBlock_0";
  nn::MoeBlock routed;
  std::optional<nn::Mlp> shared;
};

struct Block {
  Block(const nn::Builder& at, const ModelConfig& config, bool dense, const std::shared_ptr<ops::RopeTable>& rope)
      : attention_norm(RmsNormOf(at, "pre_self_attention_layer_norm", config)),
        attention(at, "self_attention", MlaOptionsOf(config), rope),
        ffn_norm(RmsNormOf(at, "post_self_attention_layer_norm", config)) {
    if (dense) {
      mlp.emplace(at, "mlp", MlpOptionsOf(config));
    } else {
      experts.emplace(at.Child(Experts::kName), config);
    }
  }

  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows, double dropout) const {
    const ops::Var attended = ops::Add(context, x, attention(context, attention_norm(context, x), rows));
    const ops::Var normed = ffn_norm(context, attended);
    const ops::Var added = mlp ? (*mlp)(context, normed) : (*experts)(context, normed);
    return ops::Dropout(context, ops::Add(context, attended, added), dropout, "layer_dropout");
  }

  nn::Norm attention_norm;
  nn::MlaAttention attention;
  nn::Norm ffn_norm;
  std::optional<nn::Mlp> mlp;
  std::optional<Experts> experts;
};

// One layer of multi-token prediction: block(projection([norm(embedded) | norm(hidden)])), with experts.
struct FurtherToken {
  FurtherToken(const nn::Builder& mtp, int k, const ModelConfig& config, const std::shared_ptr<ops::RopeTable>& rope)
      : number(std::to_string(k)),
        embedding_norm(MakeNorm(mtp, config, "embedding_norm")),
        hidden_norm(MakeNorm(mtp, config, "hidden_state_norm")),
        projection(Place(mtp), Name("projection"), {2 * config.emb_dim}, {config.emb_dim},
                   nn::DenseInit({2 * config.emb_dim})),
        block(Place(mtp).Child(Name("transformer_layer")), config, false, rope) {}

  ops::Var operator()(ops::Context& context, const ops::Var& hidden, const ops::Var& embedded, const ops::Rows& rows,
                      double dropout) const {
    const ops::Scope layer(context, "mtp_layer_" + number);
    const ops::Var first = embedding_norm(context, embedded), second = hidden_norm(context, hidden);
    const std::array<ops::Var, 2> both = {first, second};
    const ops::Var x = projection(context, ops::Concat(context, both, 2));
    const ops::Scope inside(context, Name("transformer_layer"));
    return block(context, x, rows, dropout);
  }

  std::string Name(const char* what) const { return "mtp_" + number + "_" + what; }
  nn::Builder Place(const nn::Builder& mtp) const { return mtp.Child("mtp_layer_" + number); }
  nn::Norm MakeNorm(const nn::Builder& mtp, const ModelConfig& config, const char* what) const {
    return RmsNormOf(Place(mtp), Name(what), config);
  }

  std::string number;
  nn::Norm embedding_norm, hidden_norm;
  nn::Linear projection;
  Block block;
};

class DeepSeek : public Decoder {
 public:
  explicit DeepSeek(const ModelConfig& config) : Decoder(config) {
    if (config.attention_type != "mla") {
      ThrowUsage("decoder_block deepseek: attention_type is {}, expected mla", config.attention_type);
    }
    if (config.routed_score_func.empty()) {
      ThrowUsage("decoder_block deepseek: routed_score_func is empty, expected softmax (v2) or sigmoid (v3)");
    }
    MakeEmbedding();
    const auto rope = std::make_shared<ops::RopeTable>(RopeConfigOf(config, config.qk_rope_head_dim));
    for (int i = 0; i < layers(); ++i) {
      blocks_.emplace_back(DecoderBuilder().Child(LayerName(i)), config, IsDense(i), rope);
    }
    MakeHead(NormKind::kRms);
    for (int k = 1; k <= mtp_layers(); ++k) further_.emplace_back(Root().Child("mtp_block"), k, config, rope);
  }

  ops::Var Layer(ops::Context& context, int index, const ops::Var& x, const ops::Rows& rows) override {
    const ops::Scope decoder(context, "decoder"), layer(context, LayerName(index));
    return blocks_[static_cast<size_t>(index)](context, x, rows, DropoutRate());
  }

  int mtp_layers() const override { return static_cast<int>(config().mtp_num_layers); }
  ops::Var MtpLayer(ops::Context& context, int k, const ops::Var& hidden, const ops::Var& embedded,
                    const ops::Rows& rows) override {
    const ops::Scope scope(context, "mtp_block");
    return further_[static_cast<size_t>(k - 1)](context, hidden, embedded, rows, DropoutRate());
  }

 private:
  bool IsDense(int index) const { return index < config().first_num_dense_layers; }
  // The two stacks are counted apart.
  std::string LayerName(int index) const {
    if (IsDense(index)) return "dense_layers_" + std::to_string(index);
    return "moe_layers_" + std::to_string(index - static_cast<int>(config().first_num_dense_layers));
  }

  std::deque<Block> blocks_;
  std::deque<FurtherToken> further_;
};

}  // namespace

std::unique_ptr<Model> MakeDeepSeek(const ModelConfig& config) { return std::make_unique<DeepSeek>(config); }

}  // namespace octavo::models
