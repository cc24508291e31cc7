// The keys of a GGUF file as the configuration of one of our models. Numbers that files keep in f32 are taken as the
// shortest decimal that gives them: 1e-05 was meant, not 9.99999974737875e-06.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "octavo/base/error.h"
#include "octavo/weights/gguf.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;

constexpr int64_t kMostLayers = 4096, kMostExperts = 65536;
constexpr int64_t kSoftmaxGating = 1, kSigmoidGating = 2;  // of expert_gating_func

// Keys with the architecture before them.
class Keys {
 public:
  explicit Keys(const GgufContent& content) : content_(content) {
    architecture_ = content.Text("general.architecture").value_or("");
    prefix_ = fmt::format("{}.", architecture_);
  }
  std::string_view architecture() const { return architecture_; }
  int64_t Size(const char* key, std::optional<int64_t> otherwise = std::nullopt) const {
    const std::optional<int64_t> size = content_.Int(prefix_ + key);
    if (!size && otherwise) return *otherwise;
    if (!size) ThrowFile("{}: no key '{}{}'", content_.file(), prefix_, key);
    if (*size < 1 || *size > (int64_t{1} << 31)) ThrowFile("{}: {}{} is {}", content_.file(), prefix_, key, *size);
    return *size;
  }
  // 0 when it is missing.
  int64_t Count(const char* key, int64_t most) const {
    const int64_t count = content_.Int(prefix_ + key).value_or(0);
    if (count < 0 || count > most) ThrowFile("{}: {}{} is {}", content_.file(), prefix_, key, count);
    return count;
  }
  double Number(const char* key, double otherwise) const {
    const std::optional<double> number = content_.Number(prefix_ + key);
    if (!number) return otherwise;
    const auto single = static_cast<float>(*number);
    if (static_cast<double>(single) != *number) return *number;  // NaN too
    return std::strtod(fmt::format("{}", single).c_str(), nullptr);
  }
  bool Flag(const char* key) const { return content_.Bool(prefix_ + key).value_or(false); }
  std::string_view Text(const char* key) const { return content_.Text(prefix_ + key).value_or(""); }
  bool Has(const char* key) const { return content_.Has(prefix_ + key); }
  [[noreturn]] void Fail(const std::string& problem) const { ThrowFile("{}: {}", content_.file(), problem); }
  const GgufContent& content() const { return content_; }

 private:
  const GgufContent& content_;
  std::string_view architecture_;
  std::string prefix_;
};

// "llama" files hold llama, mistral and mixtral models, "deepseek2" both of its generations.
std::string ModelTypeOf(const Keys& keys) {
  const std::string_view name = keys.architecture();
  if (name == "llama") return keys.Count("expert_count", kMostExperts) > 1 ? "mixtral" : "llama";
  if (name == "qwen3moe") return "qwen3_moe";
  if (name == "deepseek2") {
    const int64_t gating = keys.Count("expert_gating_func", 100);
    if (gating != 0 && gating != kSoftmaxGating && gating != kSigmoidGating) {
      keys.Fail(fmt::format("expert_gating_func {} is not supported", gating));
    }
    return gating == kSigmoidGating ? "deepseek_v3" : "deepseek_v2";
  }
  for (const std::string_view known : GgufArchitectureNames()) {
    if (known == name) return std::string(name);
  }
  throw Error(ErrorCode::kFile,
              fmt::format("{}: unsupported architecture '{}'", keys.content().file(), name.substr(0, 60)),
              fmt::format("known: {}", fmt::join(GgufArchitectureNames(), " ")));
}

// The file has the factors but not the numbers they come from. Every llama 3 model so far has the same ones but for the
// factor itself, which is the largest.
void ReadRopeFactors(const GgufContent& content, const GgufTensor& tensor, ModelConfig& c) {
  std::vector<float> factors(static_cast<size_t>(tensor.count));
  if (tensor.type == GgmlType::kF32 && tensor.count == c.head_dim / 2) {
    DecodeBlocks(tensor.type, tensor.bytes, factors);
    c.rope_type = "llama3.1";
    c.llama3_factor = factors.empty() ? 0 : static_cast<double>(*std::max_element(factors.begin(), factors.end()));
    const std::vector<float> made = Llama3RopeFactors(c);
    const auto close = [](float a, float b) { return std::abs(a - b) <= 1e-5f * std::abs(b); };
    if (c.llama3_factor >= 1 && std::equal(made.begin(), made.end(), factors.begin(), factors.end(), close)) return;
  }
  throw Error(ErrorCode::kFile,
              fmt::format("{}: the rotary factors in rope_freqs.weight are not those of llama 3", content.file()),
              "use the model folder this file was made from");
}

double ReadTheta(const Keys& keys) {
  const double theta = keys.Number("rope.freq_base", 10000);
  if (!(theta > 0) || !std::isfinite(theta)) keys.Fail(fmt::format("rope.freq_base is {}", theta));
  return theta;
}

