#include "octavo/models/decoder.h"

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"

namespace octavo::models {

Decoder::Decoder(const ModelConfig& config) : Model(config) {}

void Decoder::MakeEmbedding() {
  const ModelConfig& c = config();
  tokens_.emplace(Root(), "token_embedder", c.vocab_size, c.emb_dim, c.use_iota_embed);
  if (c.trainable_position_size > 0) {
    positions_.emplace(DecoderBuilder(), "position_embedder", c.trainable_position_size, c.emb_dim, c.use_iota_embed);
  }
}

void Decoder::MakeHead(NormKind norm) {
  const ModelConfig& c = config();
  const double epsilon = c.normalization_layer_epsilon;
  norm_ = norm == NormKind::kLayer ? nn::Norm::Layer(DecoderBuilder(), "decoder_norm", c.emb_dim, epsilon)
                                   : nn::Norm::Rms(DecoderBuilder(), "decoder_norm", c.emb_dim, epsilon);
  if (c.logits_via_embedding) return;
  head_ = DecoderBuilder().Child("logits_dense").Make("kernel", {c.emb_dim, c.vocab_size}, nn::DenseInit({c.emb_dim}));
}

ops::Var Decoder::Embed(ops::Context& context, const Tensor& tokens, const ops::Rows& rows) {
  ops::Var x = (*tokens_)(context, tokens);
  const ops::Scope scope(context, "decoder");
  if (positions_) {
    const Tensor position = rows.position.Reshape({rows.batch, rows.length});
    x = ops::Add(context, x, (*positions_)(context, position));
  }
  return ops::Dropout(context, x, DropoutRate(), "embedding_dropout");
}

ops::Var Decoder::Norm(ops::Context& context, const ops::Var& x) {
  const ops::Scope scope(context, "decoder");
  return ops::Dropout(context, (*norm_)(context, x), DropoutRate(), "output_dropout");
}

const ops::Parameter& Decoder::Head() const { return head_ == nullptr ? tokens_->table() : *head_; }

ops::HeadOptions Decoder::HeadForm() const {
  ops::HeadOptions form;
  form.tied = head_ == nullptr;
  form.unrounded = config().logits_dot_in_fp32;
  if (form.tied && config().normalize_embedding_logits) {
    form.logit_scale = 1 / std::sqrt(static_cast<double>(config().emb_dim));
  }
  form.soft_cap = config().final_logits_soft_cap;
  return form;
}

ops::Var Decoder::Logits(ops::Context& context, const ops::Var& hidden) {
  const ops::Scope decoder(context, "decoder");
  if (head_ == nullptr) return ops::HeadLogits(context, hidden, Head(), HeadForm());
  const ops::Scope dense(context, "logits_dense");
  return ops::HeadLogits(context, hidden, Head(), HeadForm());
}

ops::Var Decoder::HeadLoss(ops::Context& context, const ops::Var& hidden, const Tensor& targets,
                           const Tensor& segmentation, const ops::LossSpec& spec, ops::LossSums* sums) {
  const ops::Scope decoder(context, "decoder");
  if (head_ == nullptr) {
    return ops::LmHeadLoss(context, hidden, Head(), HeadForm(), targets, segmentation, spec, sums);
  }
  const ops::Scope dense(context, "logits_dense");
  return ops::LmHeadLoss(context, hidden, Head(), HeadForm(), targets, segmentation, spec, sums);
}

kernels::RopeConfig RopeConfigOf(const ModelConfig& config, int64_t rotary_dim) {
  kernels::RopeConfig rope;
  rope.rotary_dim = rotary_dim;
  rope.min_timescale = config.rope_min_timescale;
  rope.max_timescale = config.rope_max_timescale;
  if (config.rope_type == "default") {
    if (config.rope_linear_scaling_factor != 1) {
      rope.scaling = kernels::RopeScaling::kLinear;
      rope.factor = config.rope_linear_scaling_factor;
    }
  } else if (config.rope_type == "llama3.1") {
    if (config.rope_use_scale) {
      rope.scaling = kernels::RopeScaling::kLlama3;
      rope.factor = config.llama3_factor;
      rope.low_freq_factor = config.llama3_low_freq_factor;
      rope.high_freq_factor = config.llama3_high_freq_factor;
      rope.original_positions = config.llama3_original_positions;
    }
  } else if (config.rope_type == "yarn") {
    rope.scaling = kernels::RopeScaling::kYarn;
    rope.factor = config.rope_factor;
    rope.original_positions = config.original_max_position_embeddings;
    rope.beta_fast = config.beta_fast;
    rope.beta_slow = config.beta_slow;
    rope.truncate = config.rope_truncate;
    if (config.rope_attention_scaling) rope.attention_factor = kernels::YarnMscale(config.rope_factor, 1);
  } else {
    throw Error(ErrorCode::kUsage, fmt::format("rope_type: {} is not known", config.rope_type),
                "known: default llama3.1 yarn");
  }
  return rope;
}

kernels::RopeLayout RopeLayoutOf(const ModelConfig& config) {
  // The reference's llama 3.1 rotation and its interleaved YaRN turn neighbours, the others the two halves.
  const bool pairs = config.rope_type == "llama3.1" || (config.rope_type == "yarn" && config.rope_interleave);
  return pairs ? kernels::RopeLayout::kPairs : kernels::RopeLayout::kHalves;
}

nn::MlpOptions MlpOptionsOf(const ModelConfig& config) {
  nn::MlpOptions options;
  options.emb_dim = config.emb_dim;
  options.mlp_dim = config.mlp_dim;
  options.activations = config.mlp_activations;
  options.activations_limit = config.mlp_activations_limit;
  options.fused = config.fused_mlp;
  options.bias = config.mlp_bias;
  options.dropout_rate = config.enable_dropout ? config.dropout_rate : 0;
  options.init_scale = config.dense_init_scale;
  return options;
}

nn::AttentionOptions AttentionOptionsOf(const ModelConfig& config) {
  nn::AttentionOptions options;
  options.emb_dim = config.emb_dim;
  options.query_heads = config.num_query_heads;
  options.kv_heads = config.num_kv_heads;
  options.head_dim = config.head_dim;
  options.layout = config.fused_qkv ? nn::QkvLayout::kFusedHeads : nn::QkvLayout::kSeparate;
  options.bias = config.attention_bias;
  options.init_scale = config.dense_init_scale;
  options.qk_norm = config.use_qk_norm;
  options.qk_norm_with_scale = config.qk_norm_with_scale;
  options.norm_epsilon = config.normalization_layer_epsilon;
  options.sinks = config.attention_sink;
  options.soft_cap = config.attn_logits_soft_cap;
  if (config.attention_type == "local_sliding") options.window = config.sliding_window_size;
  if (config.attention_type == "chunk") options.chunk = config.chunk_attn_window_size;
  options.rope_layout = RopeLayoutOf(config);
  if (config.query_pre_attn_scalar != 0) {
    options.scale = config.query_pre_attn_scalar;
    options.query_init_by_depth = false;
  }
  return options;
}

nn::Norm RmsNormOf(const nn::Builder& at, std::string_view name, const ModelConfig& config) {
  return nn::Norm::Rms(at, name, config.emb_dim, config.normalization_layer_epsilon);
}

}  // namespace octavo::models
