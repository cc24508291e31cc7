// Small random models of every family, for the tests of what goes out and comes back.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "octavo/models/model.h"
#include "octavo/ops/test_support.h"
#include "octavo/weights/hf.h"
#include "octavo/weights/restore.h"

namespace octavo::weights {

inline models::ModelConfig Tiny(const std::string& block) {
  models::ModelConfig c;
  c.decoder_block = block;
  c.vocab_size = 37;
  c.emb_dim = 24;
  c.num_query_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 6;
  c.mlp_dim = 40;
  c.num_decoder_layers = 2;
  c.max_target_length = c.max_position_embeddings = 64;
  c.logits_dot_in_fp32 = true;
  c.normalize_embedding_logits = false;
  if (block != "qwen3" && block != "gpt3") c.query_pre_attn_scalar = 1 / std::sqrt(6.0);
  if (block == "qwen3") c.use_qk_norm = true;
  if (block == "mixtral") c.num_experts = 3, c.num_experts_per_tok = 2;
  if (block == "gpt3") {
    c.num_kv_heads = 4;
    c.mlp_activations = {"gelu"};
    c.fused_qkv = c.logits_via_embedding = true;
    c.trainable_position_size = c.max_target_length;
  }
  return c;
}

inline models::ModelConfig TinyDeepSeek() {
  models::ModelConfig c = Tiny("deepseek");
  c.query_pre_attn_scalar = 0;
  c.num_kv_heads = 4;
  c.attention_type = "mla";
  c.rope_type = "yarn";
  c.rope_factor = 1;
  c.original_max_position_embeddings = c.max_position_embeddings;
  c.q_lora_rank = 10, c.kv_lora_rank = 12, c.qk_nope_head_dim = 6, c.qk_rope_head_dim = 4, c.v_head_dim = 5;
  c.num_experts = 4, c.num_experts_per_tok = 2, c.shared_experts = 1, c.moe_mlp_dim = 8;
  c.first_num_dense_layers = 1;
  c.routed_score_func = "sigmoid";
  c.routed_bias = true;
  c.routed_scaling_factor = 2.5;
  return c;
}

inline Tensor LogitsOf(ops::TestBench& bench, models::Model& model) {
  const Tensor tokens = ops::IntTensor(Shape{1, 7}, {3, 1, 4, 1, 5, 9, 2});
  const ops::Var hidden = models::Forward(bench.context, model, tokens, ops::RowsOfShape(1, 7));
  return model.Logits(bench.context, hidden).value.Contiguous();
}

inline std::unique_ptr<models::Model> RandomModel(ops::TestBench& bench, const models::ModelConfig& config) {
  auto model = models::MakeModel(config);
  models::Initialize(*model, RngKey::FromSeed(11), bench.pool);
  return model;
}

inline std::unique_ptr<models::Model> Load(const HfModel& hf) {
  auto model = models::MakeModel(hf.config.config);
  RestoreParameters(hf.source, model->parameters(), {.convert_floats = true});
  return model;
}

}  // namespace octavo::weights
