#include "octavo/weights/hf_names.h"

#include <cstring>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/transpose.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;

class List {
 public:
  explicit List(const ModelConfig& config) : c(config) {}

  HfPiece& Add(std::string ours, std::string theirs, Shape in, Shape out, bool transposed) {
    pieces.push_back({std::move(ours), {std::move(theirs)}, std::move(in), std::move(out), transposed});
    return pieces.back();
  }
  // A projection of torch: weight [out, in].
  HfPiece& Linear(const std::string& ours, const std::string& theirs, const Shape& in, const Shape& out) {
    return Add(ours + "/kernel", theirs + ".weight", in, out, true);
  }
  void Scale(const std::string& ours, const std::string& theirs, int64_t width) {
    Add(ours + "/scale", theirs + ".weight", {}, {width}, false);
  }
  void Experts(const std::string& ours, const std::string& before, const std::string& after, int64_t in, int64_t out) {
    HfPiece piece{ours, {}, {in}, {out}, true, true};
    for (int64_t i = 0; i < c.num_experts; ++i)
      piece.theirs.push_back(fmt::format("{}.{}.{}.weight", before, i, after));
    pieces.push_back(std::move(piece));
  }
  void Mlp(const std::string& ours, const std::string& theirs, int64_t width) {
    Linear(ours + "/wi_0", theirs + ".gate_proj", {c.emb_dim}, {width});
    Linear(ours + "/wi_1", theirs + ".up_proj", {c.emb_dim}, {width});
    Linear(ours + "/wo", theirs + ".down_proj", {width}, {c.emb_dim});
  }
  void Ends() {
    Add("token_embedder/embedding", "model.embed_tokens.weight", {}, {c.vocab_size, c.emb_dim}, false);
    Scale("decoder/decoder_norm", "model.norm", c.emb_dim);
    if (!c.logits_via_embedding) Linear("decoder/logits_dense", "lm_head", {c.emb_dim}, {c.vocab_size});
  }

  const ModelConfig& c;
  std::vector<HfPiece> pieces;
};

void Attention(List& list, const std::string& ours, const std::string& theirs) {
  const ModelConfig& c = list.c;
  const bool pairs = c.rope_type == "llama3.1";
  const struct {
    const char *ours, *theirs;
    int64_t heads;
    bool turned;
  } kParts[] = {{"query", "q", c.num_query_heads, true},
                {"key", "k", c.num_kv_heads, true},
                {"value", "v", c.num_kv_heads, false}};
  for (const auto& part : kParts) {
    const std::string name = fmt::format("{}.{}_proj", theirs, part.theirs),
                      own = fmt::format("{}/{}", ours, part.ours);
    list.Linear(own, name, {c.emb_dim}, {part.heads, c.head_dim}).to_pairs = pairs && part.turned;
    if (!c.attention_bias) continue;
    list.Add(own + "/bias", name + ".bias", {}, {part.heads, c.head_dim}, false).to_pairs = pairs && part.turned;
  }
  list.Linear(ours + "/out", theirs + ".o_proj", {c.num_query_heads, c.head_dim}, {c.emb_dim});
  if (!c.use_qk_norm) return;
  list.Scale(ours + "/query_norm", theirs + ".q_norm", c.head_dim);
  list.Scale(ours + "/key_norm", theirs + ".k_norm", c.head_dim);
}

