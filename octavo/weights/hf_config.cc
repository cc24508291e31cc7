#include "octavo/weights/hf_config.h"

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/checkpoint/strict_json.h"
#include "octavo/weights/hf_config_reader.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;
using models::ModelConfig;

constexpr int64_t kMostLayers = 4096, kMostExperts = 65536;

std::string ActivationOf(HfConfigReader& reader, std::initializer_list<const char*> keys, const char* otherwise) {
  const std::string name = reader.FindText(keys).value_or(otherwise);
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu";
  if (name == "gelu") return "gelu_erf";
  if (name == "relu") return "relu";
  reader.Fail(fmt::format("{} '{}' is not supported; known: silu gelu gelu_new relu", *keys.begin(), name));
}

// rope_parameters of transformers 5, or rope_theta and rope_scaling of 4.
struct Rope {
  std::string type = "default";
  double theta = 10000;
  Json values = Json::object();
};

Rope ReadRope(HfConfigReader& reader) {
  Rope rope;
  if (const std::optional<double> theta = reader.FindNumber({"rope_theta"})) rope.theta = *theta;
  const Json* newer = reader.Find("rope_parameters");
  const Json* older = reader.Find("rope_scaling");
  const Json* given = newer != nullptr ? newer : older;
  if (given != nullptr) {
    if (!given->is_object()) reader.Fail("the parameters of the rotary positions are not an object");
    rope.values = *given;
    HfConfigReader inner(rope.values, reader.where());
    rope.type = inner.FindText({"rope_type", "type"}).value_or("default");
    if (const std::optional<double> theta = inner.FindNumber({"rope_theta"})) rope.theta = *theta;
  }
  if (!(rope.theta > 0) || !std::isfinite(rope.theta)) reader.Fail(fmt::format("rope_theta is {}", rope.theta));
  return rope;
}

void ReadYarn(HfConfigReader& inner, HfConfigReader& reader, ModelConfig& c) {
  c.rope_type = "yarn";
  c.rope_factor = inner.FindNumber({"factor"}).value_or(1);
  c.beta_fast = inner.FindNumber({"beta_fast"}).value_or(32);
  c.beta_slow = inner.FindNumber({"beta_slow"}).value_or(1);
  c.rope_truncate = inner.FindBool("truncate").value_or(true);
  c.original_max_position_embeddings = inner.SizeOr({"original_max_position_embeddings"}, c.max_position_embeddings);
  if (!(c.rope_factor >= 1)) reader.Fail(fmt::format("the yarn factor is {}, expected at least 1", c.rope_factor));
}

// Rotary positions of the llama family: what multiplies cosines and sines is 0.1 ln(factor) + 1.
void ReadPlainRope(HfConfigReader& reader, ModelConfig& c) {
  const Rope rope = ReadRope(reader);
  c.rope_max_timescale = rope.theta;
  HfConfigReader inner(rope.values, reader.where());
  inner.Expect("partial_rotary_factor", 1.0);
  if (rope.type == "default") return;
  if (rope.type == "linear") {
    c.rope_linear_scaling_factor = inner.FindNumber({"factor"}).value_or(1);
    if (!(c.rope_linear_scaling_factor >= 1)) reader.Fail("the linear factor is below 1");
  } else if (rope.type == "llama3") {
    c.rope_type = "llama3.1";
    c.llama3_factor = inner.FindNumber({"factor"}).value_or(8);
    c.llama3_low_freq_factor = inner.FindNumber({"low_freq_factor"}).value_or(1);
    c.llama3_high_freq_factor = inner.FindNumber({"high_freq_factor"}).value_or(4);
    c.llama3_original_positions = inner.SizeOr({"original_max_position_embeddings"}, c.max_position_embeddings);
  } else if (rope.type == "yarn") {
    ReadYarn(inner, reader, c);
    c.rope_interleave = false;
    c.rope_attention_scaling = true;
    const double usual = c.rope_factor <= 1 ? 1 : 0.1 * std::log(c.rope_factor) + 1;
    const double factor = inner.FindNumber({"attention_factor"}).value_or(usual);
    const bool scaled = inner.FindNumber({"mscale"}).value_or(0) != inner.FindNumber({"mscale_all_dim"}).value_or(0);
    if (std::abs(factor - usual) > 1e-6 * usual || scaled) {
      reader.Fail("yarn with an attention_factor of its own is not supported");
    }
  } else {
    reader.Fail(fmt::format("rope_type '{}' is not supported; known: default linear llama3 yarn", rope.type));
  }
}

