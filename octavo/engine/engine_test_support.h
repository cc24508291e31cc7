// For tests of the engine: the families of the product, recipes with caches, and one model in both of its forms, the
// trainer's (float masters, quantized at each use) and the server's (codes).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "octavo/engine/model_runner.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/models/test_models.h"
#include "octavo/quant/recipe.h"
#include "octavo/weights/load_model.h"

namespace octavo::engine {

// A recipe, and how keys and values are stored.
struct RecipeCase {
  const char* recipe = nullptr;  // null: float
  bool qwix = false;
  std::optional<ops::KvFormat> kv = {};
};

inline std::string NameOf(const RecipeCase& one) {
  std::string name = one.recipe == nullptr ? "float" : std::string(one.recipe) + (one.qwix ? "_qwix" : "");
  if (!one.kv) return name;
  name += std::string("_kv_") + std::string(Info(one.kv->format).name);
  return name + (!one.kv->quantized() ? "" : one.kv->scale_per_head ? "_dkv" : "_heads_and_dkv");
}

inline std::vector<quant::Rule> RulesOf(const RecipeCase& one) {
  std::vector<quant::Rule> rules;
  if (one.recipe != nullptr) {
    quant::Options given;
    if (one.recipe == std::string("w4a8")) given = {{"quantization_group_size", "32"}};  // heads are 32 wide
    rules = quant::RulesOf(quant::FindRecipe(one.recipe, one.qwix), given);
  }
  if (one.kv) {
    quant::Rule rule;
    rule.kv = quant::KvTreatment{*one.kv};
    rules.push_back(rule);
  }
  return rules;
}

// Qwen 3 with experts; the model itself is in models/qwen3.cc.
inline models::ModelConfig TinyQwen3Moe() {
  models::ModelConfig config = models::TinyMixtral();
  config.decoder_block = "qwen3_moe";
  config.use_qk_norm = true;
  config.norm_topk_prob = true;
  return config;
}

// Every family that a model file of the product can name.
inline std::vector<models::ModelConfig> TinyFamilies() {
  return {models::TinyLlama(),  models::TinyGpt3(),  models::TinyMixtral(), models::TinyDeepSeek(), models::TinyGemma(),
          models::TinyGemma2(), models::TinyQwen2(), models::TinyQwen3(),   TinyQwen3Moe()};
}

// Widths that groups of 128 divide.
inline models::ModelConfig Wide(models::ModelConfig config) {
  config.emb_dim = 128;
  config.head_dim = 32;
  config.mlp_dim = 256;
  if (config.moe_mlp_dim > 0) config.moe_mlp_dim = 128;
  if (config.attention_type == "mla") config.v_head_dim = config.q_lora_rank = config.kv_lora_rank = 32;
  config.num_decoder_layers = std::min<int64_t>(config.num_decoder_layers, 2);
  config.max_target_length = 200;
  return config;
}

inline std::vector<int32_t> RandomTokens(int64_t count, int64_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
  return tokens;
}

// Runs what is left of `tokens` of one sequence in pieces; each row must be that of `full` [T, V].
inline void ExpectRows(Runner& runner, SequenceId id, std::span<const int32_t> tokens, int64_t chunk,
                       const Tensor& full) {
  for (int64_t at = runner.length(id); at < std::ssize(tokens);) {
    const int64_t count = std::min<int64_t>(chunk, std::ssize(tokens) - at);
    const Work work{id, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count)), true};
    const Tensor logits = runner.Step({&work, 1});
    ASSERT_TRUE(BitEqual(logits, full.Slice(0, at, at + count))) << "at " << at << ", chunk " << chunk;
    at += count;
  }
}

class QuantizedModel {
 public:
  QuantizedModel(const models::ModelConfig& config, const RecipeCase& one, int threads = 1)
      : rules_(RulesOf(one)), config_(config), bench_(threads) {
    floats_ = models::MakeModel(config);
    models::Initialize(*floats_, RngKey::FromSeed(5), bench_.pool);
    const auto meta = models::MakeModel(config);
    plan_ = weights::ForwardPlan(*meta, rules_);
    frozen_ = models::MakeModel(config);
    const auto sites = weights::FrozenParameters(*meta, plan_);
    for (ops::Parameter* parameter : frozen_->parameters()) {
      const Tensor& weight = floats_->parameter_set().Find(parameter->name)->tensor();
      parameter->value = weight;
      const auto site = sites.find(parameter->name);
      if (site == sites.end()) continue;
      parameter->value = weights::FreezeFor(*site->second, weight, state_, bench_.pool, bench_.context.isa);
      ++frozen_count_;
    }
    provider_.emplace(plan_);
    trainer_.emplace(plan_);
    if (one.kv) options_.kv = *one.kv;
    options_.prefix_cache = false;
  }

  // Logits [T, V] of the trainer's forward pass: float weights, quantized anew.
  Tensor Full(const std::vector<int32_t>& tokens) {
    const auto length = static_cast<int64_t>(tokens.size());
    bench_.context.interceptor = &*trainer_;
    const Tensor in = ops::IntTensor({1, length}, tokens);
    const ops::Var hidden = models::Forward(bench_.context, *floats_, in, ops::RowsOfShape(1, length));
    return floats_->Logits(bench_.context, hidden).value.Reshape({length, config_.vocab_size});
  }

  RunnerParts parts() { return {*frozen_, &*provider_, &state_, bench_.pool, bench_.context.isa}; }
  PackedModel Pack() { return PackWeights(parts(), *provider_); }
  std::unique_ptr<Runner> Make() { return MakeRunner(parts(), options_); }
  int64_t frozen() const { return frozen_count_; }
  models::Model& model() { return *frozen_; }
  models::Model& floats() { return *floats_; }
  quant::Provider& provider() { return *provider_; }  // of the served form
  quant::Provider& trainer() { return *trainer_; }
  const ops::StateStore& state() const { return state_; }
  kernels::Isa isa() const { return bench_.context.isa; }

 private:
  quant::RuleSet rules_;
  models::ModelConfig config_;
  ops::TestBench bench_;
  std::unique_ptr<models::Model> floats_, frozen_;
  quant::Plan plan_;
  ops::StateStore state_;
  std::optional<quant::Provider> provider_, trainer_;
  RunnerOptions options_;
  int64_t frozen_count_ = 0;
};

}  // namespace octavo::engine