void LlamaLike(List& list, const std::string& model_type) {
  const ModelConfig& c = list.c;
  list.Ends();
  for (int64_t i = 0; i < c.num_decoder_layers; ++i) {
    const std::string ours = fmt::format("decoder/layers_{}", i), theirs = fmt::format("model.layers.{}", i);
    list.Scale(ours + "/pre_self_attention_layer_norm", theirs + ".input_layernorm", c.emb_dim);
    list.Scale(ours + "/post_self_attention_layer_norm", theirs + ".post_attention_layernorm", c.emb_dim);
    Attention(list, ours + "/self_attention", theirs + ".self_attn");
    if (model_type == "mixtral") {
      const std::string moe = theirs + ".block_sparse_moe";
      list.Linear(ours + "/MoeBlock_0/gate", moe + ".gate", {c.emb_dim}, {c.num_experts});
      list.Experts(ours + "/MoeBlock_0/wi_0", moe + ".experts", "w1", c.emb_dim, c.mlp_dim);
      list.Experts(ours + "/MoeBlock_0/wi_1", moe + ".experts", "w3", c.emb_dim, c.mlp_dim);
      list.Experts(ours + "/MoeBlock_0/wo", moe + ".experts", "w2", c.mlp_dim, c.emb_dim);
    } else if (model_type == "qwen3_moe") {
      const std::string moe = theirs + ".mlp";
      list.Linear(ours + "/moe_block/gate", moe + ".gate", {c.emb_dim}, {c.num_experts});
      list.Experts(ours + "/moe_block/wi_0", moe + ".experts", "gate_proj", c.emb_dim, c.moe_mlp_dim);
      list.Experts(ours + "/moe_block/wi_1", moe + ".experts", "up_proj", c.emb_dim, c.moe_mlp_dim);
      list.Experts(ours + "/moe_block/wo", moe + ".experts", "down_proj", c.moe_mlp_dim, c.emb_dim);
    } else {
      list.Mlp(ours + "/mlp", theirs + ".mlp", c.mlp_dim);
    }
  }
}

void LatentAttention(List& list, const std::string& ours, const std::string& theirs) {
  const ModelConfig& c = list.c;
  const Shape emb{c.emb_dim}, heads{c.num_query_heads, c.qk_nope_head_dim + c.qk_rope_head_dim};
  if (c.q_lora_rank > 0) {
    list.Linear(ours + "/wq_a", theirs + ".q_a_proj", emb, {c.q_lora_rank});
    list.Scale(ours + "/q_norm", theirs + ".q_a_layernorm", c.q_lora_rank);
    list.Linear(ours + "/wq_b", theirs + ".q_b_proj", {c.q_lora_rank}, heads);
  } else {
    list.Linear(ours + "/query", theirs + ".q_proj", emb, heads);
  }
  list.Linear(ours + "/wkv_a", theirs + ".kv_a_proj_with_mqa", emb, {c.kv_lora_rank + c.qk_rope_head_dim});
  list.Scale(ours + "/kv_norm", theirs + ".kv_a_layernorm", c.kv_lora_rank);
  list.Linear(ours + "/wkv_b", theirs + ".kv_b_proj", {c.kv_lora_rank},
              {c.num_query_heads, c.qk_nope_head_dim + c.v_head_dim});
  list.Linear(ours + "/out", theirs + ".o_proj", {c.num_query_heads, c.v_head_dim}, emb);
}

void DeepSeek(List& list) {
  const ModelConfig& c = list.c;
  list.Ends();
  for (int64_t i = 0; i < c.num_decoder_layers; ++i) {
    const bool dense = i < c.first_num_dense_layers;
    const std::string ours = dense ? fmt::format("decoder/dense_layers_{}", i)
                                   : fmt::format("decoder/moe_layers_{}", i - c.first_num_dense_layers);
    const std::string theirs = fmt::format("model.layers.{}", i), mlp = theirs + ".mlp";
    list.Scale(ours + "/pre_self_attention_layer_norm", theirs + ".input_layernorm", c.emb_dim);
    list.Scale(ours + "/post_self_attention_layer_norm", theirs + ".post_attention_layernorm", c.emb_dim);
    LatentAttention(list, ours + "/self_attention", theirs + ".self_attn");
    if (dense) {
      list.Mlp(ours + "/mlp", mlp, c.mlp_dim);
      continue;
    }
    const std::string moe = ours + "/DeepSeekMoeBlock_0/MoeBlock_0";
    list.Linear(moe + "/gate", mlp + ".gate", {c.emb_dim}, {c.num_experts});
    if (c.routed_bias) list.Add(moe + "/gate/bias", mlp + ".gate.e_score_correction_bias", {}, {c.num_experts}, false);
    list.Experts(moe + "/wi_0", mlp + ".experts", "gate_proj", c.emb_dim, c.moe_mlp_dim);
    list.Experts(moe + "/wi_1", mlp + ".experts", "up_proj", c.emb_dim, c.moe_mlp_dim);
    list.Experts(moe + "/wo", mlp + ".experts", "down_proj", c.moe_mlp_dim, c.emb_dim);
    if (c.shared_experts > 0) {
      list.Mlp(ours + "/DeepSeekMoeBlock_0/shared_experts", mlp + ".shared_experts", c.shared_experts * c.moe_mlp_dim);
    }
  }
}