// DeepSeek turns neighbours. Without scaling that is yarn by a factor of 1.
void ReadLatentRope(HfConfigReader& reader, ModelConfig& c) {
  const Rope rope = ReadRope(reader);
  c.rope_max_timescale = rope.theta;
  HfConfigReader inner(rope.values, reader.where());
  c.rope_interleave = reader.FindBool("rope_interleave").value_or(true);
  if (rope.type == "default") {
    c.rope_type = "yarn";
    c.rope_factor = 1;
    c.original_max_position_embeddings = c.max_position_embeddings;
    return;
  }
  if (rope.type != "yarn") {
    reader.Fail(fmt::format("rope_type '{}' is not supported here; known: default yarn", rope.type));
  }
  ReadYarn(inner, reader, c);
  const double mscale = inner.FindNumber({"mscale"}).value_or(0),
               all = inner.FindNumber({"mscale_all_dim"}).value_or(0);
  if (mscale != all)
    reader.Fail(fmt::format("yarn with mscale {} and mscale_all_dim {} is not supported", mscale, all));
  c.mscale = all;
  // The model sharpens when it was stretched; transformers does when mscale_all_dim is given.
  const bool sharper = all != 0 && c.rope_factor > 1;
  c.max_position_embeddings = c.original_max_position_embeddings + (sharper ? 1 : 0);
}

void ReadSizes(HfConfigReader& reader, ModelConfig& c) {
  c.vocab_size = reader.Size({"vocab_size"});
  c.emb_dim = reader.Size({"hidden_size"});
  c.mlp_dim = reader.Size({"intermediate_size"});
  c.num_decoder_layers = reader.Size({"num_hidden_layers"});
  c.num_query_heads = reader.Size({"num_attention_heads"});
  c.num_kv_heads = reader.SizeOr({"num_key_value_heads"}, c.num_query_heads);
  // Latent attention has sizes of its own: files say nothing, or the part that turns. One value for all spellings.
  const bool latent = c.attention_type == "mla";
  const int64_t share = std::max<int64_t>(1, c.emb_dim / c.num_query_heads);
  c.head_dim = latent ? share : reader.SizeOr({"head_dim"}, c.emb_dim / c.num_query_heads);
  c.max_target_length = c.max_position_embeddings = reader.SizeOr({"max_position_embeddings"}, 2048);
  c.normalization_layer_epsilon = reader.FindNumber({"rms_norm_eps"}).value_or(1e-6);
  c.mlp_activations = {ActivationOf(reader, {"hidden_act", "hidden_activation"}, "silu"), "linear"};
  c.logits_via_embedding = reader.FindBool("tie_word_embeddings").value_or(false);
  c.normalize_embedding_logits = false;
  c.logits_dot_in_fp32 = true;  // a tied head is not rounded
  if (c.num_decoder_layers > kMostLayers) reader.Fail(fmt::format("{} layers", c.num_decoder_layers));
  if (!latent && (c.head_dim < 1 || c.head_dim % 2 != 0))
    reader.Fail(fmt::format("head_dim is {}, expected an even size", c.head_dim));
  if (c.num_query_heads % c.num_kv_heads != 0) {
    reader.Fail(fmt::format("{} heads do not divide over {} key heads", c.num_query_heads, c.num_kv_heads));
  }
}

// All layers alike, or an error: our blocks have one kind of attention.
void ReadWindow(HfConfigReader& reader, bool used, ModelConfig& c) {
  const std::optional<int64_t> window = reader.FindInt({"sliding_window"});
  reader.Ignore({"max_window_layers"});
  bool sliding = used && window.has_value();
  if (const Json* types = reader.Find("layer_types")) {
    int64_t slid = 0;
    if (!types->is_array() || static_cast<int64_t>(types->size()) != c.num_decoder_layers) {
      reader.Fail("layer_types is not one text for each layer");
    }
    for (const Json& type : *types) {
      if (type != "full_attention" && type != "sliding_attention") reader.Fail("layer_types has an unknown kind");
      slid += type == "sliding_attention";
    }
    if (slid != 0 && slid != c.num_decoder_layers) reader.Fail("layers with and without a window are not supported");
    sliding = slid != 0;
  }
  if (!sliding) return;
  if (!window || *window < 1) reader.Fail("sliding_window is not a size");
  c.attention_type = "local_sliding";
  c.sliding_window_size = *window;
}

void ReadLlama(HfConfigReader& reader, HfConfig& hf) {
  ModelConfig& c = hf.config;
  c.decoder_block = hf.model_type == "mistral" ? "mistral" : "llama2";
  ReadSizes(reader, c);
  ReadPlainRope(reader, c);
  c.query_pre_attn_scalar = 1 / std::sqrt(static_cast<double>(c.head_dim));
  reader.Expect("mlp_bias", false);
  if (hf.model_type == "qwen2") {
    c.attention_bias = true;  // of queries, keys and values, never of the way out
    ReadWindow(reader, reader.FindBool("use_sliding_window").value_or(false), c);
  } else {
    reader.Expect("attention_bias", false);
    ReadWindow(reader, hf.model_type == "mistral", c);
  }
}

