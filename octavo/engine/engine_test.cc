// JetStream's words over a tiny model: every way into a slot gives the tokens of the plain full forward pass, and slots
// do not touch each other.
#include "octavo/engine/engine.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "octavo/base/error_test_support.h"
#include "octavo/engine/engine_fixture.h"
#include "octavo/engine/validate.h"

namespace octavo::engine {
namespace {

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
  std::map<std::string, Tensor> less = TensorsOf(*model_);
  less.erase("decoder/decoder_norm/scale");
  less["decoder/decoder_norm/scales"] = Tensor::Zeros({24}, DType::kF32);
  EXPECT_THROW(Engine({}).LoadParams(Config(), less), Error);
}

// Every number that decides what is drawn is checked where it comes in: an id past the vocabulary would be an index.
TEST_F(EngineTest, SamplingAndTokensAreChecked) {
  const auto engine = Make();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [&](const std::function<void(Sampling&)>& change) {
    PrefillOptions options = greedy_;
    change(options.sampling);
    const std::string text = UsageMessage([&] { engine->Prefill(one_, options); });
    EXPECT_EQ(UsageMessage([&] { engine->PrefillMultisampling(one_, 2, options); }), text);
    EXPECT_EQ(UsageMessage([&] {
                engine->PrefillConcat(std::vector<std::vector<int32_t>>{two_, one_}, options);
              }),
              text);
    return text;
  };
  EXPECT_EQ(refused([](Sampling& s) {
              s.logit_bias = {{999999, 1}};
            }),
            "logit_bias holds token 999999, the model has tokens 0 … 60");
  EXPECT_EQ(refused([](Sampling& s) {
              s.logit_bias = {{-1, 1}};
            }),
            "logit_bias holds token -1, the model has tokens 0 … 60");
  EXPECT_EQ(refused([&](Sampling& s) { s.logit_bias = {{1, nan}}; }), "logit_bias=nan is outside -100 … 100");
  EXPECT_EQ(refused([&](Sampling& s) { s.temperature = nan; }), "temperature=nan is outside 0 … 1000000");
  EXPECT_EQ(refused([](Sampling& s) { s.temperature = -1; }), "temperature=-1 is outside 0 … 1000000");
  EXPECT_EQ(refused([](Sampling& s) { s.top_k = -1; }), "top_k=-1 is outside 0 … 2147483647");
  EXPECT_EQ(refused([&](Sampling& s) { s.top_p = nan; }), "top_p=nan is outside (0, 1]");
  EXPECT_EQ(refused([](Sampling& s) { s.min_p = 2; }), "min_p=2 is outside 0 … 1");
  EXPECT_EQ(refused([](Sampling& s) { s.repetition_penalty = 0; }), "repetition_penalty=0 is outside (0, 1000]");
  EXPECT_EQ(UsageMessage([&] { engine->PrefillMultisampling(one_, 0, greedy_); }),
            "PrefillMultisampling: samples=0 must be at least 1");
  for (const int32_t wrong : {61, -1}) {
    const std::string text = fmt::format("prompt holds token {}, the model has tokens 0 … 60", wrong);
    const std::vector<int32_t> prompt = {5, wrong};
    EXPECT_EQ(UsageMessage([&] { engine->Prefill(prompt, greedy_); }), text);
    EXPECT_EQ(UsageMessage([&] {
                engine->PrefillConcat(std::vector<std::vector<int32_t>>{one_, prompt}, greedy_);
              }),
              text);
  }
  EXPECT_TRUE(UsageMessage([&] {
                engine->Prefill(std::vector<int32_t>(100, 1), greedy_);
              }).starts_with("prompt has 100 tokens, the model takes 100"));
  EXPECT_EQ(UsageMessage([&] { engine->Prefill({}, greedy_); }), "prompt is empty");
  // Nothing of what was refused keeps pages, and the engine goes on.
  EXPECT_EQ(engine->runner().free_pages(), engine->runner().pages());
  EXPECT_EQ(engine->Prefill(one_, greedy_).prefix.first()[0].token, Expected(one_, 1)[0]);
}

TEST_F(EngineTest, OptionsAreChecked) {
  EXPECT_EQ(UsageMessage([&] { Make({.max_target_length = 101}); }),
            "max_target_length=101, the model takes 100 tokens");
  EXPECT_EQ(Make({.max_target_length = 64})->max_prefill_length(), 63);
  EXPECT_EQ(UsageMessage([] { Engine({.max_concurrent_decodes = 0}); }), "max_concurrent_decodes=0 must be at least 1");
  EXPECT_EQ(UsageMessage([] { Engine({.max_target_length = -1}); }), "max_target_length=-1 must be at least 0");
  EXPECT_EQ(UsageMessage([] { Engine({.prefill_chunk_size = -1}); }), "prefill_chunk_size=-1 must be at least 0");
  EXPECT_EQ(UsageMessage([] { Engine({.threads = 0}); }), "threads=0 must be at least 1");
  const quant::RecipeChoice int8 = Int8();
  EXPECT_EQ(UsageMessage([&] { Make({.checkpoint_is_quantized = true}, &int8); }),
            "tensors in memory is not quantized but checkpoint_is_quantized=true");
}

TEST_F(EngineTest, WhatAnEngineSaysOfItself) {
  const auto engine = Make({.max_concurrent_decodes = 3, .prefill_chunk_size = 2});
  EXPECT_EQ(engine->max_concurrent_decodes(), 3);
  EXPECT_EQ(engine->samples_per_slot(), 1);
  EXPECT_EQ(engine->max_prefill_length(), 99);
  EXPECT_TRUE(engine->use_chunked_prefill());
  EXPECT_EQ(engine->prefill_chunk_size(), 2);
  EXPECT_FALSE(Make()->use_chunked_prefill());
  EXPECT_EQ(UsageMessage([] { Engine({}).max_prefill_length(); }), "Engine: no model is loaded; call LoadParams first");
  // A model of 61 tokens has no tokenizer of its own, and bytes are too many.
  EXPECT_EQ(UsageMessage([&] { engine->BuildTokenizer(); }), "BuildTokenizer: the loaded model brings no tokenizer");
  EXPECT_EQ(UsageMessage([&] { engine->BuildTokenizer("bytes"); }), "bytes has 258 tokens, the model 61");
}

// The reference's layout: token, valid, number of generated tokens.
TEST(ResultTokens, OneRowPerSlot) {
  ResultTokens result;
  result.Add(7, true, 3, -0.5f);
  result.Add(0, false, 2, 0, "logits are NaN");
  EXPECT_EQ(result.rows(), 2);
  EXPECT_EQ(result.data, (std::vector<int32_t>{7, 1, 3, 0, 0, 2}));
  const ResultTokens::Slot first = result.GetResultAtSlot(0), second = result.GetResultAtSlot(1);
  EXPECT_EQ(first.tokens, std::vector<int32_t>{7});
  EXPECT_EQ(first.valid, std::vector<bool>{true});
  EXPECT_EQ(first.lengths, 3);
  EXPECT_EQ(first.log_prob, std::vector<float>{-0.5f});
  EXPECT_EQ(first.error, "");
  EXPECT_EQ(second.valid, std::vector<bool>{false});
  EXPECT_EQ(second.lengths, 2);
  EXPECT_EQ(second.error, "logits are NaN");
  EXPECT_EQ(ResultTokens::tokens_idx, (std::pair<int, int>{0, 1}));
  EXPECT_EQ(ResultTokens::valid_idx, (std::pair<int, int>{1, 2}));
  EXPECT_EQ(ResultTokens::length_idx, (std::pair<int, int>{2, 3}));
  EXPECT_EQ(UsageMessage([&] { result.GetResultAtSlot(2); }), "ResultTokens: slot 2 of 2");
}

TEST_F(EngineTest, OnePrefixInManySlots) {
  const auto engine = Make({.max_concurrent_decodes = 4});
  DecodeState state = engine->InitDecodeState();
  const Engine::Prefilled one = engine->Prefill(one_, greedy_);
  ASSERT_EQ(one.prefix.first().size(), 1u);
  const std::vector<int64_t> slots = {3, 0, 1, 2};
  engine->BulkInsert(one.prefix, state, slots);
  std::vector<std::vector<int32_t>> streams(4, {one.prefix.first()[0].token});
  const std::vector<std::string> alone = HashesAlone(*Make(), one_, greedy_, 8);
  for (size_t step = 1; step <= 8; ++step) {
    const ResultTokens result = engine->Generate(state);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(HashOf(state.logits(slots[i])), alone[step]) << "slot " << slots[i] << " in step " << step;
      streams[i].push_back(result.GetResultAtSlot(slots[i]).tokens[0]);
    }
  }
  for (const std::vector<int32_t>& stream : streams) EXPECT_EQ(stream, Expected(one_, 9));
  // What is refused changes nothing.
  EXPECT_EQ(UsageMessage([&] {
              engine->BulkInsert(one.prefix, state, std::vector<int64_t>{0, 4});
            }),
            "slot 4 does not exist; there are 4");
  EXPECT_EQ(UsageMessage([&] {
              engine->BulkInsert(one.prefix, state, std::vector<int64_t>{1, 1});
            }),
            "slot 1 is given twice");
  for (int64_t slot = 0; slot < 4; ++slot) EXPECT_EQ(state.generated_tokens(slot), 8);
}

