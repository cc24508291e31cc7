// Models with random weights: what the benchmarks of converting, serving and the engine work on. Header only, since
// bench_common knows neither models nor checkpoints.
#pragma once

#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "octavo/base/function_ref.h"
#include "octavo/checkpoint/checkpoint_writer.h"
#include "octavo/models/model.h"
#include "octavo/weights/model_json.h"

namespace octavo::bench {

// A llama of a common width; 16 layers make 0.85 B parameters.
inline models::ModelConfig RandomLlama(int64_t layers) {
  models::ModelConfig config;
  config.model_name = "random-llama";
  config.emb_dim = 2048;
  config.num_decoder_layers = layers;
  config.num_query_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.mlp_dim = 5632;
  config.vocab_size = 32000;
  config.max_target_length = 1024;
  return config;
}

// Uniform numbers of about the size of trained weights.
class UniformWeights {
 public:
  explicit UniformWeights(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  float operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<float>(state_ >> 40) - 8388608.0f) * (0.05f / 8388608.0f);
  }

 private:
  uint64_t state_;
};

// One call of `next` for each element, cut off to bf16.
template <typename Next>
Tensor MakeBF16(const Shape& shape, Next next) {
  Tensor tensor = Tensor::Empty(shape, DType::kBF16);
  auto* data = reinterpret_cast<uint16_t*>(tensor.MutableRawData());
  for (int64_t i = 0; i < shape.size(); ++i) {
    const float value = next();
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    data[i] = static_cast<uint16_t>(bits >> 16);
  }
  return tensor;
}

// A checkpoint in bf16: weight(shape, seed) makes each parameter, seeds count from 1; `more` adds other files.
inline void WriteModel(
    const std::filesystem::path& folder, const models::ModelConfig& config,
    FunctionRef<Tensor(const Shape&, uint64_t)> weight,
    FunctionRef<void(CheckpointWriter&)> more = [](CheckpointWriter&) {}) {
  const std::unique_ptr<models::Model> model = models::MakeModel(config);
  std::vector<PlannedParameter> planned;
  for (const ops::Parameter* parameter : model->parameters()) {
    planned.push_back({parameter->name, parameter->shape().size() * 2});
  }
  CheckpointWriter writer(folder, planned, {});
  uint64_t seed = 0;
  for (const ops::Parameter* parameter : model->parameters()) {
    const Shape& shape = parameter->shape();
    writer.Add(parameter->name, {{{parameter->name, "BF16", {shape.begin(), shape.end()}}, weight(shape, ++seed)}});
  }
  more(writer);
  writer.manifest().kind = "params";
  writer.manifest().model = weights::ModelToJson(model->config()).dump();
  writer.Close();
  writer.Publish();
}

}  // namespace octavo::bench
