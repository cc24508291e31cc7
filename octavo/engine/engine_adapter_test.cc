// Adapters in JetStream's words: chosen by each prompt, in mixed steps, each row with the bits it has alone, the base
// model what it was before and after.
#include <gmock/gmock.h>

#include "octavo/base/error_test_support.h"
#include "octavo/base/temp_folder.h"
#include "octavo/engine/engine_fixture.h"
#include "octavo/engine/validate.h"
#include "octavo/weights/test_adapters.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kQuery = "decoder/layers_1/self_attention/query/kernel";
constexpr const char* kOut = "decoder/layers_0/self_attention/out/kernel";
constexpr const char* kDown = "decoder/layers_1/mlp/wo/kernel";

// Factors of one weight [in, out].
quant::LoraFactors Factors(int64_t in, int64_t out, uint32_t seed, int64_t rank = 3) {
  return {{"a", ops::RandomTensor({in, rank}, seed)}, {"b", ops::RandomTensor({rank, out}, seed + 1)}, 0.5f};
}

quant::LoraAdapter Adapter(const std::string& name, uint32_t seed) {
  quant::LoraAdapter adapter;
  adapter.name = name;
  adapter.factors[kQuery] = Factors(24, 24, seed);
  adapter.factors[kOut] = Factors(24, 24, seed + 10);
  adapter.factors[kDown] = Factors(40, 24, seed + 20);
  adapter.factors["decoder/logits_dense/kernel"] = Factors(24, 61, seed + 30);
  return adapter;
}

class EngineAdapterTest : public EngineTest {
 protected:
  PrefillOptions With(const std::string& adapter) const {
    PrefillOptions options = greedy_;
    options.adapter = adapter;
    return options;
  }
};

TEST_F(EngineAdapterTest, RowsHaveTheBitsTheyHaveAlone) {
  const quant::RecipeChoice int8 = Int8();
  for (const quant::RecipeChoice* recipe : {static_cast<const quant::RecipeChoice*>(nullptr), &int8}) {
    SCOPED_TRACE(recipe == nullptr ? "float" : "int8");
    const auto base = HashesAlone(*Make({}, recipe), one_, greedy_, 6);
    const auto engine = Make({.max_concurrent_decodes = 4}, recipe);
    engine->LoadAdapter(Adapter("poet", 1));
    engine->LoadAdapter(Adapter("coder", 100));
    EXPECT_THAT(engine->adapters(), ElementsAre("coder", "poet"));
    const auto poet = HashesAlone(*engine, one_, With("poet"), 6), coder = HashesAlone(*engine, one_, With("coder"), 6);
    EXPECT_NE(poet[0], base[0]);
    EXPECT_NE(coder[0], base[0]);
    EXPECT_NE(coder[0], poet[0]);
    EXPECT_EQ(HashesAlone(*engine, one_, greedy_, 6), base);
    // All of them in one step, twice the same among them.
    DecodeState state = engine->InitDecodeState();
    engine->Insert(engine->Prefill(one_, With("coder")).prefix, state, 0);
    engine->Insert(engine->Prefill(one_, greedy_).prefix, state, 1);
    engine->Insert(engine->Prefill(one_, With("poet")).prefix, state, 2);
    engine->Insert(engine->Prefill(one_, With("coder")).prefix, state, 3);
    for (size_t step = 0; step <= 6; ++step) {
      if (step == 4) engine->UnloadAdapter("coder");  // slots that have it keep it
      if (step > 0) engine->Generate(state);
      EXPECT_EQ(HashOf(state.logits(0)), coder[step]) << step;
      EXPECT_EQ(HashOf(state.logits(1)), base[step]) << step;
      EXPECT_EQ(HashOf(state.logits(2)), poet[step]) << step;
      EXPECT_EQ(HashOf(state.logits(3)), coder[step]) << step;
    }
    engine->UnloadAdapter("poet");
    EXPECT_TRUE(engine->adapters().empty());
    EXPECT_EQ(HashesAlone(*engine, one_, greedy_, 6), base);
    // The same name again, with other factors.
    engine->LoadAdapter(Adapter("coder", 1));
    EXPECT_EQ(HashesAlone(*engine, one_, With("coder"), 6), poet);
  }
}

TEST_F(EngineAdapterTest, EveryKindOfPrefillTakesThem) {
  const auto engine = Make({.prefill_chunk_size = 2});
  engine->LoadAdapter(Adapter("poet", 1));
  const std::string expected = HashOf(engine->Prefill(one_, With("poet")).prefix.logits());
  EXPECT_EQ(HashOf(engine->PrefillMultisampling(one_, 2, With("poet")).prefix.logits()), expected);
  const std::vector<std::vector<int32_t>> prompts = {two_, one_};
  EXPECT_EQ(HashOf(engine->PrefillConcat(prompts, With("poet"))[1].prefix.logits()), expected);
  // What follows a prefix runs with the prefix's adapter, and says so.
  const std::span<const int32_t> all(one_);
  const Engine::Prefilled begin = engine->Prefill(all.first(2), With("poet"));
  EXPECT_EQ(HashOf(engine->Prefill(all.subspan(2), With("poet"), &begin.prefix).prefix.logits()), expected);
  EXPECT_EQ(UsageMessage([&] { engine->Prefill(all.subspan(2), greedy_, &begin.prefix); }),
            "Prefill: adapter='' cache_scope='' are not those of the existing prefix");
  PrefillOptions scoped = With("poet");
  scoped.cache_scope = "another client";
  EXPECT_EQ(UsageMessage([&] { engine->Prefill(all.subspan(2), scoped, &begin.prefix); }),
            "Prefill: adapter='poet' cache_scope='another client' are not those of the existing prefix");
}

