#include "octavo/train/flops.h"

namespace octavo::train {
namespace {

using models::ModelConfig;

// Forward pass of one token, 2 per multiply-add.
double MlpFlops(const ModelConfig& c, double width) {
  const auto emb = static_cast<double>(c.emb_dim);
  return 2 * width * emb * (static_cast<double>(c.mlp_activations.size()) + 1);
}

// All layers together.
double AllMlpFlops(const ModelConfig& c) {
  const auto layers = static_cast<double>(c.num_decoder_layers), emb = static_cast<double>(c.emb_dim);
  if (c.num_experts <= 1) return MlpFlops(c, static_cast<double>(c.mlp_dim)) * layers;
  const double gate = 2 * emb * static_cast<double>(c.num_experts);
  const auto routed = static_cast<double>(c.num_experts_per_tok);
  if (c.decoder_block != "deepseek") {
    return (gate + MlpFlops(c, static_cast<double>(c.mlp_dim)) * routed) * layers;
  }
  const auto dense = static_cast<double>(c.first_num_dense_layers);
  const double expert = MlpFlops(c, static_cast<double>(c.moe_mlp_dim));
  return MlpFlops(c, static_cast<double>(c.mlp_dim)) * dense +
         (gate + expert * (routed + static_cast<double>(c.shared_experts))) * (layers - dense);
}

struct AttentionFlops {
  double projections, products;  // of one token and layer; products not halved yet
};

AttentionFlops PlainAttention(const ModelConfig& c, double length) {
  const auto emb = static_cast<double>(c.emb_dim), dim = static_cast<double>(c.head_dim);
  const auto heads = static_cast<double>(c.num_query_heads), kv = static_cast<double>(c.num_kv_heads);
  return {2 * emb * (heads + 2 * kv) * dim + 2 * emb * heads * dim, 4 * length * heads * dim};
}

AttentionFlops LatentAttention(const ModelConfig& c, double length) {
  const auto emb = static_cast<double>(c.emb_dim), heads = static_cast<double>(c.num_query_heads);
  const auto nope = static_cast<double>(c.qk_nope_head_dim), rope = static_cast<double>(c.qk_rope_head_dim);
  const auto value = static_cast<double>(c.v_head_dim);
  const auto q_rank = static_cast<double>(c.q_lora_rank), kv_rank = static_cast<double>(c.kv_lora_rank);
  const double query = c.q_lora_rank == 0 ? emb * heads * (nope + rope) : emb * q_rank + q_rank * heads * (nope + rope);
  const double keys = emb * (kv_rank + rope) + kv_rank * heads * (nope + value);
  return {2 * (query + keys + emb * heads * value), 2 * length * heads * (nope + rope + value)};
}

}  // namespace

StepFlops FlopsOfStep(const ModelConfig& c, int64_t rows, int64_t length) {
  const auto tokens = static_cast<double>(rows) * static_cast<double>(length);
  const auto layers = static_cast<double>(c.num_decoder_layers);
  const AttentionFlops attention = c.attention_type == "mla" ? LatentAttention(c, static_cast<double>(length))
                                                             : PlainAttention(c, static_cast<double>(length));
  const double head = 2 * static_cast<double>(c.emb_dim) * static_cast<double>(c.vocab_size);
  const double weights = AllMlpFlops(c) + attention.projections * layers + head;
  return {3e-12 * tokens * weights, 3e-12 * tokens * layers * attention.products / 2};
}

}  // namespace octavo::train
