// Every remat policy under recipes with and without running state, over several steps of two shards: gradients,
// observations and the state that follows are those of the run that keeps everything.
#include <gtest/gtest.h>

#include <optional>

#include "octavo/models/test_models.h"
#include "octavo/ops/remat.h"
#include "octavo/quant/provider.h"
#include "octavo/quant/recipe.h"

namespace octavo {
namespace {

std::string RunHash(const quant::Plan& plan, models::Model& model, const char* policy_name, int64_t* skipped) {
  const ops::RematPolicy policy = *ops::RematPolicyByName(policy_name);
  ops::TestBench bench(1);
  quant::Provider provider(plan);
  ops::StateStore state;
  ops::UpdateSink first_sink;
  quant::AdvanceState(plan, first_sink, state);
  std::string hash;
  for (uint32_t step = 0; step < 3; ++step) {
    ops::UpdateSink updates;
    provider.StartStep();
    for (uint32_t shard = 0; shard < 2; ++shard) {
      ops::Context& context = bench.context;
      context.interceptor = &provider;
      context.state = &state;
      context.updates = &updates;
      context.remat = &policy;
      context.key = RngKey::FromSeed(4).FoldIn(step);
      const models::TestBatch batch = models::RandomBatch(2, 24, 61, true, 10 * step + shard);
      const models::TestStep found = models::RunStep(context, model, batch);
      hash += models::HashOf(found.grads) + ' ';
      *skipped += found.skipped;
    }
    hash += models::HashOf(updates.observations()) + ' ';
    quant::AdvanceState(plan, updates, state);
    hash += models::HashOf(state.values()) + '\n';
  }
  return hash;
}

constexpr const char* kPolicies[] = {"full",
                                     "minimal",
                                     "minimal_with_context",
                                     "minimal_with_quantization",
                                     "minimal_with_context_and_quantization",
                                     "save_dot_with_context_except_mlp",
                                     "save_dot_except_mlpwi",
                                     "save_dot_except_mlp",
                                     "save_qkv_proj",
                                     "qkv_proj_offloaded",
                                     "minimal_offloaded",
                                     "save_out_proj"};

// `skips`: outputs that "minimal" keeps are not computed again by this recipe's dots.
void CheckRecipe(const char* name, bool use_qwix, std::optional<bool> skips) {
  models::ModelConfig config = models::TinyLlama();
  config.dropout_rate = 0.1;
  const auto model = models::MakeModel(config);
  ThreadPool pool(1);
  models::Initialize(*model, RngKey::FromSeed(1), pool);
  const quant::RuleSet rules(quant::RulesOf(quant::FindRecipe(name, use_qwix), {}));
  const auto dry_run = [&](ops::Context& context) {
    const Tensor tokens = Tensor::Meta({2, 24}, DType::kI32);
    models::Loss(context, *model, tokens, tokens, tokens, ops::RowsOfShape(2, 24), {}, nullptr);
  };
  const quant::Plan plan = quant::MakePlan(dry_run, rules);
  EXPECT_GT(plan.quantized_share(), 0.3);
  int64_t skipped = 0;
  const std::string kept = RunHash(plan, *model, "none", &skipped);
  EXPECT_EQ(skipped, 0);
  for (const char* policy : kPolicies) {
    EXPECT_EQ(RunHash(plan, *model, policy, &skipped), kept) << name << " " << policy;
  }
  if (!skips) return;
  EXPECT_GT(skipped, 0);
  skipped = 0;
  RunHash(plan, *model, "minimal", &skipped);
  EXPECT_EQ(skipped, *skips ? 3 * 2 * 2 * 7 : 0);  // steps, shards, layers, projections
}

TEST(RematRecipes, QwixInt8) { CheckRecipe("int8", true, true); }
TEST(RematRecipes, QwixFp8Full) { CheckRecipe("fp8_full", true, true); }
TEST(RematRecipes, QwixDelayedScaling) { CheckRecipe("fp8_gpu", true, false); }
TEST(RematRecipes, AqtInt8WithStochasticRounding) { CheckRecipe("int8", false, false); }
TEST(RematRecipes, AqtDelayedScaling) { CheckRecipe("fp8", false, false); }

// Every other fp8 recipe whose scales are not of blocks, whatever of it can be skipped.
TEST(RematRecipes, EveryFp8Recipe) {
  for (const char* name : {"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_nanoo"}) CheckRecipe(name, true, std::nullopt);
  for (const char* name : {"aqt_fp8", "aqt_fp8_full", "nanoo_fp8", "te_fp8_currentscaling", "te_fp8_delayedscaling"}) {
    CheckRecipe(name, false, std::nullopt);
  }
}

}  // namespace
}  // namespace octavo