// The kind of scaling, checked; its factor in `factor`.
std::string_view ReadScaling(const Keys& keys, double* factor) {
  const std::string_view type = keys.Text("rope.scaling.type");
  *factor = keys.Number("rope.scaling.factor", 1);
  if (!type.empty() && type != "none" && type != "linear" && type != "yarn") {
    keys.Fail(fmt::format("rope.scaling.type '{}' is not supported; known: none linear yarn", type.substr(0, 60)));
  }
  if (!(*factor >= 1) || !std::isfinite(*factor)) keys.Fail(fmt::format("rope.scaling.factor is {}", *factor));
  return type;
}

void ReadYarn(const Keys& keys, double factor, ModelConfig& c) {
  c.rope_type = "yarn";
  c.rope_factor = factor;
  c.beta_fast = keys.Number("rope.scaling.yarn_beta_fast", 32);
  c.beta_slow = keys.Number("rope.scaling.yarn_beta_slow", 1);
  c.original_max_position_embeddings = keys.Size("rope.scaling.original_context_length", c.max_position_embeddings);
  if (!(c.beta_fast > c.beta_slow) || !(c.beta_slow > 0)) keys.Fail("rope.scaling.yarn_beta is out of range");
}

void ReadRope(const Keys& keys, ModelConfig& c) {
  c.rope_max_timescale = ReadTheta(keys);
  if (keys.Size("rope.dimension_count", c.head_dim) != c.head_dim) {
    keys.Fail("only heads that turn as a whole are supported");
  }
  double factor = 1;
  const std::string_view type = ReadScaling(keys, &factor);
  if (type == "linear") c.rope_linear_scaling_factor = factor;
  if (type == "yarn") {
    ReadYarn(keys, factor, c);
    c.rope_interleave = false;
    c.rope_attention_scaling = true;
  }
  const GgufTensor* factors = keys.content().FindTensor("rope_freqs.weight");
  if (factors != nullptr) ReadRopeFactors(keys.content(), *factors, c);
}

// DeepSeek turns neighbours; without scaling that is yarn by a factor of 1. Sharpened when it was stretched.
void ReadLatentRope(const Keys& keys, ModelConfig& c) {
  c.rope_max_timescale = ReadTheta(keys);
  c.rope_interleave = true;
  double factor = 1;
  const std::string_view type = ReadScaling(keys, &factor);
  if (type == "linear") keys.Fail("linear scaling of latent attention is not supported");
  ReadYarn(keys, type == "yarn" ? factor : 1, c);
  if (c.rope_factor == 1) {
    c.original_max_position_embeddings = c.max_position_embeddings;
    return;
  }
  // Kept as a tenth of it, in f32.
  c.mscale = std::round(keys.Number("rope.scaling.yarn_log_multiplier", 0) * 1e7) / 1e6;
  if (!(c.mscale >= 0 && c.mscale <= 100)) keys.Fail("rope.scaling.yarn_log_multiplier is out of range");
  c.max_position_embeddings = c.original_max_position_embeddings + (c.mscale != 0 ? 1 : 0);
}

void ReadExperts(const Keys& keys, ModelConfig& c) {
  c.num_experts = keys.Size("expert_count");
  c.num_experts_per_tok = keys.Size("expert_used_count");
  if (c.num_experts > kMostExperts || c.num_experts_per_tok > c.num_experts) {
    keys.Fail(fmt::format("{} of {} experts", c.num_experts_per_tok, c.num_experts));
  }
}

void ReadLatent(const Keys& keys, const std::string& model_type, ModelConfig& c) {
  const bool v3 = model_type == "deepseek_v3", newer = keys.Has("attention.key_length_mla");
  c.decoder_block = "deepseek";
  c.attention_type = "mla";
  c.num_kv_heads = c.num_query_heads;
  c.head_dim = std::max<int64_t>(1, c.emb_dim / c.num_query_heads);
  c.q_lora_rank = keys.Count("attention.q_lora_rank", int64_t{1} << 31);
  c.kv_lora_rank = keys.Size("attention.kv_lora_rank");
  c.qk_rope_head_dim = keys.Size("rope.dimension_count");
  c.qk_nope_head_dim = keys.Size(newer ? "attention.key_length_mla" : "attention.key_length") - c.qk_rope_head_dim;
  c.v_head_dim = keys.Size(newer ? "attention.value_length_mla" : "attention.value_length");
  if (c.qk_nope_head_dim < 1 || c.qk_rope_head_dim % 2 != 0) keys.Fail("its heads do not fit each other");
  ReadLatentRope(keys, c);
  c.first_num_dense_layers = keys.Count("leading_dense_block_count", c.num_decoder_layers);
  ReadExperts(keys, c);
  c.moe_mlp_dim = keys.Size("expert_feed_forward_length");
  c.shared_experts = keys.Count("expert_shared_count", kMostExperts);
  c.routed_scaling_factor = keys.Number("expert_weights_scale", 1);
  if (c.routed_scaling_factor == 0) c.routed_scaling_factor = 1;  // how some files say that there is none
  c.routed_score_func = v3 ? "sigmoid" : "softmax";
  c.routed_bias = v3;
  if (keys.Flag("expert_weights_norm") != v3) keys.Fail("expert_weights_norm is not that of its generation");
  const int64_t groups = keys.Count("expert_group_count", c.num_experts);
  if (groups <= 1) return;
  c.n_routing_groups = groups;
  c.topk_routing_group = keys.Size("expert_group_used_count");
  if (c.topk_routing_group > groups || c.num_experts % groups != 0) {
    keys.Fail(fmt::format("{} of {} groups of {} experts", c.topk_routing_group, groups, c.num_experts));
  }
}