void ReadMixtral(HfConfigReader& reader, HfConfig& hf) {
  ModelConfig& c = hf.config;
  c.decoder_block = "mixtral";
  ReadSizes(reader, c);
  ReadPlainRope(reader, c);
  c.query_pre_attn_scalar = 1 / std::sqrt(static_cast<double>(c.head_dim));
  c.num_experts = reader.Size({"num_local_experts"});
  c.num_experts_per_tok = reader.Size({"num_experts_per_tok"});
  ReadWindow(reader, true, c);
}

void ReadQwen3(HfConfigReader& reader, HfConfig& hf) {
  ModelConfig& c = hf.config;
  const bool experts = hf.model_type == "qwen3_moe";
  c.decoder_block = experts ? "qwen3_moe" : "qwen3";
  ReadSizes(reader, c);
  ReadPlainRope(reader, c);
  c.use_qk_norm = true;
  reader.Expect("attention_bias", false);
  ReadWindow(reader, reader.FindBool("use_sliding_window").value_or(false), c);
  if (!experts) return;
  c.num_experts = reader.Size({"num_experts", "num_local_experts"});
  c.num_experts_per_tok = reader.Size({"num_experts_per_tok"});
  c.moe_mlp_dim = reader.Size({"moe_intermediate_size"});
  reader.Expect("decoder_sparse_step", 1);
  reader.Expect("mlp_only_layers", Json::array());
  // Softmax over all and divided by the sum of the chosen is the softmax of the chosen.
  if (!reader.FindBool("norm_topk_prob").value_or(false)) c.routed_score_func = "softmax";
}

void ReadDeepSeekExperts(HfConfigReader& reader, bool v3, ModelConfig& c) {
  c.num_experts = reader.Size({"n_routed_experts"});
  c.num_experts_per_tok = reader.Size({"num_experts_per_tok"});
  c.shared_experts = reader.FindInt({"n_shared_experts"}).value_or(0);
  c.moe_mlp_dim = reader.Size({"moe_intermediate_size"});
  c.first_num_dense_layers = reader.FindInt({"first_k_dense_replace"}).value_or(0);
  if (c.first_num_dense_layers < 0 || c.first_num_dense_layers > c.num_decoder_layers || c.shared_experts < 0 ||
      c.shared_experts > kMostExperts) {
    reader.Fail("first_k_dense_replace or n_shared_experts is out of range");
  }
  c.routed_scaling_factor = reader.FindNumber({"routed_scaling_factor"}).value_or(1);
  c.routed_score_func = v3 ? "sigmoid" : "softmax";
  c.routed_bias = v3;
  reader.Expect("scoring_func", c.routed_score_func);
  reader.Expect("moe_layer_freq", 1);
  reader.Expect("norm_topk_prob", v3);
  const std::string method = reader.FindText({"topk_method"}).value_or(v3 ? "noaux_tc" : "greedy");
  const int64_t groups = reader.FindInt({"n_group"}).value_or(1), top = reader.FindInt({"topk_group"}).value_or(1);
  if (method != (v3 ? "noaux_tc" : "greedy") && !(method == "group_limited_greedy" && !v3)) {
    reader.Fail(fmt::format("topk_method '{}' is not supported", method));
  }
  if (method == "greedy" || groups <= 1) return;
  if (top < 1 || top > groups || c.num_experts % groups != 0) {
    reader.Fail(fmt::format("{} of {} groups of {} experts", top, groups, c.num_experts));
  }
  c.n_routing_groups = groups;
  c.topk_routing_group = top;
}

void ReadDeepSeek(HfConfigReader& reader, HfConfig& hf) {
  ModelConfig& c = hf.config;
  const bool v3 = hf.model_type == "deepseek_v3";
  c.decoder_block = "deepseek";
  c.attention_type = "mla";
  reader.Ignore({"head_dim", "qk_head_dim"});
  ReadSizes(reader, c);
  c.q_lora_rank = reader.SizeOr({"q_lora_rank"}, 0);
  c.kv_lora_rank = reader.Size({"kv_lora_rank"});
  c.qk_nope_head_dim = reader.Size({"qk_nope_head_dim"});
  c.qk_rope_head_dim = reader.Size({"qk_rope_head_dim"});
  c.v_head_dim = reader.Size({"v_head_dim"});
  reader.Expect("attention_bias", false);
  reader.Expect("mlp_bias", false);
  ReadLatentRope(reader, c);
  ReadDeepSeekExperts(reader, v3, c);
  hf.skipped_layers = reader.FindInt({"num_nextn_predict_layers"}).value_or(0);
}

