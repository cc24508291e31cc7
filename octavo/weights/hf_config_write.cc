// config.json for a model of ours, as transformers 5 writes it, with rope_theta beside it for readers of 4.
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/weights/hf_config.h"
#include "octavo/weights/hf_export.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::ordered_json;
using models::ModelConfig;

std::string ActivationOf(const std::string& ours) {
  if (ours == "gelu") return "gelu_pytorch_tanh";
  if (ours == "gelu_erf") return "gelu";
  return ours;
}

const char* ArchitectureOf(const std::string& type) {
  if (type == "llama") return "LlamaForCausalLM";
  if (type == "mistral") return "MistralForCausalLM";
  if (type == "mixtral") return "MixtralForCausalLM";
  if (type == "qwen2") return "Qwen2ForCausalLM";
  if (type == "qwen3") return "Qwen3ForCausalLM";
  if (type == "qwen3_moe") return "Qwen3MoeForCausalLM";
  if (type == "deepseek_v2") return "DeepseekV2ForCausalLM";
  if (type == "deepseek_v3") return "DeepseekV3ForCausalLM";
  return "GPT2LMHeadModel";
}

Json RopeOf(const ModelConfig& c, bool latent) {
  Json rope = {{"rope_theta", c.rope_max_timescale}};
  if (c.rope_type == "llama3.1") {
    rope["rope_type"] = "llama3";
    rope["factor"] = c.llama3_factor;
    rope["low_freq_factor"] = c.llama3_low_freq_factor;
    rope["high_freq_factor"] = c.llama3_high_freq_factor;
    rope["original_max_position_embeddings"] = c.llama3_original_positions;
  } else if (c.rope_type == "yarn" && c.rope_factor > 1) {
    rope["rope_type"] = "yarn";
    rope["factor"] = c.rope_factor;
    rope["beta_fast"] = c.beta_fast;
    rope["beta_slow"] = c.beta_slow;
    rope["truncate"] = c.rope_truncate;
    rope["original_max_position_embeddings"] = c.original_max_position_embeddings;
    const bool sharper = c.max_position_embeddings > c.original_max_position_embeddings;
    if (latent && sharper) rope["mscale"] = rope["mscale_all_dim"] = c.mscale;
  } else if (c.rope_linear_scaling_factor != 1) {
    rope["rope_type"] = "linear";
    rope["factor"] = c.rope_linear_scaling_factor;
  } else {
    rope["rope_type"] = "default";
  }
  return rope;
}

Json Gpt2Config(const ModelConfig& c) {
  return {{"n_embd", c.emb_dim},
          {"n_head", c.num_query_heads},
          {"n_layer", c.num_decoder_layers},
          {"n_inner", c.mlp_dim},
          {"n_positions", c.trainable_position_size},
          {"layer_norm_epsilon", c.normalization_layer_epsilon},
          {"activation_function", ActivationOf(c.mlp_activations.at(0))}};
}

void AddExperts(const ModelConfig& c, const std::string& type, Json& json) {
  json["num_experts_per_tok"] = c.num_experts_per_tok;
  if (type == "mixtral") {
    json["num_local_experts"] = c.num_experts;
    return;
  }
  json["moe_intermediate_size"] = c.moe_mlp_dim;
  if (type == "qwen3_moe") {
    json["num_experts"] = c.num_experts;
    json["norm_topk_prob"] = c.routed_score_func.empty();
    return;
  }
  const bool v3 = type == "deepseek_v3", grouped = c.n_routing_groups > 1;
  json["n_routed_experts"] = c.num_experts;
  json["n_shared_experts"] = c.shared_experts;
  json["first_k_dense_replace"] = c.first_num_dense_layers;
  json["routed_scaling_factor"] = c.routed_scaling_factor;
  json["norm_topk_prob"] = v3;
  json["n_group"] = grouped ? c.n_routing_groups : 1;
  json["topk_group"] = grouped ? c.topk_routing_group : 1;
  if (!v3) json["topk_method"] = grouped ? "group_limited_greedy" : "greedy";
  json["q_lora_rank"] = c.q_lora_rank > 0 ? Json(c.q_lora_rank) : Json();
  json["kv_lora_rank"] = c.kv_lora_rank;
  json["qk_nope_head_dim"] = c.qk_nope_head_dim;
  json["qk_rope_head_dim"] = c.qk_rope_head_dim;
  json["v_head_dim"] = c.v_head_dim;
  if (v3) json["rope_interleave"] = c.rope_interleave;
}

Json DecoderConfig(const ModelConfig& c, const std::string& type) {
  const bool latent = type.starts_with("deepseek");
  Json json = {{"hidden_size", c.emb_dim},
               {"intermediate_size", c.mlp_dim},
               {"num_hidden_layers", c.num_decoder_layers},
               {"num_attention_heads", c.num_query_heads},
               {"num_key_value_heads", c.num_kv_heads},
               {"rms_norm_eps", c.normalization_layer_epsilon},
               {"hidden_act", ActivationOf(c.mlp_activations.at(0))},
               {"max_position_embeddings", c.max_target_length},
               {"rope_parameters", RopeOf(c, latent)},
               {"rope_theta", c.rope_max_timescale}};
  if (!latent) json["head_dim"] = c.head_dim;
  if (c.attention_type == "local_sliding") json["sliding_window"] = c.sliding_window_size;
  if (type == "mistral" && c.attention_type != "local_sliding") json["sliding_window"] = nullptr;
  if (latent || c.num_experts > 1) AddExperts(c, type, json);
  return json;
}

}  // namespace

std::string HfModelTypeOf(const ModelConfig& c) {
  const bool plain = c.attn_logits_soft_cap == 0 && c.final_logits_soft_cap == 0 && !c.use_post_attn_norm &&
                     !c.use_post_ffw_norm && !c.attention_sink && !c.fused_mlp && c.mlp_activations_limit <= 0 &&
                     !(c.logits_via_embedding && c.normalize_embedding_logits);
  if (plain && c.decoder_block == "gpt3" && c.fused_qkv) return "gpt2";
  if (plain && !c.fused_qkv && !c.mlp_bias) {
    const bool windowed = c.attention_type == "local_sliding";
    if (c.decoder_block == "mistral" || (c.decoder_block == "llama2" && windowed && !c.attention_bias))
      return "mistral";
    if (c.decoder_block == "llama2" || c.decoder_block == "default") return c.attention_bias ? "qwen2" : "llama";
    if (c.decoder_block == "mixtral" || c.decoder_block == "qwen3" || c.decoder_block == "qwen3_moe") {
      return c.decoder_block;
    }
    if (c.decoder_block == "deepseek") return c.routed_score_func == "sigmoid" ? "deepseek_v3" : "deepseek_v2";
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("no model of transformers is like this one (decoder_block {})", c.decoder_block),
              "plain gpt3 (fused_qkv), llama2, mistral, mixtral, qwen3 and deepseek can be written");
}

Json WriteHfConfig(const ModelConfig& c, DType dtype) {
  const std::string type = HfModelTypeOf(c);
  const char* stored = dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
  Json json = {{"architectures", {ArchitectureOf(type)}},       {"model_type", type}, {"vocab_size", c.vocab_size},
               {"tie_word_embeddings", c.logits_via_embedding}, {"dtype", stored},    {"torch_dtype", stored}};
  json.update(type == "gpt2" ? Gpt2Config(c) : DecoderConfig(c, type));
  return json;
}

}  // namespace octavo::weights
