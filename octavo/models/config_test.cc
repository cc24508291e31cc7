#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/config/settings.h"
#include "octavo/models/model.h"

namespace octavo::models {
namespace {

ModelConfig ConfigOf(std::vector<std::string> words) {
  return ModelConfigFrom(Settings::Load({.words = std::move(words)}));
}

TEST(ModelConfigFrom, NamedModelsHaveTheirParameterCounts) {
  EXPECT_EQ(ParameterCount(*MakeModel(ConfigOf({"model_name=gpt3-52k"}))), 52464);
  EXPECT_EQ(ParameterCount(*MakeModel(ConfigOf({"model_name=llama2-7b"}))), 6738415616);
  EXPECT_EQ(ParameterCount(*MakeModel(ConfigOf({"model_name=llama2-70b"}))), 68976648192);
  EXPECT_EQ(ParameterCount(*MakeModel(ConfigOf({"model_name=llama3.1-8b"}))), 8030261248);
  EXPECT_EQ(ParameterCount(*MakeModel(ConfigOf({"model_name=mistral-7b"}))), 7241732096);
  // Embeddings, positions, 96 layers, final norm: 174.6 billion.
  EXPECT_EQ(ParameterCount(*MakeModel(ConfigOf({"model_name=gpt3-175b"}))),
            int64_t{50304} * 12288 + int64_t{16384} * 12288 + 2 * 12288 +
                96 * (int64_t{12288} * 12288 * 4 + 12288 * 4 + int64_t{12288} * 49152 * 2 + 49152 + 12288 + 4 * 12288));
}

TEST(ModelConfigFrom, GlobalParameterScaleIsSharedOut) {
  const ModelConfig eight = ConfigOf({"global_parameter_scale=8"});
  EXPECT_EQ(eight.emb_dim, 4096);
  EXPECT_EQ(eight.num_query_heads, 32);
  EXPECT_EQ(eight.mlp_dim, 14336);
  EXPECT_EQ(eight.num_decoder_layers, 32);
  const ModelConfig two = ConfigOf({"global_parameter_scale=2"});
  EXPECT_EQ(two.emb_dim, 2048);
  EXPECT_EQ(two.num_kv_heads, 32);
  EXPECT_EQ(two.mlp_dim, 14336);
  EXPECT_EQ(two.num_decoder_layers, 16);
  EXPECT_THROW(ConfigOf({"global_parameter_scale=3"}), Error);
  EXPECT_EQ(ConfigOf({"dtype=bfloat16"}).dtype, DType::kBF16);
  EXPECT_THROW(ConfigOf({"dtype=float64"}), Error);
}

}  // namespace
}  // namespace octavo::models
