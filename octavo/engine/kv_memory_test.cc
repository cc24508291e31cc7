// Which format the cache of a model has, when its recipe or the user, both or neither of them say it.
#include "octavo/engine/kv_memory.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/models/test_models.h"
#include "octavo/weights/load_model.h"

namespace octavo::engine {
namespace {

constexpr ops::KvFormat kInt8{Format::kInt8, false}, kInt8PerHead{Format::kInt8, true}, kInt4{Format::kInt4, false};
constexpr ops::KvFormat kF32{Format::kF32, false}, kBF16{Format::kBF16, false};

ops::KvFormat FormatUnder(const std::string& rules, const std::optional<ops::KvFormat>& asked = {},
                          DType dtype = DType::kF32) {
  models::ModelConfig config = models::TinyLlama();
  config.dtype = dtype;
  const auto model = models::MakeModel(config);
  const quant::RuleSet set(quant::ParseRules(Yaml::Parse(rules.empty() ? "[]" : rules, "rules.yml")));
  return KvFormatFor(*model, weights::ForwardPlan(*model, set), asked);
}

std::string MessageUnder(const std::string& rules, const std::optional<ops::KvFormat>& asked = {}) {
  try {
    FormatUnder(rules, asked);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.message();
  }
  return "no error";
}

TEST(KvFormat, IsTheTypeOfTheComputationUnlessSomebodyAsks) {
  EXPECT_EQ(FormatUnder(""), kF32);
  EXPECT_EQ(FormatUnder("", {}, DType::kBF16), kBF16);
  EXPECT_EQ(FormatUnder("", kInt4), kInt4);
  EXPECT_EQ(FormatUnder("", kInt8PerHead, DType::kBF16), kInt8PerHead);
}

TEST(KvFormat, IsTheRecipes) {
  EXPECT_EQ(FormatUnder("- kv_cache: {format: int8, axes: dkv}\n"), kInt8PerHead);
  EXPECT_EQ(FormatUnder("- kv_cache: {format: int8}\n", kInt8), kInt8);
  // Two rules that say the same are one format.
  EXPECT_EQ(FormatUnder("- {module_path: 'decoder/layers_0/.*', kv_cache: {format: int4}}\n"
                        "- {module_path: 'decoder/.*', kv_cache: {format: int4}}\n"),
            kInt4);
}

TEST(KvFormat, RulesThatDoNotCoverEveryLayerAreRefused) {
  EXPECT_EQ(MessageUnder("- {module_path: 'decoder/layers_0/.*', kv_cache: {format: int8}}\n"),
            "decoder/layers_1/self_attention/attention_op: the recipe stores keys and values as float32 (no rule), at "
            "decoder/layers_0/self_attention/attention_op as int8 with a scale per token; a server keeps one format "
            "for all layers");
  EXPECT_EQ(MessageUnder("- {module_path: 'decoder/layers_1/.*', kv_cache: {format: int8}}\n").substr(0, 44),
            "decoder/layers_0/self_attention/attention_op");
}

TEST(KvFormat, RulesThatDifferAreRefused) {
  EXPECT_EQ(MessageUnder("- {module_path: 'decoder/layers_1/.*', kv_cache: {format: int8, axes: dkv}}\n"
                         "- kv_cache: {format: int8, axes: heads_and_dkv}\n"),
            "decoder/layers_1/self_attention/attention_op: the recipe stores keys and values as int8 with a scale per "
            "token and head, at decoder/layers_0/self_attention/attention_op as int8 with a scale per token; a server "
            "keeps one format for all layers");
}

TEST(KvFormat, AnotherFormatThanTheRecipesIsRefused) {
  EXPECT_EQ(MessageUnder("- kv_cache: {format: int8}\n", kInt4),
            "quantize_kvcache asks for keys and values as int4 with a scale per token, the model's recipe stores them "
            "as int8 with a scale per token");
  EXPECT_EQ(MessageUnder("- kv_cache: {format: int8}\n", kInt8PerHead),
            "quantize_kvcache asks for keys and values as int8 with a scale per token and head, the model's recipe "
            "stores them as int8 with a scale per token");
}

}  // namespace
}  // namespace octavo::engine