// Prompts that come and go in mid-decode leave the logits of the others alone, to the bit.
TEST_F(EngineTest, JoiningAndLeavingLeaveOthersAlone) {
  const quant::RecipeChoice int8 = Int8();
  for (const quant::RecipeChoice* recipe : {static_cast<const quant::RecipeChoice*>(nullptr), &int8}) {
    for (const int64_t chunk : {0, 2}) {
      SCOPED_TRACE(fmt::format("{} chunk {}", recipe == nullptr ? "float" : "int8", chunk));
      const std::vector<int32_t> three(70, 11);
      const auto a = HashesAlone(*Make({}, recipe), one_, greedy_, 10);
      const auto b = HashesAlone(*Make({}, recipe), two_, greedy_, 10);
      const auto c = HashesAlone(*Make({}, recipe), three, greedy_, 10);
      const auto engine = Make({.max_concurrent_decodes = 3, .prefill_chunk_size = chunk}, recipe);
      DecodeState state = engine->InitDecodeState();
      engine->Insert(engine->Prefill(one_, greedy_).prefix, state, 2);
      EXPECT_EQ(HashOf(state.logits(2)), a[0]);
      for (size_t step = 1; step <= 10; ++step) {
        if (step == 3) engine->Insert(engine->Prefill(two_, greedy_).prefix, state, 0);
        if (step == 4) engine->Insert(engine->Prefill(three, greedy_).prefix, state, 1);
        if (step == 6) engine->FreeResource(state, 0);                                   // leaves
        if (step == 8) engine->Insert(engine->Prefill(two_, greedy_).prefix, state, 1);  // over another
        engine->Generate(state);
        EXPECT_EQ(HashOf(state.logits(2)), a[step]) << step;
        if (step >= 3 && step < 6) {
          EXPECT_EQ(HashOf(state.logits(0)), b[step - 2]) << step;
        }
        if (step >= 4 && step < 8) {
          EXPECT_EQ(HashOf(state.logits(1)), c[step - 3]) << step;
        }
        if (step >= 8) {
          EXPECT_EQ(HashOf(state.logits(1)), b[step - 7]) << step;
        }
        EXPECT_EQ(state.active(0), step >= 3 && step < 6);
      }
    }
  }
}

