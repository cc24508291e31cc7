// For tests of the Engine of JetStream's words: a tiny model in memory, and what it gives without an engine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octavo/base/digest.h"
#include "octavo/config/settings.h"
#include "octavo/engine/engine.h"
#include "octavo/models/test_models.h"

namespace octavo::engine {

inline std::map<std::string, Tensor> TensorsOf(models::Model& model) {
  std::map<std::string, Tensor> tensors;
  for (const ops::Parameter* parameter : model.parameters()) tensors[parameter->name] = parameter->tensor();
  return tensors;
}

inline std::string HashOf(const Tensor& tensor) {
  const Tensor packed = tensor.Contiguous();
  return DigestHex({packed.RawData(), static_cast<size_t>(packed.bytes())});
}

// Qwix's int8 rules, as a user asks for them.
inline quant::RecipeChoice Int8() {
  return quant::ChooseRecipe(Settings::Load({.words = {"quantization=int8", "use_qwix_quantization=true"}}));
}

class EngineTest : public testing::Test {
 protected:
  EngineTest() : bench_(1), model_(models::MakeModel(Config())) {
    models::Initialize(*model_, RngKey::FromSeed(5), bench_.pool);
    greedy_.sampling.temperature = 0;
  }

  static models::ModelConfig Config() {
    models::ModelConfig config = models::TinyLlama();
    config.max_target_length = 100;
    return config;
  }

  std::unique_ptr<Engine> Make(EngineOptions options = {}, const quant::RecipeChoice* recipe = nullptr) {
    auto engine = std::make_unique<Engine>(options);
    engine->LoadParams(Config(), TensorsOf(*model_), recipe);
    return engine;
  }

  // Greedy continuation by full forward passes.
  std::vector<int32_t> Expected(std::vector<int32_t> tokens, int count) {
    std::vector<int32_t> result;
    for (int i = 0; i < count; ++i) {
      const auto length = static_cast<int64_t>(tokens.size());
      const ops::Var hidden =
          models::Forward(bench_.context, *model_, ops::IntTensor({1, length}, tokens), ops::RowsOfShape(1, length));
      const auto all = model_->Logits(bench_.context, hidden).value.Reshape({length, 61}).ToVector<float>();
      const auto last = all.end() - 61;
      result.push_back(static_cast<int32_t>(std::max_element(last, all.end()) - last));
      tokens.push_back(result.back());
    }
    return result;
  }

  static std::vector<int32_t> Drain(Engine& engine, DecodeState& state, int64_t slot, int count) {
    std::vector<int32_t> tokens = {state.token(slot)};
    for (int i = 1; i < count; ++i) {
      const ResultTokens::Slot result = engine.Generate(state).GetResultAtSlot(slot);
      EXPECT_TRUE(result.valid[0]);
      EXPECT_EQ(result.lengths, i);
      EXPECT_LT(result.log_prob[0], 0);
      tokens.push_back(result.tokens[0]);
    }
    return tokens;
  }

  // Hashes of the logits of a prompt's last token and of `steps` more, alone in an engine's slot 0.
  static std::vector<std::string> HashesAlone(Engine& engine, const std::vector<int32_t>& prompt,
                                              const PrefillOptions& options, int steps) {
    DecodeState state = engine.InitDecodeState();
    engine.Insert(engine.Prefill(prompt, options).prefix, state, 0);
    std::vector<std::string> hashes = {HashOf(state.logits(0))};
    for (int i = 0; i < steps; ++i) {
      engine.Generate(state);
      hashes.push_back(HashOf(state.logits(0)));
    }
    return hashes;
  }

  ops::TestBench bench_;
  std::unique_ptr<models::Model> model_;
  PrefillOptions greedy_;
  const std::vector<int32_t> one_ = {5, 9, 13, 2, 60}, two_ = {7, 7, 1};
};

}  // namespace octavo::engine
