// For tests of models: tiny configurations, random batches, and one step of loss and gradients.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "octavo/models/model.h"
#include "octavo/ops/remat.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"

namespace octavo::models {

inline ModelConfig TinyLlama() {
  ModelConfig config;
  config.decoder_block = "llama2";
  config.vocab_size = 61;
  config.emb_dim = 24;
  config.num_query_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.mlp_dim = 40;
  config.num_decoder_layers = 2;
  return config;
}

inline ModelConfig TinyGpt3() {
  ModelConfig config = TinyLlama();
  config.decoder_block = "gpt3";
  config.num_kv_heads = 4;
  config.mlp_activations = {"gelu"};
  config.fused_qkv = true;
  config.logits_via_embedding = true;
  config.normalize_embedding_logits = false;
  config.use_iota_embed = true;
  config.trainable_position_size = 2048;
  return config;
}

inline ModelConfig TinyMixtral(bool sparse = true) {
  ModelConfig config = TinyLlama();
  config.decoder_block = "mixtral";
  config.moe_mlp_dim = 20;
  config.num_experts = 4;
  config.num_experts_per_tok = 2;
  config.sparse_matmul = sparse;
  config.load_balance_loss_weight = 0.01;
  return config;
}

inline ModelConfig TinyDeepSeek(bool v3 = true) {
  ModelConfig config = TinyMixtral();
  config.decoder_block = "deepseek";
  config.attention_type = "mla";
  config.num_decoder_layers = 3;
  config.first_num_dense_layers = 1;
  config.num_kv_heads = config.num_query_heads;
  config.q_lora_rank = v3 ? 10 : 0;
  config.kv_lora_rank = 12;
  config.qk_nope_head_dim = 6;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 5;
  config.shared_experts = 2;
  config.routed_score_func = v3 ? "sigmoid" : "softmax";
  config.routed_bias = v3;
  config.routed_scaling_factor = 2.5;
  config.n_routing_groups = v3 ? 2 : -1;
  config.topk_routing_group = v3 ? 1 : -1;
  config.rope_type = "yarn";
  config.rope_factor = 4;
  config.original_max_position_embeddings = 16;
  config.max_position_embeddings = 64;
  return config;
}

inline ModelConfig TinyGemma2() {
  ModelConfig config = TinyLlama();
  config.decoder_block = "gemma2";
  config.mlp_activations = {"gelu", "linear"};
  config.use_post_attn_norm = config.use_post_ffw_norm = true;
  config.sliding_window_size = 4;
  config.attn_logits_soft_cap = 5;
  config.final_logits_soft_cap = 3;
  return config;
}

inline ModelConfig TinyQwen3() {
  ModelConfig config = TinyLlama();
  config.decoder_block = "qwen3";
  config.use_qk_norm = true;
  return config;
}

inline ModelConfig TinyGemma() {
  ModelConfig config = TinyLlama();
  config.decoder_block = "gemma";
  config.num_kv_heads = 1;
  config.mlp_activations = {"gelu", "linear"};
  return config;
}

inline ModelConfig TinyQwen2() {
  ModelConfig config = TinyLlama();
  config.decoder_block = "qwen2";
  config.attention_bias = true;
  return config;
}

// Experts that take 1.25 times their share of a row, and drop the rest.
inline ModelConfig TinyCapacity() {
  ModelConfig config = TinyMixtral(false);
  config.capacity_factor = 1.25;
  return config;
}

inline ModelConfig TinyMtp() {
  ModelConfig config = TinyDeepSeek();
  config.mtp_num_layers = 2;
  config.mtp_loss_scaling_factor = 0.5;
  return config;
}

struct TestBatch {
  Tensor tokens, targets, segmentation, positions;
  ops::Rows rows;
};

// Random tokens; with `segments`, row 0 holds two of them and some padding at the end.
inline TestBatch RandomBatch(int64_t batch, int64_t length, int64_t vocab, bool segments, uint32_t seed = 7) {
  std::mt19937 random(seed);
  TestBatch result;
  std::vector<int32_t> tokens, targets, ids, positions;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t cut = length / 3, end = length - 2;
      const bool packed = segments && b == 0;
      ids.push_back(!packed ? 1 : t < cut ? 1 : t < end ? 2 : 0);
      positions.push_back(static_cast<int32_t>(!packed || t < cut ? t : t < end ? t - cut : t - end));
      tokens.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
      targets.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab)));
    }
  }
  const Shape shape{batch, length};
  result.tokens = ops::IntTensor(shape, tokens);
  result.targets = ops::IntTensor(shape, targets);
  result.segmentation = ops::IntTensor(shape, ids);
  result.positions = ops::IntTensor(shape, positions);
  result.rows = ops::RowsOfBatch(result.positions, result.segmentation);
  return result;
}

struct TestStep {
  float loss = 0;
  LossParts parts;
  std::map<std::string, Tensor> grads;
  int64_t replayed = 0, skipped = 0;
};

inline TestStep RunStep(ops::Context& context, Model& model, const TestBatch& batch, LossOptions options = {}) {
  options.total_weights = static_cast<double>(batch.tokens.size());
  options.mtp_weights = static_cast<double>(MtpWeights(batch.segmentation, model.mtp_layers()));
  ops::Tape tape;
  context.tape = &tape;
  TestStep step;
  const ops::Var loss =
      Loss(context, model, batch.tokens, batch.targets, batch.segmentation, batch.rows, options, &step.parts);
  Tensor one = Tensor::Empty({}, DType::kF32);
  one.MutableData<float>()[0] = 1;
  tape.Run(context, loss, one);
  context.tape = nullptr;
  step.loss = loss.value.Data<float>()[0];
  for (const ops::Parameter* parameter : model.parameters()) {
    const Tensor grad = tape.Grad(*parameter);
    if (grad.defined()) step.grads[parameter->name] = grad.Contiguous();
  }
  step.replayed = tape.replayed_ops();
  step.skipped = tape.skipped_ops();
  return step;
}

// A digest over names and bits.
inline std::string HashOf(const std::map<std::string, Tensor>& tensors) {
  std::string bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes += name;
    bytes.append(reinterpret_cast<const char*>(tensor.RawData()), static_cast<size_t>(tensor.bytes()));
  }
  return std::to_string(std::hash<std::string>()(bytes));
}

}  // namespace octavo::models