// A model in which the embedding of one token is NaN: whoever draws it fails in the step that feeds it.
TEST_F(EngineTest, NanInAStepFreesItsSlotAndNoOther) {
  const int32_t broken = 17;
  PrefillOptions never = greedy_, forced = greedy_;
  never.sampling.logit_bias = {{broken, -100}};
  forced.sampling.logit_bias = {{broken, 100}};
  const quant::RecipeChoice int8 = Int8();
  for (const quant::RecipeChoice* recipe : {static_cast<const quant::RecipeChoice*>(nullptr), &int8}) {
    SCOPED_TRACE(recipe == nullptr ? "float" : "int8");
    const std::vector<std::string> healthy = HashesAlone(*Make({}, recipe), two_, never, 10);
    Tensor table = model_->parameter_set().Find("token_embedder/embedding")->tensor().Clone();
    for (int64_t c = 0; c < 24; ++c) {
      table.MutableData<float>()[broken * 24 + c] = std::numeric_limits<float>::quiet_NaN();
    }
    std::map<std::string, Tensor> tensors = TensorsOf(*model_);
    tensors["token_embedder/embedding"] = table;
    // Two pages: whoever comes after the broken stream gets the page with its NaN.
    Engine engine({.max_concurrent_decodes = 2, .kv_bytes = 2 * PageBytes(*model_, {})});
    engine.LoadParams(Config(), tensors, recipe);
    DecodeState state = engine.InitDecodeState();
    engine.Insert(engine.Prefill(two_, never).prefix, state, 1);
    engine.Insert(engine.Prefill(one_, forced).prefix, state, 0);
    EXPECT_EQ(state.token(0), broken);
    EXPECT_EQ(engine.runner().free_pages(), 0);
    const ResultTokens step = engine.Generate(state);
    EXPECT_FALSE(step.GetResultAtSlot(0).valid[0]);
    EXPECT_NE(step.GetResultAtSlot(0).error.find("NaN"), std::string::npos) << step.GetResultAtSlot(0).error;
    EXPECT_TRUE(step.GetResultAtSlot(1).valid[0]);
    EXPECT_EQ(HashOf(state.logits(1)), healthy[1]);
    EXPECT_FALSE(state.active(0));
    EXPECT_TRUE(state.active(1));
    EXPECT_EQ(engine.runner().free_pages(), 1);
    EXPECT_EQ(engine.Generate(state).GetResultAtSlot(0).error, "");  // told once
    EXPECT_EQ(HashOf(state.logits(1)), healthy[2]);
    engine.Insert(engine.Prefill(two_, never).prefix, state, 0);
    EXPECT_EQ(HashOf(state.logits(0)), healthy[0]);
    for (size_t i = 1; i <= 8; ++i) {
      engine.Generate(state);
      EXPECT_EQ(HashOf(state.logits(0)), healthy[i]) << i;
      EXPECT_EQ(HashOf(state.logits(1)), healthy[i + 2]) << i;
    }
    // In a prompt: alone an error; among others a result that says so.
    std::vector<int32_t> bad = two_;
    bad.push_back(broken);
    engine.FreeResource(state, 0);
    EXPECT_THROW(engine.Prefill(bad, greedy_), SampleError);
    EXPECT_EQ(engine.runner().free_pages(), 1);
  }
}

