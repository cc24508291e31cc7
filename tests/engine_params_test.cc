// One model on every way into the engine: a converted checkpoint, the float checkpoint quantized on load, and tensors
// in memory under the recipe give the same logits, those of the trainer, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "octavo/base/digest.h"
#include "octavo/base/error_test_support.h"
#include "octavo/base/temp_folder.h"
#include "octavo/convert/convert.h"
#include "octavo/dist/communicator.h"
#include "octavo/engine/engine.h"
#include "octavo/models/model.h"
#include "octavo/quant/provider.h"
#include "octavo/train/trainer.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr const char* kCache = "rules:\n- kv_cache: {format: int8, axes: dkv}\n";
constexpr const char* kCacheAndInt8 =
    "rules:\n- kv_cache: {format: int8, axes: dkv}\n- {op_names: [dot_general], weight_qtype: int8, act_qtype: int8}\n";

std::string HashOf(const Tensor& tensor) {
  const Tensor packed = tensor.Contiguous();
  return DigestHex({packed.RawData(), static_cast<size_t>(packed.bytes())});
}

const std::vector<int32_t> kPrompt = {72, 101, 108, 108, 111, 44, 32, 119};

class EngineParams : public testing::Test {
 protected:
  Settings SettingsOf(const Words& more) const {
    Words words = {"run_name=r",
                   "base_output_directory=" + folder_.path().string(),
                   "dataset_type=synthetic",
                   "tokenizer_path=bytes",
                   "base_emb_dim=64",
                   "base_num_query_heads=2",
                   "base_num_kv_heads=1",
                   "head_dim=32",
                   "base_mlp_dim=64",
                   "base_num_decoder_layers=2",
                   "vocab_size=260",
                   "max_target_length=32",
                   "per_device_batch_size=4",
                   "gradient_shards=1",
                   "dtype=float32",
                   "steps=2",
                   "use_qwix_quantization=true",
                   "enable_tensorboard=false",
                   "save_checkpoint_on_start=false"};
    words.insert(words.end(), more.begin(), more.end());
    return Settings::Load({.words = words});
  }

  // A run's last checkpoint.
  fs::path Train(const Words& recipe) {
    const Settings settings = SettingsOf(recipe);
    SelfCommunicator self;
    train::Train({.settings = settings, .log = log_, .pool = pool_, .communicator = self, .isa = isa_});
    return folder_ / "r/checkpoints/2";
  }

  // The logits of a prompt's last token and of the tokens drawn after it.
  static std::vector<std::string> HashesOf(engine::Engine& engine, std::vector<int32_t>* drawn = nullptr) {
    engine::PrefillOptions greedy;
    greedy.sampling.temperature = 0;
    engine::DecodeState state = engine.InitDecodeState();
    engine.Insert(engine.Prefill(kPrompt, greedy).prefix, state, 0);
    std::vector<std::string> hashes = {HashOf(state.logits(0))};
    for (int i = 0; i < 4; ++i) {
      if (drawn != nullptr) drawn->push_back(state.token(0));
      engine.Generate(state);
      hashes.push_back(HashOf(state.logits(0)));
    }
    return hashes;
  }

  // The same by the trainer's forward pass, given what was drawn.
  std::vector<std::string> TrainerHashes(const fs::path& path, const quant::RecipeChoice* recipe,
                                         const std::vector<int32_t>& drawn) {
    weights::LoadOptions how;
    how.recipe = recipe;
    how.holding = weights::Holding::kFloats;
    const weights::LoadedModel loaded = weights::LoadModel(weights::OpenStored(path), how, pool_, isa_);
    quant::Provider provider(*loaded.plan);
    kernels::Workspace workspace;
    ops::Context context(pool_, isa_, workspace);
    context.interceptor = &provider;
    context.state = &loaded.state;
    std::vector<int32_t> tokens = kPrompt;
    tokens.insert(tokens.end(), drawn.begin(), drawn.end());
    const auto length = static_cast<int64_t>(tokens.size());
    const Tensor in = Tensor::FromValues<int32_t>({1, length}, DType::kI32, tokens);
    const ops::Var hidden = models::Forward(context, *loaded.model, in, ops::RowsOfShape(1, length));
    const Tensor logits = loaded.model->Logits(context, hidden).value.Reshape({length, 260});
    std::vector<std::string> hashes;
    for (auto at = static_cast<int64_t>(kPrompt.size()) - 1; at < length; ++at) {
      hashes.push_back(HashOf(logits.Select(0, at)));
    }
    return hashes;
  }

