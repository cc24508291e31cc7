// Quantized models, packed for serving, and quantized caches: prefill in any pieces plus steps gives the bits of the
// trainer's forward pass over float weights under the same rules.
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/engine/kv_memory.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/models/test_models.h"
#include "octavo/quant/recipe.h"
#include "octavo/weights/load_model.h"

namespace octavo::engine {
namespace {

using models::ModelConfig;

struct Case {
  const char* recipe;  // null: float
  bool qwix = false;
  std::optional<ops::KvFormat> kv = {};
};

std::vector<quant::Rule> RulesOf(const Case& one) {
  std::vector<quant::Rule> rules;
  if (one.recipe != nullptr) {
    quant::Options given;
    if (one.recipe == std::string("w4a8")) given = {{"quantization_group_size", "32"}};  // heads are 32 wide
    rules = quant::RulesOf(quant::FindRecipe(one.recipe, one.qwix), given);
  }
  if (one.kv) {
    quant::Rule rule;
    rule.kv = quant::KvTreatment{*one.kv};
    rules.push_back(rule);
  }
  return rules;
}

// Widths that groups of 128 divide.
ModelConfig Wide(ModelConfig config) {
  config.emb_dim = 128;
  config.head_dim = 32;
  config.mlp_dim = 256;
  if (config.moe_mlp_dim > 0) config.moe_mlp_dim = 128;
  if (config.attention_type == "mla") config.v_head_dim = config.q_lora_rank = config.kv_lora_rank = 32;
  config.num_decoder_layers = std::min<int64_t>(config.num_decoder_layers, 2);
  config.max_target_length = 200;
  return config;
}

class Subject {
 public:
  Subject(const ModelConfig& config, const Case& one) : rules_(RulesOf(one)), config_(config), bench_(1) {
    floats_ = models::MakeModel(config);
    models::Initialize(*floats_, RngKey::FromSeed(5), bench_.pool);
    const auto meta = models::MakeModel(config);
    plan_ = weights::ForwardPlan(*meta, rules_);
    frozen_ = models::MakeModel(config);
    const auto sites = weights::FrozenParameters(*meta, plan_);
    for (ops::Parameter* parameter : frozen_->parameters()) {
      const Tensor& weight = floats_->parameter_set().Find(parameter->name)->tensor();
      parameter->value = weight;
      const auto site = sites.find(parameter->name);
      if (site == sites.end()) continue;
      parameter->value = weights::FreezeFor(*site->second, weight, state_, bench_.pool, bench_.context.isa);
      ++frozen_count_;
    }
    provider_.emplace(plan_);
    trainer_.emplace(plan_);
    if (one.kv) options_.kv = *one.kv;
    options_.prefix_cache = false;
  }

  // The trainer's forward pass: float weights, quantized anew.
  Tensor Full(const std::vector<int32_t>& tokens) {
    const auto length = static_cast<int64_t>(tokens.size());
    bench_.context.interceptor = &*trainer_;
    const Tensor in = ops::IntTensor({1, length}, tokens);
    const ops::Var hidden = models::Forward(bench_.context, *floats_, in, ops::RowsOfShape(1, length));
    return floats_->Logits(bench_.context, hidden).value.Reshape({length, config_.vocab_size});
  }

  RunnerParts parts() { return {*frozen_, &*provider_, &state_, bench_.pool, bench_.context.isa}; }
  PackedModel Pack() { return PackWeights(parts(), *provider_); }
  std::unique_ptr<Runner> Make() { return MakeRunner(parts(), options_); }
  int64_t frozen() const { return frozen_count_; }
  models::Model& model() { return *frozen_; }

 private:
  quant::RuleSet rules_;
  ModelConfig config_;
  ops::TestBench bench_;
  std::unique_ptr<models::Model> floats_, frozen_;
  quant::Plan plan_;
  ops::StateStore state_;
  std::optional<quant::Provider> provider_, trainer_;
  RunnerOptions options_;
  int64_t frozen_count_ = 0;
};

std::vector<int32_t> Tokens(int64_t count, int64_t vocabulary) {
  std::mt19937 random(3);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
  return tokens;
}

void ExpectBits(Subject& subject, const std::vector<int32_t>& tokens) {
  const Tensor full = subject.Full(tokens);
  const auto runner = subject.Make();
  for (int64_t chunk : {1, 7, 64, 90}) {
    const SequenceId id = runner->Open(tokens, 0, "", nullptr);
    for (int64_t at = 0; at < static_cast<int64_t>(tokens.size());) {
      const int64_t count = std::min<int64_t>(chunk, static_cast<int64_t>(tokens.size()) - at);
      const Work work{id, {tokens.data() + at, static_cast<size_t>(count)}, true};
      ASSERT_TRUE(BitEqual(runner->Step({&work, 1}), full.Slice(0, at, at + count))) << "at " << at << " of " << chunk;
      at += count;
    }
    runner->Close(id);
  }
}

TEST(QuantizedRunner, EveryRecipeHasTheTrainersBits) {
  const ModelConfig config = Wide(models::TinyLlama());
  for (const Case& one : std::vector<Case>{
           {"int8"}, {"int8w"}, {"int4w"}, {"w4a8"}, {"int8", true}, {"int4", true}, {"fp8", true}, {"fp4", true}}) {
    SCOPED_TRACE(fmt::format("{} {}", one.recipe, one.qwix ? "qwix" : "aqt"));
    Subject subject(config, one);
    const PackedModel packed = subject.Pack();
    EXPECT_GE(subject.frozen(), 14);
    EXPECT_EQ(packed.packed, subject.frozen());
    EXPECT_EQ(packed.kept, 0);
    ExpectBits(subject, Tokens(70, config.vocab_size));
  }
}

TEST(QuantizedRunner, EveryFamilyInInt8) {
  for (const ModelConfig& config : {Wide(models::TinyGpt3()), Wide(models::TinyMixtral()), Wide(models::TinyDeepSeek()),
                                    Wide(models::TinyGemma2()), Wide(models::TinyQwen3())}) {
    for (const Case& one : std::vector<Case>{{"int8"}, {"w4a8"}, {"int8", true}, {"fp8_full", true}}) {
      // AQT has no ragged products.
      if (config.num_experts > 1 && !one.qwix && one.recipe == std::string("int8")) continue;
      SCOPED_TRACE(fmt::format("{} {} {}", config.decoder_block, one.recipe, one.qwix ? "qwix" : ""));
      Subject subject(config, one);
      subject.Pack();
      ExpectBits(subject, Tokens(70, config.vocab_size));
    }
  }
}

TEST(QuantizedRunner, QuantizedCachesHaveTheTrainersBits) {
  for (const ModelConfig& config : {Wide(models::TinyLlama()), Wide(models::TinyDeepSeek())}) {
    for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN, Format::kBF16}) {
      for (bool per_head : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", config.decoder_block, Info(format).name, per_head));
        Subject subject(config, {nullptr, false, ops::KvFormat{format, per_head}});
        ExpectBits(subject, Tokens(70, config.vocab_size));
      }
    }
  }
}

TEST(QuantizedRunner, CachesChangeNumbersAndShrink) {
  const ModelConfig config = Wide(models::TinyLlama());
  const std::vector<int32_t> tokens = Tokens(70, config.vocab_size);
  Subject plain(config, {nullptr}), small(config, {nullptr, false, ops::KvFormat{Format::kInt4, true}});
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
  const auto bytes = [&](const Case& one) {
    Subject subject(config, one);
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