TEST_F(EngineTest, APackedPromptFailsAlone) {
  Tensor table = model_->parameter_set().Find("token_embedder/embedding")->tensor().Clone();
  for (int64_t c = 0; c < 24; ++c) table.MutableData<float>()[60 * 24 + c] = std::numeric_limits<float>::quiet_NaN();
  std::map<std::string, Tensor> tensors = TensorsOf(*model_);
  tensors["token_embedder/embedding"] = table;
  Engine engine({.max_concurrent_decodes = 3});
  engine.LoadParams(Config(), tensors);
  for (const bool logp : {false, true}) {
    PrefillOptions options = greedy_;
    options.return_prompt_logp = logp;
    const std::vector<std::vector<int32_t>> prompts = {one_, two_};  // the first ends in token 60
    const std::vector<Engine::Prefilled> packed = engine.PrefillConcat(prompts, options);
    EXPECT_FALSE(packed[0].result.GetResultAtSlot(0).valid[0]);
    EXPECT_TRUE(packed[0].prefix.first().empty());
    EXPECT_TRUE(packed[1].result.GetResultAtSlot(0).valid[0]);
    DecodeState state = engine.InitDecodeState();
    EXPECT_EQ(UsageMessage([&] { engine.Insert(packed[0].prefix, state, 0); }),
              "the prefix has no first token: its prompt failed");
    engine.InsertPartial(packed, state, std::vector<int64_t>{0, 2});
    EXPECT_FALSE(state.active(0));
    const ResultTokens step = engine.Generate(state);
    EXPECT_FALSE(step.GetResultAtSlot(0).valid[0]);
    EXPECT_EQ(step.GetResultAtSlot(0).error, packed[0].result.errors[0]);
    EXPECT_TRUE(step.GetResultAtSlot(2).valid[0]);
    EXPECT_EQ(HashOf(state.logits(2)), HashesAlone(*Make(), two_, greedy_, 1)[1]);
  }
}

