#include "octavo/models/model_config.h"

#include <cmath>

#include "octavo/base/error.h"

namespace octavo::models {
namespace {

DType TypeOf(const Settings& settings, std::string_view key) {
  const std::string name = settings.Text(key);
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  ThrowUsage("{}={}: expected float32 or bfloat16", key, name);
}

// Powers of two that multiply the base sizes.
struct Scales {
  int64_t width = 1, heads = 1, mlp = 1, layers = 1;

  explicit Scales(int64_t scale) {
    int log2 = 0;
    while (scale > 1 && scale % 2 == 0) scale /= 2, ++log2;
    if (scale != 1) ThrowUsage("global_parameter_scale: expected a power of two");
    const int whole = log2 / 3, rest = log2 % 3;
    layers = int64_t{1} << whole;
    width = int64_t{1} << (whole + (rest > 1 ? 1 : 0));
    heads = mlp = int64_t{1} << (whole + (rest > 0 ? 1 : 0));
  }
};

void ReadSizes(const Settings& settings, ModelConfig& c) {
  const Scales scales(settings.Int("global_parameter_scale"));
  c.emb_dim = settings.Int("base_emb_dim") * scales.width;
  c.num_query_heads = settings.Int("base_num_query_heads") * scales.heads;
  c.num_kv_heads = settings.Int("base_num_kv_heads") * scales.heads;
  c.mlp_dim = settings.Int("base_mlp_dim") * scales.mlp;
  c.num_decoder_layers = settings.Int("base_num_decoder_layers") * scales.layers;
  c.moe_mlp_dim = settings.Int("base_moe_mlp_dim");
  if (c.moe_mlp_dim > 0) c.moe_mlp_dim *= scales.mlp;
  c.head_dim = settings.Int("head_dim");
  c.vocab_size = settings.Int("vocab_size");
  c.max_target_length = settings.Int("max_target_length");
}

void ReadEnds(const Settings& settings, ModelConfig& c) {
  c.normalization_layer_epsilon = settings.Number("normalization_layer_epsilon");
  c.dense_init_scale = settings.Number("dense_init_scale");
  c.dropout_rate = settings.Number("dropout_rate");
  c.enable_dropout = settings.Bool("enable_dropout");
  c.logits_via_embedding = settings.Bool("logits_via_embedding");
  c.normalize_embedding_logits = settings.Bool("normalize_embedding_logits");
  c.use_iota_embed = settings.Bool("use_iota_embed");
  c.trainable_position_size = settings.Int("trainable_position_size");
  c.use_untrainable_positional_embedding = settings.Bool("use_untrainable_positional_embedding");
  c.final_logits_soft_cap = settings.IsNull("final_logits_soft_cap") ? 0 : settings.Number("final_logits_soft_cap");
  c.logits_dot_in_fp32 = settings.Bool("logits_dot_in_fp32");
  c.cast_logits_to_fp32 = settings.Bool("cast_logits_to_fp32");
  c.mlp_activations = settings.List("mlp_activations");
  c.mlp_activations_limit = settings.Number("mlp_activations_limit");
  c.mlp_bias = settings.Bool("mlp_bias");
  c.fused_mlp = settings.Bool("fused_mlp");
  c.activations_in_float32 = settings.Bool("activations_in_float32");
}

void ReadAttention(const Settings& settings, ModelConfig& c) {
  c.fused_qkv = settings.Bool("fused_qkv");
  c.attention_bias = settings.Bool("attention_bias");
  c.attention_sink = settings.Bool("attention_sink");
  c.use_qk_norm = settings.Bool("use_qk_norm");
  c.qk_norm_with_scale = settings.Bool("qk_norm_with_scale");
  c.v_norm_with_scale = settings.Bool("v_norm_with_scale");
  c.share_kv_projections = settings.Bool("share_kv_projections");
  c.use_post_attn_norm = settings.Bool("use_post_attn_norm");
  c.use_post_ffw_norm = settings.Bool("use_post_ffw_norm");
  c.float32_qk_product = settings.Bool("float32_qk_product");
  c.float32_logits = settings.Bool("float32_logits");
  c.attention_type = settings.Text("attention_type");
  c.sliding_window_size = settings.Int("sliding_window_size");
  c.chunk_attn_window_size = settings.Int("chunk_attn_window_size");
  c.attn_logits_soft_cap = settings.IsNull("attn_logits_soft_cap") ? 0 : settings.Number("attn_logits_soft_cap");
  c.nope_layer_interval = settings.Int("nope_layer_interval");
  c.inhomogeneous_layer_cycle_interval = settings.Int("inhomogeneous_layer_cycle_interval");
  c.use_qk_clip = settings.Bool("use_qk_clip");
  c.q_lora_rank = settings.Int("q_lora_rank");
  c.kv_lora_rank = settings.Int("kv_lora_rank");
  c.qk_nope_head_dim = settings.Int("qk_nope_head_dim");
  c.qk_rope_head_dim = settings.Int("qk_rope_head_dim");
  c.v_head_dim = settings.Int("v_head_dim");
}

void ReadPositions(const Settings& settings, ModelConfig& c) {
  c.rope_type = settings.Text("rope_type");
  c.rope_min_timescale = settings.Number("rope_min_timescale");
  c.rope_max_timescale = settings.Number("rope_max_timescale");
  c.local_rope_max_timescale = settings.Number("local_rope_max_timescale");
  c.global_rope_max_timescale = settings.Number("global_rope_max_timescale");
  c.rope_linear_scaling_factor = settings.Number("rope_linear_scaling_factor");
  c.rope_use_scale = settings.Bool("rope_use_scale");
  c.max_position_embeddings = settings.Int("max_position_embeddings");
  c.original_max_position_embeddings = settings.Int("original_max_position_embeddings");
  c.rope_factor = settings.Number("rope_factor");
  c.beta_fast = settings.Number("beta_fast");
  c.beta_slow = settings.Number("beta_slow");
  c.mscale = settings.Number("mscale");
  c.rope_interleave = settings.Bool("rope_interleave");
  c.rope_truncate = settings.Bool("rope_truncate");
  c.rope_attention_scaling = settings.Bool("rope_attention_scaling");
  c.partial_rotary_factor = settings.Number("partial_rotary_factor");
}

void ReadExperts(const Settings& settings, ModelConfig& c) {
  c.num_experts = settings.Int("num_experts");
  c.num_experts_per_tok = settings.Int("num_experts_per_tok");
  c.shared_experts = settings.Int("shared_experts");
  c.first_num_dense_layers = settings.Int("first_num_dense_layers");
  c.interleave_moe_layer_step = settings.Int("interleave_moe_layer_step");
  c.capacity_factor = settings.Number("capacity_factor");
  c.sparse_matmul = settings.Bool("sparse_matmul");
  c.megablox = settings.Bool("megablox");
  c.norm_topk_prob = settings.Bool("norm_topk_prob");
  c.routed_score_func = settings.Text("routed_score_func");
  c.routed_bias = settings.Bool("routed_bias");
  c.routed_bias_update_rate = settings.Number("routed_bias_update_rate");
  c.routed_scaling_factor = settings.Number("routed_scaling_factor");
  c.n_routing_groups = settings.Int("n_routing_groups");
  c.topk_routing_group = settings.Int("topk_routing_group");
  c.load_balance_loss_weight = settings.Number("load_balance_loss_weight");
  c.float32_gate_logits = settings.Bool("float32_gate_logits");
  c.float32_weight_sum = settings.Bool("float32_weight_sum");
  c.mtp_num_layers = settings.Int("mtp_num_layers");
  c.mtp_loss_scaling_factor = settings.Number("mtp_loss_scaling_factor");
}

}  // namespace

ModelConfig ModelConfigFrom(const Settings& settings) {
  ModelConfig c;
  c.model_name = settings.Text("model_name");
  c.decoder_block = settings.Text("decoder_block");
  c.dtype = TypeOf(settings, "dtype");
  c.weight_dtype = TypeOf(settings, "weight_dtype");
  ReadSizes(settings, c);
  ReadEnds(settings, c);
  ReadAttention(settings, c);
  ReadPositions(settings, c);
  ReadExperts(settings, c);
  c.scan_layers = settings.Bool("scan_layers");
  c.param_scan_axis = settings.Int("param_scan_axis");
  return c;
}

}  // namespace octavo::models
