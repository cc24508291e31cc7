#include "octavo/weights/gguf_export_keys.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;

// What llama.cpp's graph of the architecture does not do; empty: nothing.
std::string WhyNot(const ModelConfig& c, const std::string& model_type) {
  if (c.attention_type == "local_sliding") return " with a window";
  if (c.rope_type == "yarn" && c.rope_factor > 1 && !c.rope_truncate) return " with yarn that is not truncated";
  const bool gpt2 = model_type == "gpt2", latent = model_type.starts_with("deepseek");
  const std::vector<std::string> activations =
      gpt2 ? std::vector<std::string>{"gelu"} : std::vector<std::string>{"silu", "linear"};
  if (c.mlp_activations != activations) return fmt::format(" with the activation '{}'", c.mlp_activations.at(0));
  if (model_type == "qwen3_moe" && !c.routed_score_func.empty()) return " with unnormalized experts";
  if (latent && !c.rope_interleave) return " that turn halves";
  // Its groups are chosen by the sum of their best two.
  if (model_type == "deepseek_v2" && c.n_routing_groups > 1) return " with groups of experts";
  return "";
}

class KeyWriter {
 public:
  KeyWriter(const ModelConfig& config, const std::string& model_type, const GgufArchitecture& architecture,
            GgufWriter& writer)
      : c_(config), model_type_(model_type), prefix_(fmt::format("{}.", architecture.name)), writer_(writer) {}

  void Sizes() {
    const bool gpt2 = model_type_ == "gpt2";
    Size("block_count", c_.num_decoder_layers);
    Size("context_length", gpt2 ? c_.trainable_position_size : c_.max_target_length);
    Size("embedding_length", c_.emb_dim);
    Size("feed_forward_length", c_.mlp_dim);
    Size("attention.head_count", c_.num_query_heads);
    Size("vocab_size", c_.vocab_size);
    Number(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c_.normalization_layer_epsilon);
  }

  void Heads() {
    Size("attention.head_count_kv", c_.num_kv_heads);
    Size("attention.key_length", c_.head_dim);
    Size("attention.value_length", c_.head_dim);
    Size("rope.dimension_count", c_.head_dim);
    Rope();
  }

  // Heads as they are multiplied, and kv_b whole: what files had before its halves were kept apart, and can be read by
  // rows of 32.
  void LatentHeads() {
    Size("attention.head_count_kv", c_.num_query_heads);
    Size("attention.key_length", c_.qk_nope_head_dim + c_.qk_rope_head_dim);
    Size("attention.value_length", c_.v_head_dim);
    Size("attention.q_lora_rank", c_.q_lora_rank);  // 0: none
    Size("attention.kv_lora_rank", c_.kv_lora_rank);
    Size("rope.dimension_count", c_.qk_rope_head_dim);
    Rope();
    const bool sharper = c_.max_position_embeddings > c_.original_max_position_embeddings;
    if (c_.rope_factor > 1 && sharper) Number("rope.scaling.yarn_log_multiplier", 0.1 * c_.mscale);
  }

  void Experts() {
    Size("expert_count", c_.num_experts);
    Size("expert_used_count", c_.num_experts_per_tok);
    if (c_.moe_mlp_dim > 0) Size("expert_feed_forward_length", c_.moe_mlp_dim);
  }

  void LatentExperts() {
    const bool v3 = model_type_ == "deepseek_v3";
    Experts();
    Size("leading_dense_block_count", c_.first_num_dense_layers);
    Size("expert_shared_count", c_.shared_experts);
    Size("expert_gating_func", v3 ? 2 : 1);
    Number("expert_weights_scale", c_.routed_scaling_factor);
    writer_.Bool(prefix_ + "expert_weights_norm", v3);
    if (c_.n_routing_groups <= 1) return;
    Size("expert_group_count", c_.n_routing_groups);
    Size("expert_group_used_count", c_.topk_routing_group);
  }

 private:
  void Size(const char* key, int64_t value) { writer_.U32(prefix_ + key, static_cast<uint32_t>(value)); }
  void Number(const char* key, double value) { writer_.F32(prefix_ + key, static_cast<float>(value)); }

  void Rope() {
    Number("rope.freq_base", c_.rope_max_timescale);
    if (c_.rope_type == "yarn" && c_.rope_factor > 1) {
      writer_.Text(prefix_ + "rope.scaling.type", "yarn");
      Number("rope.scaling.factor", c_.rope_factor);
      Size("rope.scaling.original_context_length", c_.original_max_position_embeddings);
      if (c_.beta_fast != 32) Number("rope.scaling.yarn_beta_fast", c_.beta_fast);
      if (c_.beta_slow != 1) Number("rope.scaling.yarn_beta_slow", c_.beta_slow);
    } else if (c_.rope_linear_scaling_factor != 1) {
      writer_.Text(prefix_ + "rope.scaling.type", "linear");
      Number("rope.scaling.factor", c_.rope_linear_scaling_factor);
    }
  }

  const ModelConfig& c_;
  const std::string& model_type_;
  std::string prefix_;
  GgufWriter& writer_;
};

uint32_t FileTypeOf(const GgufFileKeys& file) {
  const auto count = [&](GgmlType type) { return std::count(file.types.begin(), file.types.end(), type); };
  if (count(GgmlType::kQ4_0) > count(GgmlType::kQ8_0)) return 2;
  if (count(GgmlType::kQ8_0) > 0) return 7;
  return file.dtype == DType::kF32 ? 0 : file.dtype == DType::kF16 ? 1 : 32;
}

}  // namespace

const GgufArchitecture& GgufArchitectureFor(const ModelConfig& config, const std::string& model_type) {
  const GgufArchitecture* architecture = FindGgufArchitecture(model_type);
  const std::string why_not = WhyNot(config, model_type);
  if (architecture != nullptr && why_not.empty()) return *architecture;
  throw Error(
      ErrorCode::kUsage, fmt::format("models of type {}{} are not written as GGUF", model_type, why_not),
      "llama, mistral without a window, mixtral, qwen 2 and 3, gpt2 and deepseek are; format=hf takes the others");
}

void WriteGgufKeys(const ModelConfig& config, const std::string& model_type, const GgufFileKeys& file,
                   GgufWriter& writer) {
  const GgufArchitecture& architecture = GgufArchitectureFor(config, model_type);
  writer.Text("general.architecture", architecture.name);
  if (!file.name.empty()) writer.Text("general.name", file.name);
  writer.U32("general.file_type", FileTypeOf(file));
  writer.U32("general.quantization_version", 2);
  KeyWriter keys(config, model_type, architecture, writer);
  keys.Sizes();
  if (model_type.starts_with("deepseek")) {
    keys.LatentHeads();
    keys.LatentExperts();
    return;
  }
  if (model_type != "gpt2") keys.Heads();
  if (config.num_experts > 1) keys.Experts();
}

}  // namespace octavo::weights