TEST_F(EngineTest, PromptLogProbabilities) {
  // Of every token by the rows of a runner that are asked for one by one.
  const auto reference = Make({.prefix_cache = false});
  const auto expected = [&](const std::vector<int32_t>& prompt) {
    std::vector<float> logp = {std::numeric_limits<float>::quiet_NaN()};
    const std::span<const int32_t> all(prompt);
    for (size_t i = 1; i < prompt.size(); ++i) {
      const SequenceId id = reference->runner().Open(all.first(i), 0, "x", nullptr);
      const Work work{id, all.first(i)};
      const Tensor row = reference->runner().Step({&work, 1}).Select(0, 0);
      logp.push_back(LogProbability(bench_.context.isa, row.Values<float>(), prompt[i], 0).logprob);
      reference->runner().Close(id);
    }
    return logp;
  };
  const auto expect = [](std::span<const float> found, const std::vector<float>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::isnan(wanted[i])) {
        EXPECT_TRUE(std::isnan(found[i])) << i;
      } else {
        EXPECT_EQ(found[i], wanted[i]) << i;
      }
    }
  };
  std::vector<int32_t> three(80);
  for (size_t i = 0; i < three.size(); ++i) three[i] = static_cast<int32_t>(i * 7 % 61);
  PrefillOptions options = greedy_;
  options.return_prompt_logp = true;
  for (const int64_t chunk : {0, 2, 7}) {
    SCOPED_TRACE(chunk);
    const auto engine = Make({.prefill_chunk_size = chunk});
    engine->Prefill(three, greedy_);  // its page is known: tokens must be run all the same
    const std::vector<std::vector<int32_t>> prompts = {one_, three, two_};
    const std::vector<Engine::Prefilled> packed = engine->PrefillConcat(prompts, options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      expect(packed[i].prefix.prompt_logp(), expected(prompts[i]));
      const Engine::Prefilled single = engine->Prefill(prompts[i], options);
      expect(single.prefix.prompt_logp(), expected(prompts[i]));
      EXPECT_EQ(HashOf(packed[i].prefix.logits()), HashOf(single.prefix.logits()));
      EXPECT_EQ(packed[i].result.log_prob, single.result.log_prob);
      EXPECT_TRUE(engine->Prefill(prompts[i], greedy_).prefix.prompt_logp().empty());
    }
    // Behind an existing prefix each value stays at its token.
    const std::span<const int32_t> all(three);
    const Engine::Prefilled asked = engine->Prefill(all.first(30), options);
    const Engine::Prefilled not_asked = engine->Prefill(all.first(30), greedy_);
    expect(engine->Prefill(all.subspan(30), options, &asked.prefix).prefix.prompt_logp(), expected(three));
    std::vector<float> rest = expected(three);
    std::fill(rest.begin(), rest.begin() + 30, std::numeric_limits<float>::quiet_NaN());
    expect(engine->Prefill(all.subspan(30), options, &not_asked.prefix).prefix.prompt_logp(), rest);
    EXPECT_TRUE(engine->Prefill(all.subspan(30), greedy_, &asked.prefix).prefix.prompt_logp().empty());
  }
}

// The steps of a packed prefill hold prefill_chunk_size tokens, whatever the prompts; the bits are those of one step.
TEST_F(EngineTest, PackedPromptsInChunks) {
  const std::vector<std::vector<int32_t>> prompts = {one_, two_, std::vector<int32_t>(70, 11), two_};
  const auto whole = Make();
  const std::vector<Engine::Prefilled> expected = whole->PrefillConcat(prompts, greedy_);
  for (const int64_t chunk : {1, 3, 64}) {
    const auto engine = Make({.prefill_chunk_size = chunk});
    const std::vector<Engine::Prefilled> packed = engine->PrefillConcat(prompts, greedy_);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(HashOf(packed[i].prefix.logits()), HashOf(expected[i].prefix.logits())) << chunk << " " << i;
      EXPECT_EQ(packed[i].result.data, expected[i].result.data);
    }
  }
  EXPECT_TRUE(whole->PrefillConcat({}, greedy_).empty());
}