void Gpt2(List& list, const std::string& prefix) {
  const ModelConfig& c = list.c;
  const Shape emb{c.emb_dim}, heads{c.num_query_heads, c.head_dim}, three{3, c.num_query_heads, c.head_dim};
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    list.Add(ours + "/scale", theirs + ".weight", {}, emb, false).less_one = true;
    list.Add(ours + "/bias", theirs + ".bias", {}, emb, false);
  };
  const auto conv = [&](const std::string& ours, const std::string& theirs, const Shape& in, const Shape& out) {
    list.Add(ours + "/kernel", theirs + ".weight", in, out, false);  // Conv1D: [in, out]
    list.Add(ours + "/bias", theirs + ".bias", {}, out, false);
  };
  list.Add("token_embedder/embedding", prefix + "wte.weight", {}, {c.vocab_size, c.emb_dim}, false);
  list.Add("decoder/position_embedder/embedding", prefix + "wpe.weight", {}, {c.trainable_position_size, c.emb_dim},
           false);
  for (int64_t i = 0; i < c.num_decoder_layers; ++i) {
    const std::string ours = fmt::format("decoder/layers_{}", i), theirs = fmt::format("{}h.{}", prefix, i);
    norm(ours + "/pre_self_attention_norm", theirs + ".ln_1");
    conv(ours + "/self_attention/qkv_proj", theirs + ".attn.c_attn", emb, three);
    conv(ours + "/self_attention/out", theirs + ".attn.c_proj", heads, emb);
    norm(ours + "/mlp/mlp_layer_norm", theirs + ".ln_2");
    conv(ours + "/mlp/wi", theirs + ".mlp.c_fc", emb, {c.mlp_dim});
    conv(ours + "/mlp/wo", theirs + ".mlp.c_proj", {c.mlp_dim}, emb);
  }
  norm("decoder/decoder_norm", prefix + "ln_f");
  if (!c.logits_via_embedding) list.Linear("decoder/logits_dense", "lm_head", emb, {c.vocab_size});
}

Shape Joined(const Shape& a, const Shape& b) {
  std::vector<int64_t> dims(a.begin(), a.end());
  dims.insert(dims.end(), b.begin(), b.end());
  return Shape(dims);
}

// [..., D] with halves <-> neighbours.
Tensor Regroup(const Tensor& tensor, bool to_pairs) {
  std::vector<int64_t> dims(tensor.shape().begin(), tensor.shape().end());
  const int64_t pairs = dims.back() / 2;
  dims.back() = to_pairs ? 2 : pairs;
  dims.push_back(to_pairs ? pairs : 2);
  const Tensor split = tensor.Reshape(dims);
  return split.SwapAxes(split.rank() - 2, split.rank() - 1).Contiguous().Reshape(tensor.shape());
}

Tensor Plus(const Tensor& tensor, float number) {
  std::vector<float> values = ConvertFloats(tensor, DType::kF32).ToVector<float>();
  for (float& value : values) value += number;
  return Tensor::FromValues(tensor.shape(), DType::kF32, values);
}

Tensor ImportOne(const HfPiece& piece, const Tensor& theirs) {
  Tensor ours = piece.transposed ? Transposed(theirs) : theirs;
  ours = ours.Reshape(Joined(piece.in, piece.out));
  if (piece.to_pairs) ours = Regroup(ours, true);
  return piece.less_one ? Plus(ours, -1) : ours;
}

Tensor ExportOne(const HfPiece& piece, const Tensor& ours) {
  Tensor theirs = piece.less_one ? Plus(ours, 1) : ours;
  if (piece.to_pairs) theirs = Regroup(theirs, false);
  if (!piece.transposed) return theirs.Reshape(piece.TheirShape());
  return Transposed(theirs.Reshape({piece.in.size(), piece.out.size()}));
}

