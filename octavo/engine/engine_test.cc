// JetStream's words over a tiny model: every way into a slot gives the tokens of the plain full forward pass, and slots
// do not touch each other.
#include "octavo/engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/models/test_models.h"

namespace octavo::engine {
namespace {

models::ModelConfig Config() {
  models::ModelConfig config = models::TinyLlama();
  config.max_target_length = 100;
  return config;
}

std::map<std::string, Tensor> Tensors(models::Model& model) {
  std::map<std::string, Tensor> tensors;
  for (const ops::Parameter* parameter : model.parameters()) tensors[parameter->name] = parameter->tensor();
  return tensors;
}

class EngineTest : public testing::Test {
 protected:
  EngineTest() : bench_(1), model_(models::MakeModel(Config())) {
    models::Initialize(*model_, RngKey::FromSeed(5), bench_.pool);
    greedy_.sampling.temperature = 0;
  }

  std::unique_ptr<Engine> Make(EngineOptions options = {}) {
    auto engine = std::make_unique<Engine>(options);
    engine->LoadParams(Config(), Tensors(*model_));
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

  ops::TestBench bench_;
  std::unique_ptr<models::Model> model_;
  PrefillOptions greedy_;
  const std::vector<int32_t> one_ = {5, 9, 13, 2, 60}, two_ = {7, 7, 1};
};

TEST_F(EngineTest, PrefillInsertGenerate) {
  for (int64_t chunk : {0, 2}) {
    const auto engine = Make({.max_concurrent_decodes = 3, .prefill_chunk_size = chunk});
    EXPECT_EQ(engine->max_prefill_length(), 99);
    EXPECT_EQ(engine->use_chunked_prefill(), chunk > 0);
    Engine::Prefilled first = engine->Prefill(one_, greedy_);
    EXPECT_EQ(first.prefix.true_length(), 5);
    EXPECT_EQ(first.result.GetResultAtSlot(0).lengths, 0);
    DecodeState state = engine->InitDecodeState();
    engine->Insert(first.prefix, state, 2);
    EXPECT_EQ(state.next_pos(2), 5);
    ResultTokens step = engine->Generate(state);
    EXPECT_FALSE(step.GetResultAtSlot(0).valid[0]);
    EXPECT_EQ(step.data.size(), 9u);
    // The second joins in mid-decode; the first goes on as if alone.
    engine->Insert(engine->Prefill(two_, greedy_).prefix, state, 0);
    const std::vector<int32_t> a = Drain(*engine, state, 0, 6);
    EXPECT_EQ(a, Expected(two_, 6));
    EXPECT_EQ(state.token(2), Expected(one_, 7).back());
    engine->FreeResource(state, 0);
    EXPECT_FALSE(engine->Generate(state).GetResultAtSlot(0).valid[0]);
  }
}

TEST_F(EngineTest, ManySamplesOfOnePrompt) {
  const auto engine = Make({.max_concurrent_decodes = 4});
  PrefillOptions random = greedy_;
  random.sampling.temperature = 1;
  random.sampling.seed = 3;
  const Engine::Prefilled many = engine->PrefillMultisampling(one_, 4, random);
  ASSERT_EQ(many.prefix.first().size(), 4u);
  DecodeState state = engine->InitDecodeState();
  const std::vector<int64_t> slots = {3, 2, 1, 0};
  engine->BulkInsert(many.prefix, state, slots);
  std::vector<std::vector<int32_t>> streams(4);
  for (int step = 0; step < 5; ++step) {
    const ResultTokens result = engine->Generate(state);
    for (size_t i = 0; i < 4; ++i) streams[i].push_back(result.GetResultAtSlot(slots[i]).tokens[0]);
  }
  EXPECT_NE(streams[0], streams[1]);
  // The same seed and sample give the same stream alone.
  DecodeState alone = engine->InitDecodeState();
  engine->Insert(engine->Prefill(one_, random).prefix, alone, 1);
  EXPECT_EQ(alone.token(1), many.prefix.first()[0].token);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(engine->Generate(alone).GetResultAtSlot(1).tokens[0], streams[0][static_cast<size_t>(step)]);
  }
  EXPECT_THROW(engine->BulkInsert(many.prefix, state, std::vector<int64_t>{0, 1}), Error);
}

TEST_F(EngineTest, PackedPromptsAndExistingPrefixes) {
  const auto engine = Make();
  const std::vector<std::vector<int32_t>> prompts = {one_, two_};
  const std::vector<Engine::Prefilled> packed = engine->PrefillConcat(prompts, greedy_);
  DecodeState state = engine->InitDecodeState();
  engine->InsertPartial(packed, state, std::vector<int64_t>{1, 4});
  EXPECT_EQ(Drain(*engine, state, 1, 4), Expected(one_, 4));
  EXPECT_EQ(state.token(4), Expected(two_, 4).back());
  // The rest of a prompt behind what a prefix holds.
  const std::span<const int32_t> all(one_);
  const Engine::Prefilled begin = engine->Prefill(all.first(2), greedy_);
  const Engine::Prefilled whole = engine->Prefill(all.subspan(2), greedy_, &begin.prefix);
  EXPECT_EQ(whole.prefix.true_length(), 5);
  EXPECT_EQ(whole.prefix.first()[0].token, Expected(one_, 1)[0]);
  EXPECT_EQ(whole.result.log_prob, packed[0].result.log_prob);
}

TEST_F(EngineTest, PromptLogProbabilities) {
  const auto engine = Make({.prefill_chunk_size = 2});
  PrefillOptions options = greedy_;
  options.return_prompt_logp = true;
  const Engine::Prefilled first = engine->Prefill(one_, options);
  ASSERT_EQ(first.prefix.prompt_logp().size(), one_.size());
  EXPECT_TRUE(std::isnan(first.prefix.prompt_logp()[0]));
  const std::span<const int32_t> all(one_);
  for (size_t i = 1; i < one_.size(); ++i) {
    const SequenceId id = engine->runner().Open(all.first(i), 0, "x", nullptr);
    const Work work{id, all.first(i)};
    const Tensor row = engine->runner().Step({&work, 1}).Select(0, 0);
    const TokenLogprob expected = LogProbability(bench_.context.isa, row.Values<float>(), one_[i], 0);
    EXPECT_EQ(first.prefix.prompt_logp()[i], expected.logprob) << i;
  }
}

TEST_F(EngineTest, WhatDoesNotFitIsRefused) {
  Engine empty({});
  EXPECT_THROW(empty.Prefill(one_, greedy_), Error);
  const auto engine = Make({.max_concurrent_decodes = 2});
  EXPECT_THROW(engine->Prefill({}, greedy_), Error);
  EXPECT_THROW(engine->Prefill(std::vector<int32_t>(100, 1), greedy_), Error);
  DecodeState state = engine->InitDecodeState();
  const Engine::Prefilled first = engine->Prefill(std::vector<int32_t>(99, 1), greedy_);
  EXPECT_THROW(engine->Insert(first.prefix, state, 2), Error);
  engine->Insert(first.prefix, state, 0);
  engine->Insert(engine->Prefill(two_, greedy_).prefix, state, 1);
  EXPECT_TRUE(engine->Generate(state).GetResultAtSlot(0).valid[0]);
  // The context of slot 0 is full now: it is freed with a reason, slot 1 goes on.
  const ResultTokens full = engine->Generate(state);
  EXPECT_FALSE(full.GetResultAtSlot(0).valid[0]);
  EXPECT_EQ(full.GetResultAtSlot(0).error, "the context is full");
  EXPECT_TRUE(full.GetResultAtSlot(1).valid[0]);
  EXPECT_FALSE(state.active(0));
  std::map<std::string, Tensor> less = Tensors(*model_);
  less.erase("decoder/decoder_norm/scale");
  less["decoder/decoder_norm/scales"] = Tensor::Zeros({24}, DType::kF32);
  EXPECT_THROW(Engine({}).LoadParams(Config(), less), Error);
}

// A token whose embedding is NaN breaks its own stream only.
TEST_F(EngineTest, NanFreesTheSlotAndLeavesOthersAlone) {
  Tensor table = model_->parameter_set().Find("token_embedder/embedding")->tensor().Clone();
  for (int64_t c = 0; c < 24; ++c) table.MutableData<float>()[60 * 24 + c] = std::numeric_limits<float>::quiet_NaN();
  std::map<std::string, Tensor> tensors = Tensors(*model_);
  tensors["token_embedder/embedding"] = table;
  Engine engine({.max_concurrent_decodes = 2});
  engine.LoadParams(Config(), tensors);
  DecodeState state = engine.InitDecodeState();
  engine.Insert(engine.Prefill(two_, greedy_).prefix, state, 1);
  EXPECT_THROW(engine.Prefill(one_, greedy_), SampleError);  // ends in token 60
  EXPECT_EQ(Drain(engine, state, 1, 5), Expected(two_, 5));
}

}  // namespace
}  // namespace octavo::engine