  // Every way in, with `recipe` and options; `trained` is a checkpoint in floats whose own recipe it is.
  void ExpectOneSetOfBits(const fs::path& trained, const engine::EngineOptions& options = {}) {
    const weights::StoredModel stored = weights::OpenStored(trained);
    ASSERT_FALSE(stored.quantized());
    const fs::path converted = folder_ / "converted";
    convert::Convert({.source = stored, .target = converted, .log = log_, .pool = pool_, .isa = isa_});
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, tensor] : stored.floats.tensors) tensors[name] = tensor.read();
    const quant::RecipeChoice* recipe = stored.recipe.empty() ? nullptr : &stored.recipe;

    engine::Engine engine(options);
    engine.LoadParams(trained.string());
    std::vector<int32_t> drawn;
    const std::vector<std::string> expected = HashesOf(engine, &drawn);
    if (!options.kv) {
      EXPECT_EQ(expected, TrainerHashes(trained, recipe, drawn));
    }
    engine.LoadParams(converted.string());
    EXPECT_EQ(HashesOf(engine), expected);
    engine.LoadParams(trained.string(), recipe);
    EXPECT_EQ(HashesOf(engine), expected);
    engine.LoadParams(stored.config, tensors, recipe);
    EXPECT_EQ(HashesOf(engine), expected);
    engine.LoadParams(converted.string());
    EXPECT_EQ(HashesOf(engine), expected);
    if (recipe != nullptr) {  // it does something
      engine.LoadParams(stored.config, tensors);
      EXPECT_NE(HashesOf(engine), expected);
    }
    fs::remove_all(converted);
  }

  fs::path RecipeFile(const std::string& text) const {
    const fs::path path = folder_ / "recipe.yml";
    std::ofstream(path) << text;
    return path;
  }

  TempFolder folder_;
  Log log_{[](std::string_view) {}};
  ThreadPool pool_{2};
  kernels::Isa isa_ = kernels::ChooseIsa().isa;
};

TEST_F(EngineParams, Float) {
  const fs::path trained = Train({});
  ExpectOneSetOfBits(trained);
  ExpectOneSetOfBits(trained, {.kv = ops::KvFormat{Format::kInt8, true}});
}

TEST_F(EngineParams, Int8) {
  const fs::path trained = Train({"quantization=int8"});
  ExpectOneSetOfBits(trained);
  ExpectOneSetOfBits(trained, {.prefill_chunk_size = 3, .threads = 2});
  ExpectOneSetOfBits(trained, {.kv = ops::KvFormat{Format::kF8E4M3FN, false}});
}

TEST_F(EngineParams, ACacheRuleOfTheRecipe) {
  const fs::path trained = Train({"recipe=" + RecipeFile(kCacheAndInt8).string()});
  ExpectOneSetOfBits(trained);
  ExpectOneSetOfBits(trained, {.kv = ops::KvFormat{Format::kInt8, true}});  // the same, asked for
  engine::Engine other({.kv = ops::KvFormat{Format::kInt4, true}});
  EXPECT_THAT(UsageMessage([&] { other.LoadParams(trained.string()); }), HasSubstr("asks for keys and values as int4"));
}

// A recipe that says nothing but how keys and values are stored.
TEST_F(EngineParams, OnlyACacheRule) {
  const fs::path trained = Train({"recipe=" + RecipeFile(kCache).string()});
  ExpectOneSetOfBits(trained);
}

TEST_F(EngineParams, WhatWasPromisedIsChecked) {
  const fs::path trained = Train({"quantization=int8"});
  engine::Engine engine({.checkpoint_is_quantized = true});
  EXPECT_THAT(UsageMessage([&] { engine.LoadParams(trained.string()); }),
              HasSubstr("is not quantized but checkpoint_is_quantized=true"));
  engine::Engine longer({.max_target_length = 33});
  EXPECT_EQ(UsageMessage([&] { longer.LoadParams(trained.string()); }),
            "max_target_length=33, the model takes 32 tokens");
  EXPECT_THROW(longer.LoadParams((folder_ / "nothing").string()), Error);
  // The tokenizer is that of the run's data.
  engine::Engine plain({});
  plain.LoadParams(trained.string());
  const auto tokenizer = plain.BuildTokenizer();
  EXPECT_EQ(tokenizer->Encode("Hello, w"), kPrompt);
  EXPECT_EQ(tokenizer->Decode(kPrompt), "Hello, w");
}

}  // namespace
}  // namespace octavo
