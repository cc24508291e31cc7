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