TEST_F(EngineTest, ParametersStayWhileSomebodyNeedsThem) {
  const auto engine = Make();
  const auto load = [&] { engine->LoadParams(Config(), TensorsOf(*model_)); };
  {
    const Engine::Prefilled first = engine->Prefill(one_, greedy_);
    EXPECT_EQ(UsageMessage(load), "LoadParams: 1 of the prefixes and decode states of the loaded model are left");
    DecodeState state = engine->InitDecodeState();
    engine->Insert(first.prefix, state, 0);
    EXPECT_THROW(load(), Error);
    EXPECT_EQ(Drain(*engine, state, 0, 4), Expected(one_, 4));  // what was refused did no harm
  }
  {
    const DecodeState empty = engine->InitDecodeState();
    EXPECT_THROW(load(), Error);
  }
  load();
  // Nor does a model that cannot be loaded replace one that runs.
  EXPECT_THROW(engine->LoadParams(Config(), {}), Error);
  EXPECT_EQ(engine->Prefill(one_, greedy_).prefix.first()[0].token, Expected(one_, 1)[0]);
}

TEST_F(EngineTest, PrefixesAndStatesOutliveTheirEngine) {
  auto engine = Make();
  Engine::Prefilled first = engine->Prefill(one_, greedy_);
  DecodeState state = engine->InitDecodeState();
  engine->Insert(first.prefix, state, 0);
  engine.reset();
  EXPECT_EQ(state.next_pos(0), 5);
  EXPECT_EQ(HashOf(state.logits(0)), HashOf(first.prefix.logits()));
}

TEST_F(EngineTest, StrangersAreRefused) {
  const auto engine = Make(), other = Make();
  Engine::Prefilled mine = engine->Prefill(one_, greedy_), theirs = other->Prefill(one_, greedy_);
  DecodeState state = engine->InitDecodeState(), their_state = other->InitDecodeState();
  const std::string prefix = "the prefix is of another engine", decode = "the decode state is of another engine";
  EXPECT_EQ(UsageMessage([&] { engine->Insert(theirs.prefix, state, 0); }), prefix);
  EXPECT_EQ(UsageMessage([&] { engine->BulkInsert(theirs.prefix, state, std::vector<int64_t>{0, 1}); }), prefix);
  EXPECT_EQ(UsageMessage([&] { engine->InsertPartial({&theirs, 1}, state, std::vector<int64_t>{0}); }), prefix);
  EXPECT_EQ(UsageMessage([&] { engine->Prefill(two_, greedy_, &theirs.prefix); }), prefix);
  EXPECT_EQ(UsageMessage([&] { engine->Insert(mine.prefix, their_state, 0); }), decode);
  EXPECT_EQ(UsageMessage([&] { engine->Generate(their_state); }), decode);
  EXPECT_EQ(UsageMessage([&] { engine->FreeResource(their_state, 0); }), decode);
  // Moved from.
  Prefix moved = std::move(mine.prefix);
  EXPECT_EQ(UsageMessage([&] { engine->Insert(mine.prefix, state, 0); }), "the prefix was moved from");
  EXPECT_EQ(UsageMessage([&] { engine->Prefill(two_, greedy_, &mine.prefix); }), "the prefix was moved from");
  engine->Insert(moved, state, 0);
  DecodeState later = std::move(state);
  EXPECT_EQ(UsageMessage([&] { engine->Generate(state); }), "the decode state was moved from");
  EXPECT_EQ(Drain(*engine, later, 0, 3), Expected(one_, 3));
  // Assigning gives back what was there.
  later = engine->InitDecodeState();
  moved = engine->Prefill(two_, greedy_).prefix;
  EXPECT_FALSE(later.active(0));
  EXPECT_EQ(engine->runner().free_pages(), engine->runner().pages() - 1);
}

// An engine has no thread of its own: whoever drives it computes in its float mode.
TEST_F(EngineTest, AnyThreadMayDrive) {
  for (const int threads : {1, 2}) {
    const auto engine = Make({.threads = threads});
    std::vector<int32_t> tokens;
    std::thread([&] {
      std::fesetenv(FE_DFL_ENV);  // as a thread has it that is older than the engine
      DecodeState state = engine->InitDecodeState();
      engine->Insert(engine->Prefill(one_, greedy_).prefix, state, 1);
      tokens = Drain(*engine, state, 1, 5);
      // Subnormal numbers are what they were for the rest of this thread.
      volatile float tiny = std::numeric_limits<float>::min();
      EXPECT_GT(tiny / 2, 0);
    }).join();
    EXPECT_EQ(tokens, Expected(one_, 5));
  }
}

}  // namespace
}  // namespace octavo::engine