void ReadGpt2(HfConfigReader& reader, HfConfig& hf) {
  ModelConfig& c = hf.config;
  c.decoder_block = "gpt3";
  c.vocab_size = reader.Size({"vocab_size"});
  c.emb_dim = reader.Size({"n_embd", "hidden_size"});
  c.num_query_heads = c.num_kv_heads = reader.Size({"n_head", "num_attention_heads"});
  c.head_dim = c.emb_dim / c.num_query_heads;
  c.num_decoder_layers = reader.Size({"n_layer", "num_hidden_layers"});
  c.mlp_dim = reader.SizeOr({"n_inner"}, 4 * c.emb_dim);
  c.max_target_length = c.trainable_position_size = reader.Size({"n_positions", "max_position_embeddings"});
  c.normalization_layer_epsilon = reader.FindNumber({"layer_norm_epsilon"}).value_or(1e-5);
  c.mlp_activations = {ActivationOf(reader, {"activation_function"}, "gelu_new")};
  c.fused_qkv = true;
  c.logits_via_embedding = reader.FindBool("tie_word_embeddings").value_or(true);
  c.normalize_embedding_logits = false;
  c.logits_dot_in_fp32 = true;  // a tied head is not rounded
  if (c.num_decoder_layers > kMostLayers || c.emb_dim % c.num_query_heads != 0) reader.Fail("the sizes do not fit");
  reader.Expect("scale_attn_weights", true);
  reader.Expect("scale_attn_by_inverse_layer_idx", false);
  reader.Expect("add_cross_attention", false);
  reader.Ignore({"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                 "summary_proj_to_labels", "summary_type", "summary_use_proj", "task_specific_params", "resid_pdrop",
                 "embd_pdrop", "attn_pdrop"});
}

struct Family {
  std::string_view model_type;
  void (*read)(HfConfigReader&, HfConfig&);
};

constexpr Family kFamilies[] = {
    {"llama", ReadLlama},         {"mistral", ReadLlama}, {"qwen2", ReadLlama},     {"mixtral", ReadMixtral},
    {"gpt2", ReadGpt2},           {"qwen3", ReadQwen3},   {"qwen3_moe", ReadQwen3}, {"deepseek_v2", ReadDeepSeek},
    {"deepseek_v3", ReadDeepSeek}};

// Keys of other architectures that change the numbers; a file that has one with a meaning must not be read without it.
void RefuseForeignMaths(HfConfigReader& reader) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "clip_qkv",
                          "embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier",
                          "alibi", "parallel_attn", "use_qk_norm", "qk_layernorm", "no_rope_layers"}) {
    const Json* value = reader.Find(key);
    if (value == nullptr || *value == false || *value == Json::array()) continue;
    reader.Fail(fmt::format("{} is set, which models of this type do not have", key));
  }
}

DType DTypeOf(HfConfigReader& reader) {
  const std::string name = reader.FindText({"dtype", "torch_dtype"}).value_or("float32");
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  return DType::kF32;
}

}  // namespace

std::vector<std::string_view> HfModelTypes() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  return names;
}

HfConfig ParseHfConfig(std::string_view text, const std::string& where) {
  const Json json = ParseStrictJson(text, where, {.bytes = size_t{16} << 20, .depth = 64});
  if (!json.is_object()) ThrowFile("{}: not a JSON object", where);
  HfConfigReader reader(json, where);
  HfConfig hf;
  hf.model_type = reader.FindText({"model_type"}).value_or("");
  for (const Family& family : kFamilies) {
    if (family.model_type != hf.model_type) continue;
    reader.Ignore({"architectures", "attention_dropout", "bos_token_id", "eos_token_id", "pad_token_id",
                   "initializer_range", "pretraining_tp", "use_cache", "transformers_version", "output_router_logits",
                   "router_aux_loss_coef", "router_jitter_noise", "aux_loss_alpha", "seq_aux", "ep_size",
                   "_name_or_path", "auto_map", "tokenizer_class", "torchscript"});
    if (const Json* quantization = reader.Find("quantization_config")) hf.quantization = *quantization;
    hf.dtype = DTypeOf(reader);
    family.read(reader, hf);
    RefuseForeignMaths(reader);
    hf.config.model_name = hf.model_type;
    for (const std::string& key : reader.Unread()) hf.notes.push_back(fmt::format("key '{}' is not read", key));
    return hf;
  }
  throw Error(ErrorCode::kFile, fmt::format("{}: unsupported architecture '{}'", where, hf.model_type.substr(0, 60)),
              fmt::format("known: {}", fmt::join(HfModelTypes(), " ")));
}

HfConfig ReadHfConfig(const std::filesystem::path& file) { return ParseHfConfig(ReadSmallFile(file), file.string()); }

}  // namespace octavo::weights
