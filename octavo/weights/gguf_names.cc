#include "octavo/weights/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

namespace octavo::weights {
namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "llama", true},  {"llama", "mistral", true},          {"llama", "mixtral", true},
    {"qwen2", "qwen2", false}, {"qwen3", "qwen3", false},           {"qwen3moe", "qwen3_moe", false},
    {"gpt2", "gpt2", false},   {"deepseek2", "deepseek_v2", false}, {"deepseek2", "deepseek_v3", false},
};

using Pair = std::pair<std::string_view, std::string_view>;  // in plain folders, in GGUF

// Parts of a layer's names; '#' is the number of an expert. Whole names are those with an ending.
constexpr Pair kLlamaParts[] = {
    {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
constexpr Pair kMixtralParts[] = {
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.#.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.#.w2", "ffn_down_exps"},
    {"block_sparse_moe.experts.#.w3", "ffn_up_exps"},
};
constexpr Pair kExpertParts[] = {
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.#.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.#.down_proj", "ffn_down_exps"},
    {"mlp.experts.#.up_proj", "ffn_up_exps"},
};
constexpr Pair kDeepSeekParts[] = {
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
};
constexpr Pair kGpt2Parts[] = {
    {"ln_1", "attn_norm"}, {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},  {"mlp.c_fc", "ffn_up"},      {"mlp.c_proj", "ffn_down"},
};
constexpr Pair kEnds[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};
constexpr Pair kGpt2Ends[] = {
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.wpe.weight", "position_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
};

// What the names of one type of models are made of.
struct Names {
  std::string_view prefix;
  std::span<const Pair> ends;
  std::vector<Pair> parts;
};

Names NamesOf(std::string_view model_type) {
  if (model_type == "gpt2") return {"transformer.h.", kGpt2Ends, {std::begin(kGpt2Parts), std::end(kGpt2Parts)}};
  Names names{"model.layers.", kEnds, {std::begin(kLlamaParts), std::end(kLlamaParts)}};
  const auto add = [&](std::span<const Pair> more) { names.parts.insert(names.parts.end(), more.begin(), more.end()); };
  if (model_type == "mixtral") add(kMixtralParts);
  if (model_type.starts_with("deepseek")) add(kDeepSeekParts);  // before "mlp.gate", with which one of them begins
  if (model_type == "qwen3_moe" || model_type.starts_with("deepseek")) add(kExpertParts);
  return names;
}

// "PREFIX12.rest" -> "12", "rest".
struct LayerName {
  std::string_view number, rest;
};
std::optional<LayerName> SplitLayer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 9) return std::nullopt;
  const std::string_view number = name.substr(0, dot);
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return LayerName{number, name.substr(dot + 1)};
}

// "mlp.experts.12.up_proj.weight" -> "mlp.experts.#.up_proj.weight".
std::string WithoutExpert(std::string_view rest) {
  constexpr std::string_view kBefore = ".experts.";
  const size_t at = rest.find(kBefore);
  if (at == std::string_view::npos) return std::string(rest);
  const size_t begin = at + kBefore.size(), end = rest.find('.', begin);
  if (end == std::string_view::npos) return std::string(rest);
  return fmt::format("{}#{}", rest.substr(0, begin), rest.substr(end));
}

// Replaces `from` at the start of `rest` by `to` if it is all of it, or all but an ending such as ".weight".
std::optional<std::string> Translate(std::string_view rest, std::string_view from, std::string_view to) {
  if (!rest.starts_with(from)) return std::nullopt;
  const std::string_view ending = rest.substr(from.size());
  const bool whole = from.ends_with("bias");
  if (whole ? !ending.empty()
            : ending.size() < 2 || ending[0] != '.' || ending.find('.', 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return fmt::format("{}{}", to, ending);
}

}  // namespace

const GgufArchitecture* FindGgufArchitecture(std::string_view model_type) {
  for (const GgufArchitecture& one : kArchitectures) {
    if (one.model_type == model_type) return &one;
  }
  return nullptr;
}

std::vector<std::string_view> GgufArchitectureNames() {
  std::vector<std::string_view> names;
  for (const GgufArchitecture& one : kArchitectures) {
    if (names.empty() || names.back() != one.name) names.push_back(one.name);
  }
  return names;
}

std::string GgufNameOf(std::string_view hf, std::string_view model_type) {
  const Names names = NamesOf(model_type);
  for (const auto& [theirs, gguf] : names.ends) {
    if (theirs == hf) return std::string(gguf);
  }
  const std::optional<LayerName> layer = SplitLayer(hf, names.prefix);
  if (!layer) return "";
  const std::string rest = WithoutExpert(layer->rest);
  for (const auto& [theirs, gguf] : names.parts) {
    const std::optional<std::string> found = Translate(rest, theirs, gguf);
    if (found) return fmt::format("blk.{}.{}", layer->number, *found);
  }
  return "";
}

std::vector<std::string> HfNamesOf(std::string_view gguf, std::string_view model_type, int64_t experts) {
  const Names names = NamesOf(model_type);
  for (const auto& [theirs, name] : names.ends) {
    if (name == gguf) return {std::string(theirs)};
  }
  const std::optional<LayerName> layer = SplitLayer(gguf, "blk.");
  if (!layer) return {};
  for (const auto& [theirs, name] : names.parts) {
    const std::optional<std::string> found = Translate(layer->rest, name, theirs);
    if (!found) continue;
    const std::string whole = fmt::format("{}{}.{}", names.prefix, layer->number, *found);
    const size_t mark = whole.find('#');
    if (mark == std::string::npos) return {whole};
    std::vector<std::string> all;
    for (int64_t i = 0; i < experts; ++i) {
      all.push_back(fmt::format("{}{}{}", whole.substr(0, mark), i, whole.substr(mark + 1)));
    }
    return all;
  }
  return {};
}

GgufLayerName SplitGgufName(std::string_view name) {
  const std::optional<LayerName> layer = SplitLayer(name, "blk.");
  if (!layer) return {std::nullopt, name};
  int64_t number = 0;
  std::from_chars(layer->number.data(), layer->number.data() + layer->number.size(), number);
  return {number, layer->rest};
}

}  // namespace octavo::weights
