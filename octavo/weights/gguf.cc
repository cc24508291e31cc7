#include "octavo/weights/gguf.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;

// Parts of a layer's names: theirs in plain folders, in GGUF.
constexpr std::pair<std::string_view, std::string_view> kLayerParts[] = {
    {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
constexpr std::pair<std::string_view, std::string_view> kEnds[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

// "PREFIX12.part.weight" -> 12, "part", ".weight".
struct LayerName {
  std::string_view number, part, ending;
};
std::optional<LayerName> SplitLayer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t first = name.find('.'), last = name.rfind('.');
  if (first == std::string_view::npos || first == 0 || last <= first) return std::nullopt;
  const std::string_view number = name.substr(0, first);
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return LayerName{number, name.substr(first + 1, last - first - 1), name.substr(last)};
}

struct Architecture {
  std::string_view name, model_type;
  bool pairs;  // rows of q and k are permuted
};
constexpr Architecture kArchitectures[] = {
    {"llama", "llama", true}, {"qwen2", "qwen2", false}, {"qwen3", "qwen3", false}};

const Architecture& FindArchitecture(const GgufContent& content) {
  const std::string_view name = content.Text("general.architecture").value_or("");
  std::string known;
  for (const Architecture& one : kArchitectures) {
    if (one.name == name) return one;
    known += fmt::format(" {}", one.name);
  }
  throw Error(ErrorCode::kFile, fmt::format("{}: unsupported architecture '{}'", content.file(), name.substr(0, 60)),
              "known:" + known);
}

// Keys with the architecture before them.
class Keys {
 public:
  Keys(const GgufContent& content, std::string_view architecture) : content_(content), prefix_(architecture) {
    prefix_ += '.';
  }
  int64_t Size(const char* key, std::optional<int64_t> otherwise = std::nullopt) const {
    const std::optional<int64_t> size = content_.Int(prefix_ + key);
    if (!size && otherwise) return *otherwise;
    if (!size) ThrowFile("{}: no key '{}{}'", content_.file(), prefix_, key);
    if (*size < 1 || *size > (int64_t{1} << 31)) ThrowFile("{}: {}{} is {}", content_.file(), prefix_, key, *size);
    return *size;
  }
  std::optional<double> Number(const char* key) const { return content_.Number(prefix_ + key); }
  std::string_view Text(const char* key) const { return content_.Text(prefix_ + key).value_or(""); }
  bool Has(const char* key) const { return content_.Has(prefix_ + key); }

 private:
  const GgufContent& content_;
  std::string prefix_;
};

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

void ReadRope(const GgufContent& content, const Keys& keys, ModelConfig& c) {
  c.rope_max_timescale = keys.Number("rope.freq_base").value_or(10000);
  if (!(c.rope_max_timescale > 0)) ThrowFile("{}: rope.freq_base is {}", content.file(), c.rope_max_timescale);
  if (keys.Size("rope.dimension_count", c.head_dim) != c.head_dim) {
    ThrowFile("{}: only heads that turn as a whole are supported", content.file());
  }
  const std::string_view type = keys.Text("rope.scaling.type");
  const double factor = keys.Number("rope.scaling.factor").value_or(1);
  if (type == "linear") {
    c.rope_linear_scaling_factor = factor;
  } else if (type == "yarn") {
    c.rope_type = "yarn";
    c.rope_interleave = false;
    c.rope_attention_scaling = true;
    c.rope_factor = factor;
    c.original_max_position_embeddings = keys.Size("rope.scaling.original_context_length", c.max_position_embeddings);
  } else if (!type.empty() && type != "none") {
    ThrowFile("{}: rope.scaling.type '{}' is not supported; known: none linear yarn", content.file(), type);
  }
  if (!(factor >= 1)) ThrowFile("{}: rope.scaling.factor is {}", content.file(), factor);
  if (const GgufTensor* factors = content.FindTensor("rope_freqs.weight")) ReadRopeFactors(content, *factors, c);
}

// One tensor of a file as a lattice, where our formats have it.
std::function<Lattice()> LatticeReader(const std::shared_ptr<const GgufFile>& file, const GgufTensor& tensor) {
  if ((tensor.type != GgmlType::kQ8_0 && tensor.type != GgmlType::kQ4_0) || tensor.shape.size() != 2) return nullptr;
  return [file, tensor] {
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const bool eight = tensor.type == GgmlType::kQ8_0;
    const int bytes = Info(tensor.type).bytes;
    Lattice lattice;
    lattice.format = eight ? Format::kInt8 : Format::kInt4;
    lattice.codes = Tensor::Empty(Shape{rows, columns}, DType::kI8);
    lattice.scale = Tensor::Empty(Shape{rows, columns / 32}, DType::kF16);
    lattice.tile_columns = 32;
    lattice.shape = {rows, columns};
    auto* code = lattice.codes.MutableData<int8_t>();
    auto* scale = lattice.scale.MutableData<uint16_t>();
    const auto* block = reinterpret_cast<const uint8_t*>(tensor.bytes.data());
    for (int64_t i = 0; i < rows * columns / 32; ++i, block += bytes, code += 32) {
      std::memcpy(scale++, block, 2);
      if (eight) std::memcpy(code, block + 2, 32);
      for (int j = 0; !eight && j < 16; ++j) {
        code[j] = static_cast<int8_t>((block[2 + j] & 15) - 8);
        code[j + 16] = static_cast<int8_t>((block[2 + j] >> 4) - 8);
      }
    }
    return lattice;
  };
}

Tensor Regroup(const Tensor& rows, int64_t heads, bool to_pairs) {
  const int64_t pairs = rows.dim(0) / heads / 2, inner = rows.size() / rows.dim(0);
  const Tensor split = to_pairs ? rows.Reshape({heads, 2, pairs, inner}) : rows.Reshape({heads, pairs, 2, inner});
  return split.SwapAxes(1, 2).Contiguous().Reshape(rows.shape());
}

// The heads of a permuted tensor; 0: it is not.
int64_t PermutedHeads(std::string_view name, const Architecture& architecture, const ModelConfig& c) {
  if (!architecture.pairs) return 0;
  const std::optional<LayerName> layer = SplitLayer(name, "blk.");
  if (layer && layer->part == "attn_q") return c.num_query_heads;
  return layer && layer->part == "attn_k" ? c.num_kv_heads : 0;
}

LogicalTensor MakeLogical(const std::shared_ptr<const GgufFile>& file, const GgufTensor& tensor, int64_t heads) {
  LogicalTensor logical;
  logical.shape = Shape(tensor.shape);
  const bool divides = heads == 0 || (!tensor.shape.empty() && tensor.shape[0] % (2 * heads) == 0);
  logical.read = [file, tensor, heads, divides] {
    Tensor values = Tensor::Empty(Shape(tensor.shape), DType::kF32);
    DecodeBlocks(tensor.type, tensor.bytes, values.MutableValues<float>());
    return heads > 0 && divides ? RowsToHalves(values, heads) : values;
  };
  const std::function<Lattice()> lattice = LatticeReader(file, tensor);
  if (!lattice) return logical;
  logical.read_lattice = [lattice, heads, divides] {
    Lattice one = lattice();
    if (heads > 0 && divides) {
      one.codes = RowsToHalves(one.codes, heads);
      one.scale = RowsToHalves(one.scale, heads);
    }
    return one;
  };
  return logical;
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

Tensor RowsToHalves(const Tensor& rows, int64_t heads) { return Regroup(rows, heads, false); }
Tensor RowsToPairs(const Tensor& rows, int64_t heads) { return Regroup(rows, heads, true); }

std::string GgufNameOf(std::string_view hf) {
  for (const auto& [theirs, gguf] : kEnds) {
    if (theirs == hf) return std::string(gguf);
  }
  if (const std::optional<LayerName> layer = SplitLayer(hf, "model.layers.")) {
    for (const auto& [theirs, gguf] : kLayerParts) {
      if (theirs == layer->part) return fmt::format("blk.{}.{}{}", layer->number, gguf, layer->ending);
    }
  }
  return "";
}

std::string HfNameOf(std::string_view name) {
  for (const auto& [theirs, gguf] : kEnds) {
    if (gguf == name) return std::string(theirs);
  }
  if (const std::optional<LayerName> layer = SplitLayer(name, "blk.")) {
    for (const auto& [theirs, gguf] : kLayerParts) {
      if (gguf == layer->part) return fmt::format("model.layers.{}.{}{}", layer->number, theirs, layer->ending);
    }
  }
  return "";
}

HfConfig GgufConfig(const GgufContent& content) {
  const Architecture& architecture = FindArchitecture(content);
  const Keys keys(content, architecture.name);
  if (content.Int("split.count").value_or(1) > 1) {
    throw Error(ErrorCode::kFile, fmt::format("{}: one of several files of a model", content.file()),
                "join them first: llama-gguf-split --merge");
  }
  if (keys.Has("expert_count") && keys.Size("expert_count") > 1) {
    ThrowFile("{}: experts in GGUF files are not supported", content.file());
  }
  HfConfig hf;
  hf.model_type = architecture.model_type;
  ModelConfig& c = hf.config;
  c.model_name = hf.model_type;
  c.decoder_block = hf.model_type == "qwen3" ? "qwen3" : "llama2";
  c.emb_dim = keys.Size("embedding_length");
  c.mlp_dim = keys.Size("feed_forward_length");
  c.num_decoder_layers = keys.Size("block_count");
  c.num_query_heads = keys.Size("attention.head_count");
  c.num_kv_heads = keys.Size("attention.head_count_kv", c.num_query_heads);
  c.head_dim = keys.Size("attention.key_length", std::max<int64_t>(1, c.emb_dim / c.num_query_heads));
  c.max_target_length = c.max_position_embeddings = keys.Size("context_length", 2048);
  c.normalization_layer_epsilon = keys.Number("attention.layer_norm_rms_epsilon").value_or(1e-5);
  const GgufTensor* table = content.FindTensor("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2) ThrowFile("{}: no tensor 'token_embd.weight'", content.file());
  c.vocab_size = table->shape[0];
  c.logits_via_embedding = content.FindTensor("output.weight") == nullptr;
  c.normalize_embedding_logits = false;
  c.logits_dot_in_fp32 = true;  // a tied head is not rounded
  c.use_qk_norm = hf.model_type == "qwen3";
  c.attention_bias = hf.model_type == "qwen2";
  if (hf.model_type != "qwen3") c.query_pre_attn_scalar = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (c.num_decoder_layers > 4096 || c.num_query_heads % c.num_kv_heads != 0 || c.head_dim % 2 != 0 ||
      keys.Size("attention.value_length", c.head_dim) != c.head_dim) {
    ThrowFile("{}: its heads and layers do not fit each other", content.file());
  }
  ReadRope(content, keys, c);
  return hf;
}

HfModel OpenGguf(const std::filesystem::path& path) {
  const auto file = std::make_shared<const GgufFile>(path);
  const GgufContent& content = file->content();
  HfModel model;
  model.config = GgufConfig(content);
  const Architecture& architecture = FindArchitecture(content);
  model.tensors.where = path.string();
  model.tensors.method = "gguf";
  for (const GgufTensor& tensor : content.tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // part of the configuration
    std::string name = HfNameOf(tensor.name);
    if (name.empty()) name = std::string(tensor.name);  // listed as superfluous
    model.tensors.tensors.emplace(
        name, MakeLogical(file, tensor, PermutedHeads(tensor.name, architecture, model.config.config)));
  }
  MatchTensors(model, path.string());
  return model;
}

}  // namespace octavo::weights