void ReadGpt2(const Keys& keys, ModelConfig& c) {
  c.decoder_block = "gpt3";
  c.num_kv_heads = c.num_query_heads;
  c.head_dim = c.emb_dim / c.num_query_heads;
  c.max_target_length = c.trainable_position_size = keys.Size("context_length");
  c.max_position_embeddings = ModelConfig().max_position_embeddings;  // it turns nothing
  c.normalization_layer_epsilon = keys.Number("attention.layer_norm_epsilon", 1e-5);
  c.mlp_activations = {"gelu"};
  c.fused_qkv = true;
  if (c.head_dim < 1 || c.emb_dim % c.num_query_heads != 0) keys.Fail("its heads do not fit each other");
}

void ReadLlamaLike(const Keys& keys, const std::string& model_type, ModelConfig& c) {
  const bool qwen3 = model_type.starts_with("qwen3");
  c.decoder_block = qwen3 || model_type == "mixtral" ? model_type : "llama2";
  c.num_kv_heads = keys.Size("attention.head_count_kv", c.num_query_heads);
  c.head_dim = keys.Size("attention.key_length", std::max<int64_t>(1, c.emb_dim / c.num_query_heads));
  c.use_qk_norm = qwen3;
  c.attention_bias = model_type == "qwen2";
  if (!qwen3) c.query_pre_attn_scalar = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (c.num_query_heads % c.num_kv_heads != 0 || c.head_dim % 2 != 0 ||
      keys.Size("attention.value_length", c.head_dim) != c.head_dim) {
    keys.Fail("its heads and layers do not fit each other");
  }
  ReadRope(keys, c);
  if (model_type == "mixtral" || model_type == "qwen3_moe") ReadExperts(keys, c);
  if (model_type == "qwen3_moe") c.moe_mlp_dim = keys.Size("expert_feed_forward_length");
}

}  // namespace

std::vector<float> Llama3RopeFactors(const ModelConfig& c) {
  constexpr double kTurn = 2 * std::numbers::pi;
  const auto old = static_cast<double>(c.llama3_original_positions);
  std::vector<float> factors;
  for (int64_t i = 0; i < c.head_dim / 2; ++i) {
    const double wave =
        kTurn * std::pow(c.rope_max_timescale, 2 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    double factor = 1;
    if (wave > old / c.llama3_low_freq_factor) {
      factor = c.llama3_factor;
    } else if (wave >= old / c.llama3_high_freq_factor) {
      const double smooth =
          (old / wave - c.llama3_low_freq_factor) / (c.llama3_high_freq_factor - c.llama3_low_freq_factor);
      factor = 1 / ((1 - smooth) / c.llama3_factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

HfConfig GgufConfig(const GgufContent& content) {
  const Keys keys(content);
  HfConfig hf;
  hf.model_type = ModelTypeOf(keys);
  if (content.Int("split.count").value_or(1) > 1) {
    throw Error(ErrorCode::kFile, fmt::format("{}: one of several files of a model", content.file()),
                "join them first: llama-gguf-split --merge");
  }
  ModelConfig& c = hf.config;
  c.model_name = hf.model_type;
  c.emb_dim = keys.Size("embedding_length");
  c.mlp_dim = keys.Size("feed_forward_length");
  c.num_decoder_layers = keys.Size("block_count");
  c.num_query_heads = keys.Size("attention.head_count");
  c.max_target_length = c.max_position_embeddings = keys.Size("context_length", 2048);
  c.normalization_layer_epsilon = keys.Number("attention.layer_norm_rms_epsilon", 1e-5);
  const GgufTensor* table = content.FindTensor("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2) ThrowFile("{}: no tensor 'token_embd.weight'", content.file());
  c.vocab_size = table->shape[0];
  c.logits_via_embedding = content.FindTensor("output.weight") == nullptr;
  c.normalize_embedding_logits = false;
  c.logits_dot_in_fp32 = true;  // a tied head is not rounded
  if (c.num_decoder_layers > kMostLayers) keys.Fail("its heads and layers do not fit each other");
  if (hf.model_type == "gpt2") {
    ReadGpt2(keys, c);
  } else if (hf.model_type.starts_with("deepseek")) {
    ReadLatent(keys, hf.model_type, c);
  } else {
    ReadLlamaLike(keys, hf.model_type, c);
  }
  return hf;
}

}  // namespace octavo::weights