// Pages are never shared between a prompt with an adapter and the same without.
TEST_F(EngineAdapterTest, PrefixPagesBelongToOneAdapter) {
  const std::vector<int32_t> prompt(80, 11);
  const auto fresh = Make({.prefix_cache = false}), engine = Make();
  for (Engine* each : {fresh.get(), engine.get()}) each->LoadAdapter(Adapter("poet", 1));
  for (const std::string name : {"", "poet", "", "poet"}) {
    EXPECT_EQ(HashesAlone(*engine, prompt, With(name), 2), HashesAlone(*fresh, prompt, With(name), 2)) << name;
  }
}

TEST_F(EngineAdapterTest, FoldersOfPeft) {
  const TempFolder folder;
  weights::WriteRandomAdapter(folder / "poet", Config(), 1);
  const auto engine = Make();
  const auto base = HashesAlone(*engine, one_, greedy_, 3);
  engine->LoadAdapter("poet", folder / "poet");
  EXPECT_NE(HashesAlone(*engine, one_, With("poet"), 3), base);
  EXPECT_EQ(HashesAlone(*engine, one_, greedy_, 3), base);
  EXPECT_EQ(UsageMessage([&] { engine->LoadAdapter("poet", folder / "poet"); }), "an adapter 'poet' is loaded already");
  EXPECT_THAT(ErrorText(ErrorCode::kFile, [&] { engine->LoadAdapter("nobody", folder / "nobody"); }),
              HasSubstr("no adapter_model.safetensors in "));
  models::ModelConfig wider = Config();
  wider.mlp_dim = 48;
  weights::WriteRandomAdapter(folder / "stranger", wider, 1);
  EXPECT_THAT(UsageMessage([&] { engine->LoadAdapter("stranger", folder / "stranger"); }),
              HasSubstr("expected [3, 40] and [24, 3]"));
  EXPECT_THAT(engine->adapters(), ElementsAre("poet"));
  // Parameters that replace the model take its adapters along.
  engine->LoadParams(Config(), TensorsOf(*model_));
  EXPECT_TRUE(engine->adapters().empty());
}

TEST_F(EngineAdapterTest, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(Engine({}).LoadAdapter(Adapter("poet", 1)), Error);
  const auto engine = Make();
  EXPECT_EQ(UsageMessage([&] { engine->Prefill(one_, With("poet")); }), "no adapter 'poet' is loaded");
  EXPECT_EQ(UsageMessage([&] { engine->UnloadAdapter("poet"); }), "no adapter 'poet' is loaded");
  const auto refused = [&](const std::string& weight, const quant::LoraFactors& factors) {
    quant::LoraAdapter adapter = Adapter("poet", 1);
    adapter.factors[weight] = factors;
    return UsageMessage([&] { engine->LoadAdapter(adapter); });
  };
  EXPECT_EQ(refused(kDown, Factors(48, 24, 1)),
            "adapter poet: decoder/layers_1/mlp/wo/kernel is [40, 24], the factors are [48, 3] and [3, 24]");
  // As many elements, cut in another place.
  EXPECT_EQ(refused(kDown, Factors(24, 40, 1)),
            "adapter poet: decoder/layers_1/mlp/wo/kernel is [40, 24], the factors are [24, 3] and [3, 40]");
  EXPECT_EQ(refused("decoder/layers_7/mlp/wo/kernel", Factors(40, 24, 1)),
            "adapter poet: the model multiplies by no decoder/layers_7/mlp/wo/kernel");
  EXPECT_EQ(refused("decoder/decoder_norm/scale", Factors(24, 1, 1)),
            "adapter poet: adapters of decoder/decoder_norm/scale are not supported");
  EXPECT_EQ(refused("decoder/layers_0/mlp/wo", Factors(40, 24, 1)),
            "adapter poet: the model multiplies by no decoder/layers_0/mlp/wo");
  quant::LoraFactors narrow = Factors(40, 24, 1);
  narrow.a.value = Tensor::Zeros({40, 3}, DType::kBF16);
  EXPECT_THAT(refused(kDown, narrow), HasSubstr("wo/kernel are bf16 and f32, not f32"));
  quant::LoraAdapter empty;
  empty.name = "empty";
  EXPECT_EQ(UsageMessage([&] { engine->LoadAdapter(empty); }), "adapter empty: it has no factors");
  engine->LoadAdapter(Adapter("poet", 1));
  EXPECT_EQ(UsageMessage([&] { engine->LoadAdapter(Adapter("poet", 1)); }), "an adapter 'poet' is loaded already");
  EXPECT_EQ(UsageMessage([&] { engine->LoadAdapter(Adapter("", 1)); }), "an adapter needs a name");
  // Experts are ragged products.
  models::ModelConfig experts = models::TinyMixtral();
  experts.max_target_length = 100;
  const auto model = models::MakeModel(experts);
  models::Initialize(*model, RngKey::FromSeed(5), bench_.pool);
  Engine mixture({});
  mixture.LoadParams(experts, TensorsOf(*model));
  for (const ops::Parameter* parameter : model->parameters()) {
    if (parameter->shape().rank() != 3 || parameter->name.find("MoeBlock") == std::string::npos) continue;
    quant::LoraAdapter adapter;
    adapter.name = "expert";
    adapter.factors[parameter->name] = Factors(24, 20, 1);
    EXPECT_EQ(UsageMessage([&] { mixture.LoadAdapter(adapter); }),
              fmt::format("adapter expert: adapters of {} are not supported", parameter->name));
  }
}

}  // namespace
}  // namespace octavo::engine
