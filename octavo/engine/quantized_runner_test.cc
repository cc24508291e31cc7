// Quantized models, packed for serving, and quantized caches: prefill in any pieces plus steps gives the bits of the
// trainer's forward pass over float weights under the same rules.
#include <gtest/gtest.h>

#include "octavo/engine/engine_test_support.h"
#include "octavo/engine/kv_memory.h"

namespace octavo::engine {
namespace {

using models::ModelConfig;

void ExpectBits(QuantizedModel& subject, const std::vector<int32_t>& tokens) {
  const Tensor full = subject.Full(tokens);
  const auto runner = subject.Make();
  for (int64_t chunk : {1, 7, 64, 90}) {
    const SequenceId id = runner->Open(tokens, 0, "", nullptr);
    ExpectRows(*runner, id, tokens, chunk, full);
    runner->Close(id);
  }
}

TEST(QuantizedRunner, EveryRecipeHasTheTrainersBits) {
  const ModelConfig config = Wide(models::TinyLlama());
  for (const RecipeCase& one : std::vector<RecipeCase>{
           {"int8"}, {"int8w"}, {"int4w"}, {"w4a8"}, {"int8", true}, {"int4", true}, {"fp8", true}, {"fp4", true}}) {
    SCOPED_TRACE(NameOf(one));
    QuantizedModel subject(config, one);
    const PackedModel packed = subject.Pack();
    EXPECT_GE(subject.frozen(), 14);
    EXPECT_EQ(packed.packed, subject.frozen());
    EXPECT_EQ(packed.kept, 0);
    ExpectBits(subject, RandomTokens(70, config.vocab_size, 3));
  }
}

TEST(QuantizedRunner, EveryFamilyInInt8) {
  for (const ModelConfig& family : TinyFamilies()) {
    const ModelConfig config = Wide(family);
    for (const RecipeCase& one : std::vector<RecipeCase>{{"int8"}, {"w4a8"}, {"int8", true}, {"fp8_full", true}}) {
      // AQT has no ragged products.
      if (config.num_experts > 1 && !one.qwix && one.recipe == std::string("int8")) continue;
      SCOPED_TRACE(fmt::format("{} {}", config.decoder_block, NameOf(one)));
      QuantizedModel subject(config, one);
      subject.Pack();
      EXPECT_GT(subject.frozen(), 0);
      ExpectBits(subject, RandomTokens(70, config.vocab_size, 3));
    }
  }
}

// Behind the first super-block of attention, where its parts are merged, over codes and a cache in int8.
TEST(QuantizedRunner, ContextsLongerThanASuperBlock) {
  ModelConfig config = Wide(models::TinyLlama());
  config.max_target_length = 1100;
  QuantizedModel subject(config, {"int8", true, ops::KvFormat{Format::kInt8, true}});
  subject.Pack();
  const std::vector<int32_t> tokens = RandomTokens(1090, config.vocab_size, 3);
  const Tensor full = subject.Full(tokens);
  const auto runner = subject.Make();
  const SequenceId id = runner->Open(tokens, 0, "", nullptr);
  // Up to the last token before the edge in one piece, over it one by one, then the rest in pieces.
  ExpectRows(*runner, id, {tokens.data(), 1020}, 1020, full);
  ExpectRows(*runner, id, {tokens.data(), 1030}, 1, full);
  ExpectRows(*runner, id, tokens, 7, full);
}

TEST(QuantizedRunner, QuantizedCachesHaveTheTrainersBits) {
  for (const ModelConfig& config : {Wide(models::TinyLlama()), Wide(models::TinyDeepSeek())}) {
    for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN, Format::kBF16}) {
      for (bool per_head : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", config.decoder_block, Info(format).name, per_head));
        QuantizedModel subject(config, {nullptr, false, ops::KvFormat{format, per_head}});
        ExpectBits(subject, RandomTokens(70, config.vocab_size, 3));
      }
    }
  }
}

TEST(QuantizedRunner, CachesChangeNumbersAndShrink) {
  const ModelConfig config = Wide(models::TinyLlama());
  const std::vector<int32_t> tokens = RandomTokens(70, config.vocab_size, 3);
  QuantizedModel plain(config, {nullptr}), small(config, {nullptr, false, ops::KvFormat{Format::kInt4, true}});
  EXPECT_FALSE(BitEqual(plain.Full(tokens), small.Full(tokens)));
  // 2 layers, 2 heads, 32 wide, keys and values: 64 tokens of floats, or half a byte and a float scale per vector.
  const auto sites = KvSitesOf(plain.model());
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].path, "decoder/layers_0/self_attention/attention_op");
  EXPECT_EQ(KvPageBytesOf(sites, {}), 2 * 2 * 2 * 64 * 32 * 4);
  EXPECT_EQ(KvPageBytesOf(sites, {Format::kInt4, true}), 2 * 2 * 2 * 64 * (16 + 4));
  EXPECT_EQ(KvPageBytesOf(sites, {Format::kInt8, false}), 2 * 2 * 64 * (2 * 32 + 4));
}

// Codes are dropped once they are packed: what is left is close to what the formats need.
TEST(QuantizedRunner, WeightsExistOnce) {
  ModelConfig config = Wide(models::TinyLlama());
  config.emb_dim = 256;
  config.mlp_dim = 512;
  config.vocab_size = 64;
  const auto bytes = [&](const RecipeCase& one) {
    QuantizedModel subject(config, one);
    const PackedModel packed = subject.Pack();
    int64_t codes = 0, floats = 0;
    for (const ops::Parameter* parameter : subject.model().parameters()) {
      (parameter->frozen() ? codes : floats) += parameter->shape().size();
      EXPECT_TRUE(!parameter->frozen() || parameter->qarray().qvalue.is_meta()) << parameter->name;
    }
    return static_cast<double>(packed.bytes - 4 * floats) / static_cast<double>(codes);
  };
  EXPECT_LT(bytes({"int8", true}), 1.1);
  EXPECT_LT(bytes({"int8w"}), 1.1);
  EXPECT_LT(bytes({"int4w"}), 0.6);
  EXPECT_LT(bytes({"w4a8"}), 0.76);  // half a byte, and a scale and a sum for 32 codes
  EXPECT_LT(bytes({"fp8", true}), 1.1);
}

}  // namespace
}  // namespace octavo::engine