Tensor Stack(std::span<const Tensor> tensors) {
  const Tensor& first = tensors[0];
  std::vector<int64_t> dims = {static_cast<int64_t>(tensors.size())};
  dims.insert(dims.end(), first.shape().begin(), first.shape().end());
  Tensor stack = Tensor::Empty(Shape(dims), first.dtype());
  std::byte* out = stack.MutableRawData();
  for (const Tensor& one : tensors) {
    OCTAVO_CHECK(one.shape() == first.shape() && one.dtype() == first.dtype());
    const Tensor packed = one.Contiguous();
    std::memcpy(out, packed.RawData(), static_cast<size_t>(packed.bytes()));
    out += packed.bytes();
  }
  return stack;
}

}  // namespace

Shape HfPiece::OurShape() const {
  const Shape one = Joined(in, out);
  return stacked ? Joined({static_cast<int64_t>(theirs.size())}, one) : one;
}

Shape HfPiece::TheirShape() const {
  if (in.rank() == 0) return out.rank() == 2 && !ours.ends_with("/bias") ? out : Shape{out.size()};
  return transposed ? Shape{out.size(), in.size()} : Shape{in.size(), out.size()};
}

std::vector<HfPiece> HfPieces(const std::string& model_type, const ModelConfig& config, std::string_view gpt2_prefix) {
  List list(config);
  if (model_type == "gpt2") {
    Gpt2(list, std::string(gpt2_prefix));
  } else if (model_type.starts_with("deepseek")) {
    DeepSeek(list);
  } else {
    LlamaLike(list, model_type);
  }
  return std::move(list.pieces);
}

bool IsHfBuffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

Tensor ImportPiece(const HfPiece& piece, std::span<const Tensor> theirs) {
  OCTAVO_CHECK(theirs.size() == piece.theirs.size());
  if (!piece.stacked) return ImportOne(piece, theirs[0]);
  std::vector<Tensor> ours;
  for (const Tensor& one : theirs) ours.push_back(ImportOne(piece, one));
  return Stack(ours);
}

std::vector<Tensor> ExportPiece(const HfPiece& piece, const Tensor& ours) {
  if (!piece.stacked) return {ExportOne(piece, ours)};
  std::vector<Tensor> theirs;
  for (int64_t i = 0; i < ours.dim(0); ++i) theirs.push_back(ExportOne(piece, ours.Select(0, i).Contiguous()));
  return theirs;
}

std::optional<QArray> ImportPiece(const HfPiece& piece, std::span<const QArray> theirs, std::string* reason) {
  std::vector<QArray> ours;
  try {
    for (const QArray& one : theirs) {
      ours.push_back(Reshape(piece.transposed ? Transpose(one) : one, Joined(piece.in, piece.out).dims()));
    }
  } catch (const Error&) {
    *reason = "its tiles run across heads";
    return std::nullopt;
  }
  if (piece.to_pairs) {
    for (QArray& one : ours) {
      const int64_t scales = one.scale.dim(-1), width = one.qvalue.dim(-1);
      if (scales != 1 && scales != width) {
        *reason = "its tiles run across rotary features";
        return std::nullopt;
      }
      one.qvalue = Regroup(one.qvalue.Contiguous(), true);
      if (scales == 1) continue;
      one.scale = Regroup(one.scale.Contiguous(), true);
      if (one.zero_point) one.zero_point = Regroup(one.zero_point->Contiguous(), true);
    }
  }
  if (!piece.stacked) return ours[0];
  std::vector<Tensor> codes, scales, zeros;
  for (const QArray& one : ours) {
    if (one.format != ours[0].format || one.scale.shape() != ours[0].scale.shape() ||
        one.zero_point.has_value() != ours[0].zero_point.has_value()) {
      *reason = "its experts are quantized in different ways";
      return std::nullopt;
    }
    codes.push_back(one.qvalue);
    scales.push_back(one.scale);
    if (one.zero_point) zeros.push_back(*one.zero_point);
  }
  QArray stack{Stack(codes), Stack(scales), std::nullopt, ours[0].format};
  if (!zeros.empty()) stack.zero_point = Stack(zeros);
  return stack;
}

}  // namespace octavo::weights
