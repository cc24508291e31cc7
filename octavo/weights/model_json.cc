#include "octavo/weights/model_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "octavo/base/error.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;

// Every field, under the name it has in the struct: MaxText's.
template <typename Config, typename Visit>
void VisitFields(Config& c, const Visit& visit) {
  visit("model_name", c.model_name);
  visit("decoder_block", c.decoder_block);
  visit("dtype", c.dtype);
  visit("weight_dtype", c.weight_dtype);
  visit("vocab_size", c.vocab_size);
  visit("emb_dim", c.emb_dim);
  visit("num_query_heads", c.num_query_heads);
  visit("num_kv_heads", c.num_kv_heads);
  visit("head_dim", c.head_dim);
  visit("mlp_dim", c.mlp_dim);
  visit("num_decoder_layers", c.num_decoder_layers);
  visit("max_target_length", c.max_target_length);
  visit("normalization_layer_epsilon", c.normalization_layer_epsilon);
  visit("dense_init_scale", c.dense_init_scale);
  visit("dropout_rate", c.dropout_rate);
  visit("enable_dropout", c.enable_dropout);
  visit("logits_via_embedding", c.logits_via_embedding);
  visit("normalize_embedding_logits", c.normalize_embedding_logits);
  visit("use_iota_embed", c.use_iota_embed);
  visit("trainable_position_size", c.trainable_position_size);
  visit("use_untrainable_positional_embedding", c.use_untrainable_positional_embedding);
  visit("final_logits_soft_cap", c.final_logits_soft_cap);
  visit("logits_dot_in_fp32", c.logits_dot_in_fp32);
  visit("cast_logits_to_fp32", c.cast_logits_to_fp32);
  visit("mlp_activations", c.mlp_activations);
  visit("mlp_activations_limit", c.mlp_activations_limit);
  visit("mlp_bias", c.mlp_bias);
  visit("fused_mlp", c.fused_mlp);
  visit("activations_in_float32", c.activations_in_float32);
  visit("fused_qkv", c.fused_qkv);
  visit("attention_bias", c.attention_bias);
  visit("attention_sink", c.attention_sink);
  visit("use_qk_norm", c.use_qk_norm);
  visit("qk_norm_with_scale", c.qk_norm_with_scale);
  visit("v_norm_with_scale", c.v_norm_with_scale);
  visit("share_kv_projections", c.share_kv_projections);
  visit("use_post_attn_norm", c.use_post_attn_norm);
  visit("use_post_ffw_norm", c.use_post_ffw_norm);
  visit("float32_qk_product", c.float32_qk_product);
  visit("float32_logits", c.float32_logits);
  visit("attention_type", c.attention_type);
  visit("sliding_window_size", c.sliding_window_size);
  visit("chunk_attn_window_size", c.chunk_attn_window_size);
  visit("attn_logits_soft_cap", c.attn_logits_soft_cap);
  visit("nope_layer_interval", c.nope_layer_interval);
  visit("inhomogeneous_layer_cycle_interval", c.inhomogeneous_layer_cycle_interval);
  visit("use_qk_clip", c.use_qk_clip);
  visit("query_pre_attn_scalar", c.query_pre_attn_scalar);
  visit("rope_type", c.rope_type);
  visit("rope_min_timescale", c.rope_min_timescale);
  visit("rope_max_timescale", c.rope_max_timescale);
  visit("local_rope_max_timescale", c.local_rope_max_timescale);
  visit("global_rope_max_timescale", c.global_rope_max_timescale);
  visit("rope_linear_scaling_factor", c.rope_linear_scaling_factor);
  visit("rope_use_scale", c.rope_use_scale);
  visit("max_position_embeddings", c.max_position_embeddings);
  visit("original_max_position_embeddings", c.original_max_position_embeddings);
  visit("rope_factor", c.rope_factor);
  visit("beta_fast", c.beta_fast);
  visit("beta_slow", c.beta_slow);
  visit("mscale", c.mscale);
  visit("rope_interleave", c.rope_interleave);
  visit("rope_truncate", c.rope_truncate);
  visit("rope_attention_scaling", c.rope_attention_scaling);
  visit("partial_rotary_factor", c.partial_rotary_factor);
  visit("llama3_factor", c.llama3_factor);
  visit("llama3_low_freq_factor", c.llama3_low_freq_factor);
  visit("llama3_high_freq_factor", c.llama3_high_freq_factor);
  visit("llama3_original_positions", c.llama3_original_positions);
  visit("q_lora_rank", c.q_lora_rank);
  visit("kv_lora_rank", c.kv_lora_rank);
  visit("qk_nope_head_dim", c.qk_nope_head_dim);
  visit("qk_rope_head_dim", c.qk_rope_head_dim);
  visit("v_head_dim", c.v_head_dim);
  visit("num_experts", c.num_experts);
  visit("num_experts_per_tok", c.num_experts_per_tok);
  visit("shared_experts", c.shared_experts);
  visit("moe_mlp_dim", c.moe_mlp_dim);
  visit("first_num_dense_layers", c.first_num_dense_layers);
  visit("interleave_moe_layer_step", c.interleave_moe_layer_step);
  visit("capacity_factor", c.capacity_factor);
  visit("sparse_matmul", c.sparse_matmul);
  visit("megablox", c.megablox);
  visit("norm_topk_prob", c.norm_topk_prob);
  visit("routed_score_func", c.routed_score_func);
  visit("routed_bias", c.routed_bias);
  visit("routed_bias_update_rate", c.routed_bias_update_rate);
  visit("routed_scaling_factor", c.routed_scaling_factor);
  visit("n_routing_groups", c.n_routing_groups);
  visit("topk_routing_group", c.topk_routing_group);
  visit("load_balance_loss_weight", c.load_balance_loss_weight);
  visit("float32_gate_logits", c.float32_gate_logits);
  visit("float32_weight_sum", c.float32_weight_sum);
  visit("mtp_num_layers", c.mtp_num_layers);
  visit("mtp_loss_scaling_factor", c.mtp_loss_scaling_factor);
  visit("scan_layers", c.scan_layers);
  visit("param_scan_axis", c.param_scan_axis);
}

