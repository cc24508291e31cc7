#include "octavo/weights/hf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/weights/hf_export.h"
#include "octavo/weights/llama2c.h"
#include "octavo/weights/test_models.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;
using ::testing::HasSubstr;

void Export(const models::Model& model, const std::filesystem::path& to, HfExportOptions options = {}) {
  FolderPublisher folder(to);
  ExportHf(
      model.config(), [&](const std::string& name) { return model.parameter_set().Find(name)->tensor(); }, options,
      folder);
  folder.Publish();
}

TEST(Hf, OutAndBackIsBitExact) {
  ops::TestBench bench;
  ModelConfig rope = Tiny("llama2");
  rope.rope_type = "llama3.1";
  rope.llama3_original_positions = 16;
  ModelConfig tied = Tiny("llama2");
  tied.logits_via_embedding = true;
  ModelConfig biased = Tiny("llama2");
  biased.attention_bias = true;
  for (const ModelConfig& config :
       {Tiny("llama2"), Tiny("mistral"), Tiny("mixtral"), Tiny("qwen3"), TinyDeepSeek(), rope, tied, biased}) {
    const auto model = RandomModel(bench, config);
    const TempFolder folder;
    Export(*model, folder / "m");
    const HfModel hf = OpenHf(folder / "m");
    EXPECT_THAT(hf.notes, ::testing::IsEmpty());
    const auto back = Load(hf);
    for (const ops::Parameter* parameter : model->parameters()) {
      ASSERT_TRUE(BitEqual(parameter->tensor(), back->parameter_set().Find(parameter->name)->tensor()))
          << config.decoder_block << " " << parameter->name;
    }
    EXPECT_TRUE(BitEqual(LogitsOf(bench, *model), LogitsOf(bench, *back))) << config.decoder_block;
  }
}

TEST(Hf, Gpt3ComesBackAsGpt2) {
  ops::TestBench bench;
  const auto model = RandomModel(bench, Tiny("gpt3"));
  const TempFolder folder;
  Export(*model, folder / "m");
  const auto back = Load(OpenHf(folder / "m"));
  EXPECT_TRUE(BitEqual(LogitsOf(bench, *model), LogitsOf(bench, *back)));
}

TEST(Hf, AModelTrainedHereIsScaledOnTheWayOut) {
  ops::TestBench bench;
  ModelConfig config = Tiny("llama2");
  config.query_pre_attn_scalar = 0;  // the factor is in the kernels
  config.head_dim = 16;              // a power of four: exact
  const auto model = RandomModel(bench, config);
  const TempFolder folder;
  Export(*model, folder / "m");
  const HfModel hf = OpenHf(folder / "m");
  EXPECT_EQ(hf.config.config.query_pre_attn_scalar, 0.25);
  const auto back = Load(hf);
  const std::vector<float> ours = LogitsOf(bench, *model).ToVector<float>();
  const std::vector<float> theirs = LogitsOf(bench, *back).ToVector<float>();
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 1e-5);
}

TEST(Hf, ShardsAndTypes) {
  ops::TestBench bench;
  const auto model = RandomModel(bench, Tiny("llama2"));
  const TempFolder folder;
  Export(*model, folder / "m", {.dtype = DType::kBF16, .shard_bytes = 4096});
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "m" / "model.safetensors.index.json"));
  const HfModel hf = OpenHf(folder / "m");
  EXPECT_EQ(hf.config.dtype, DType::kBF16);
  EXPECT_EQ(hf.source.tensors.at("token_embedder/embedding").dtype, DType::kBF16);
}

TEST(Hf, EveryFaultIsListed) {
  ops::TestBench bench;
  const auto model = RandomModel(bench, Tiny("llama2"));
  const TempFolder folder;
  Export(*model, folder / "m");
  std::string text = ReadSmallFile(folder.path() / "m" / "config.json");
  const auto with = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    PublishFile(folder.path() / "m" / "other.json", changed);
    try {
      OpenHf(folder / "m", "other.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"),
              HasSubstr("model.layers.1.mlp.up_proj.weight: superfluous"));
  EXPECT_THAT(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
              HasSubstr("model.layers.2.self_attn.q_proj.weight: missing"));
  EXPECT_THAT(with("\"intermediate_size\": 40", "\"intermediate_size\": 41"),
              HasSubstr("model.layers.0.mlp.gate_proj.weight: expected shape [41, 24], found [40, 24]"));
}

std::string ConfigError(const std::string& text) {
  try {
    ParseHfConfig(text, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

std::string Llama(const std::string& more) {
  return R"({"model_type":"llama","vocab_size":32,"hidden_size":16,"intermediate_size":32,"num_hidden_layers":1,)"
         R"("num_attention_heads":2)" +
         more + "}";
}

TEST(HfConfig, BothSpellings) {
  const HfConfig newer = ParseHfConfig(
      Llama(R"(,"rope_parameters":{"rope_type":"linear","factor":2.5,"rope_theta":5e5},"dtype":"bfloat16")"), "c");
  const HfConfig older = ParseHfConfig(
      Llama(R"(,"rope_theta":5e5,"rope_scaling":{"type":"linear","factor":2.5},"torch_dtype":"bfloat16")"), "c");
  for (const HfConfig& hf : {newer, older}) {
    EXPECT_EQ(hf.config.rope_max_timescale, 5e5);
    EXPECT_EQ(hf.config.rope_linear_scaling_factor, 2.5);
    EXPECT_EQ(hf.dtype, DType::kBF16);
    EXPECT_EQ(hf.config.head_dim, 8);
  }
}

TEST(HfConfig, WhatChangesTheMathsIsAnError) {
  EXPECT_EQ(ConfigError(Llama("")), "no error");
  EXPECT_THAT(ConfigError(R"({"model_type":"gemma9"})"), HasSubstr("unsupported architecture 'gemma9'\nknown: llama"));
  EXPECT_THAT(ConfigError(Llama(R"(,"attention_bias":true)")), HasSubstr("attention_bias=true is not supported"));
  EXPECT_THAT(ConfigError(Llama(R"(,"mlp_bias":true)")), HasSubstr("mlp_bias=true"));
  EXPECT_THAT(ConfigError(Llama(R"(,"attn_logit_softcapping":30.0)")), HasSubstr("attn_logit_softcapping is set"));
  EXPECT_THAT(ConfigError(Llama(R"(,"rope_scaling":{"type":"dynamic","factor":2.0})")),
              HasSubstr("rope_type 'dynamic' is not supported"));
  EXPECT_THAT(ConfigError(Llama(R"(,"hidden_act":"mish")")), HasSubstr("hidden_act 'mish'"));
  EXPECT_THAT(ConfigError(Llama(R"(,"num_key_value_heads":0)")), HasSubstr("num_key_value_heads is 0"));
  EXPECT_THAT(ConfigError(Llama(R"(,"head_dim":"x")")), HasSubstr("expected a whole number"));
  EXPECT_THAT(ConfigError("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ParseHfConfig(Llama(R"(,"frobnicate":3)"), "c").notes,
              ::testing::ElementsAre("key 'frobnicate' is not read"));
}

}  // namespace
}  // namespace octavo::weights
