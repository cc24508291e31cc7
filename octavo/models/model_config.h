// The architecture of a model: every MaxText key that shapes it, under its MaxText name and with its default, resolved
// (emb_dim is base_emb_dim × global_parameter_scale …). Plain data; filled from Settings by ModelConfigFrom, or by
// hand in tests. What is not about the model (batch, optimizer, quantization) is not here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/config/settings.h"
#include "octavo/tensor/tensor.h"

namespace octavo::models {

struct ModelConfig {
  std::string model_name = "default";
  std::string decoder_block = "llama2";

  DType dtype = DType::kF32;         // of the computation; bf16 is storage with f32 math
  DType weight_dtype = DType::kF32;  // of the parameters

  int64_t vocab_size = 32000;
  int64_t emb_dim = 2048;
  int64_t num_query_heads = 16, num_kv_heads = 16;
  int64_t head_dim = 128;
  int64_t mlp_dim = 7168;
  int64_t num_decoder_layers = 16;
  int64_t max_target_length = 2048;
  double normalization_layer_epsilon = 1e-5;
  double dense_init_scale = 1.0;
  double dropout_rate = 0.0;
  bool enable_dropout = true;

  // Embedding and head.
  bool logits_via_embedding = false;
  bool normalize_embedding_logits = true;
  bool use_iota_embed = false;
  int64_t trainable_position_size = -1;
  bool use_untrainable_positional_embedding = false;
  double final_logits_soft_cap = 0;
  bool logits_dot_in_fp32 = false, cast_logits_to_fp32 = true;

  // MLP.
  std::vector<std::string> mlp_activations = {"silu", "linear"};
  double mlp_activations_limit = -1;
  bool mlp_bias = false;
  bool fused_mlp = false;
  bool activations_in_float32 = false;

  // Attention.
  bool fused_qkv = false;
  bool attention_bias = false, attention_sink = false;
  bool use_qk_norm = false, qk_norm_with_scale = true, v_norm_with_scale = true;
  bool share_kv_projections = false;
  bool use_post_attn_norm = false, use_post_ffw_norm = false;
  bool float32_qk_product = false, float32_logits = false;
  std::string attention_type = "global";  // global local_sliding chunk mla
  int64_t sliding_window_size = 0, chunk_attn_window_size = 0;
  double attn_logits_soft_cap = 0;
  int64_t nope_layer_interval = -1;
  int64_t inhomogeneous_layer_cycle_interval = 1;
  bool use_qk_clip = false;
  // Of the scores in blocks that have none of their own (llama, mixtral): models from elsewhere divide by
  // sqrt(head_dim) there. 0: none, the query kernels start out that much smaller.
  double query_pre_attn_scalar = 0;

  // Rotary positions.
  std::string rope_type = "default";  // default llama3.1 yarn
  double rope_min_timescale = 1, rope_max_timescale = 10000;
  double local_rope_max_timescale = -1, global_rope_max_timescale = -1;
  double rope_linear_scaling_factor = 1;
  bool rope_use_scale = true;
  int64_t max_position_embeddings = 163840, original_max_position_embeddings = 4096;
  double rope_factor = 40, beta_fast = 32, beta_slow = 1, mscale = 1;
  bool rope_interleave = true, rope_truncate = true, rope_attention_scaling = false;
  double partial_rotary_factor = 1;
  double llama3_factor = 8, llama3_low_freq_factor = 1, llama3_high_freq_factor = 4;  // of rope_type llama3.1
  int64_t llama3_original_positions = 8192;

  // Multi-head latent attention.
  int64_t q_lora_rank = 0, kv_lora_rank = 512;
  int64_t qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128;

  // Experts.
  int64_t num_experts = 1, num_experts_per_tok = 1, shared_experts = 0;
  int64_t moe_mlp_dim = -1;
  int64_t first_num_dense_layers = 0, interleave_moe_layer_step = 1;
  double capacity_factor = -1;
  bool sparse_matmul = true, megablox = true;
  bool norm_topk_prob = false;
  std::string routed_score_func;
  bool routed_bias = false;
  double routed_bias_update_rate = 0, routed_scaling_factor = 1;
  int64_t n_routing_groups = -1, topk_routing_group = -1;
  double load_balance_loss_weight = 0;
  bool float32_gate_logits = false, float32_weight_sum = true;

  // Multi-token prediction.
  int64_t mtp_num_layers = 0;
  double mtp_loss_scaling_factor = 0.1;

  // How checkpoints spell layers: parameters here are always unrolled (layers_0 …).
  bool scan_layers = true;
  int64_t param_scan_axis = 1;
};

// From the settings of a run. global_parameter_scale must be a power of two: each factor of eight doubles width, heads,
// MLP and layers; what is left over doubles heads and MLP first, then the width (as the reference shares it out).
ModelConfig ModelConfigFrom(const Settings& settings);

}  // namespace octavo::models