constexpr int64_t kMostSize = int64_t{1} << 40;

DType FloatTypeByName(const std::string& name, const std::string& where) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (NameOf(dtype) == name) return dtype;
  }
  ThrowFile("{}: '{}' is no type of floats", where, name);
}

template <typename T>
void Read(const nlohmann::json& value, const std::string& where, T& field) {
  const auto fail = [&](const char* expected) { ThrowFile("{}: expected {}", where, expected); };
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) fail("true or false");
    field = value.get<bool>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (!value.is_number_integer() || value.get<int64_t>() < -1 || value.get<int64_t>() > kMostSize) {
      fail("a whole number from -1");
    }
    field = value.get<int64_t>();
  } else if constexpr (std::is_same_v<T, double>) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail("a number");
    field = value.get<double>();
  } else if constexpr (std::is_same_v<T, DType>) {
    if (!value.is_string()) fail("the name of a type");
    field = FloatTypeByName(value.get<std::string>(), where);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) fail("a text");
    field = value.get<std::string>();
  } else {
    if (!value.is_array()) fail("a list of texts");
    field.clear();
    for (const nlohmann::json& item : value) {
      if (!item.is_string()) fail("a list of texts");
      field.push_back(item.get<std::string>());
    }
  }
}

}  // namespace

nlohmann::ordered_json ModelToJson(const ModelConfig& config) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  VisitFields(config, [&json](const char* name, const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, DType>) {
      json[name] = std::string(NameOf(field));
    } else {
      json[name] = field;
    }
  });
  return json;
}

ModelConfig ModelFromJson(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object()) ThrowFile("{}: not an object", where);
  ModelConfig config;
  std::set<std::string> known;
  VisitFields(config, [&](const char* name, auto& field) {
    known.insert(name);
    const auto found = json.find(name);
    if (found == json.end()) ThrowFile("{}: no field '{}'", where, name);
    Read(*found, fmt::format("{}: {}", where, name), field);
  });
  for (const auto& item : json.items()) {
    if (!known.contains(item.key())) {
      throw Error(ErrorCode::kFile, fmt::format("{}: unknown field '{}'", where, item.key()),
                  "the checkpoint was written by a newer version");
    }
  }
  return config;
}

}  // namespace octavo::weights
