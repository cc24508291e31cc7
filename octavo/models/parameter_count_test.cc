// The number of parameters of the models that ship, on meta tensors. Published numbers where there are any.
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/models/model.h"

namespace octavo::models {
namespace {

int64_t CountOf(const std::string& model_name) {
  SettingsRequest request;
  request.words = {"model_name=" + model_name};
  return ParameterCount(*MakeModel(ModelConfigFrom(Settings::Load(request))));
}

TEST(ParameterCount, Gpt3) {
  // Embeddings 16384, positions 32768, the layer 3280, the final norm 32.
  EXPECT_EQ(CountOf("gpt3-52k"), 52464);
  EXPECT_EQ(CountOf("gpt3-6b"), 5588736000);
  EXPECT_EQ(CountOf("gpt3-22b"), 22049107968);
  EXPECT_EQ(CountOf("gpt3-175b"), 174780997632);
}

TEST(ParameterCount, LlamaAndMistral) {
  EXPECT_EQ(CountOf("llama2-7b"), 6738415616);
  EXPECT_EQ(CountOf("llama2-13b"), 13015864320);
  EXPECT_EQ(CountOf("llama2-70b"), 68976648192);
  EXPECT_EQ(CountOf("llama3-8b"), 8030261248);
  EXPECT_EQ(CountOf("llama3.1-8b"), 8030261248);
  EXPECT_EQ(CountOf("llama3.1-70b"), 70553706496);
  EXPECT_EQ(CountOf("llama3.1-405b"), 405853388800);
  EXPECT_EQ(CountOf("mistral-7b"), 7241732096);
}

TEST(ParameterCount, Mixtral) {
  EXPECT_EQ(CountOf("mixtral-8x7b"), 46702792704);
  EXPECT_EQ(CountOf("mixtral-8x22b"), 140630071296);
}

TEST(ParameterCount, DeepSeek) {
  EXPECT_EQ(CountOf("deepseek2-16b"), 15706484224);
  EXPECT_EQ(CountOf("deepseek2-236b"), 235741434880);
  EXPECT_EQ(CountOf("deepseek3-671b"), 671026419200);
  EXPECT_EQ(CountOf("deepseek3-test"), 15851427840);
  EXPECT_EQ(CountOf("deepseek3-tiny"), 33706448);
}

TEST(ParameterCount, Qwen3AndGemma2) {
  EXPECT_EQ(CountOf("qwen3-0.6b"), 596049920);
  EXPECT_EQ(CountOf("qwen3-8b"), 8190735360);
  EXPECT_EQ(CountOf("qwen3-30b-a3b"), 30532122624);
  EXPECT_EQ(CountOf("gemma2-2b"), 2614636800);  // 2614341888 with the published vocabulary of 256000
}

TEST(ParameterCount, GemmaAndQwen2) {
  EXPECT_EQ(CountOf("gemma-2b"), 2506434560);  // 2506172416 with the published vocabulary of 256000
  EXPECT_EQ(CountOf("gemma-7b"), 8538074112);  // 8537680896
  EXPECT_EQ(CountOf("qwen2.5-1.5b"), 1543714304);
  EXPECT_EQ(CountOf("qwen2.5-7b"), 7615616512);
  EXPECT_EQ(CountOf("qwen2.5-14b"), 14770033664);
}

TEST(ParameterCount, AnUnknownBlockIsNamed) {
  ModelConfig config;
  config.decoder_block = "rwkv";
  try {
    MakeModel(config);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "unsupported architecture: decoder_block=rwkv");
  }
}

}  // namespace
}  // namespace octavo::models
