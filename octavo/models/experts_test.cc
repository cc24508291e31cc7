// Whole tiny models with experts and latent attention: gradients by differences, equal bits whatever the threads.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/models/test_models.h"

namespace octavo::models {
namespace {

std::vector<ModelConfig> AllTiny() {
  return {TinyMixtral(), TinyMixtral(false), TinyDeepSeek(), TinyDeepSeek(false), TinyGemma(),
          TinyGemma2(),  TinyQwen2(),        TinyQwen3(),    TinyCapacity(),      TinyMtp()};
}

std::unique_ptr<Model> Filled(const ModelConfig& config, ThreadPool& pool) {
  std::unique_ptr<Model> model = MakeModel(config);
  Initialize(*model, RngKey::FromSeed(5), pool);
  return model;
}

double LossOf(ops::Context& context, Model& model, const TestBatch& batch) {
  LossOptions options;
  options.total_weights = static_cast<double>(batch.tokens.size());
  options.mtp_weights = static_cast<double>(MtpWeights(batch.segmentation, model.mtp_layers()));
  return Loss(context, model, batch.tokens, batch.targets, batch.segmentation, batch.rows, options, nullptr)
      .value.ToVector<float>()
      .at(0);
}

// Along the gradient of one parameter the loss must change by its squared length.
TEST(ExpertModels, GradientsMatchDifferences) {
  for (const ModelConfig& config : AllTiny()) {
    ops::TestBench bench(1);
    const std::unique_ptr<Model> model = Filled(config, bench.pool);
    const TestBatch batch = RandomBatch(2, 9, config.vocab_size, true);
    const TestStep step = RunStep(bench.context, *model, batch);
    for (ops::Parameter* parameter : model->parameters()) {
      const auto found = step.grads.find(parameter->name);
      if (found == step.grads.end()) {
        EXPECT_TRUE(parameter->name.ends_with("gate/bias")) << parameter->name << " has no gradient";
        continue;
      }
      const std::vector<float> grad = found->second.ToVector<float>();
      double squares = 0;
      for (const float g : grad) squares += double{g} * g;
      const Tensor before = parameter->tensor();
      const double length = 2e-3 / std::sqrt(squares + 1e-20);
      double sides[2];
      for (const int side : {0, 1}) {
        Tensor moved = before.Clone();
        for (size_t i = 0; i < grad.size(); ++i) {
          moved.MutableValues<float>()[i] += static_cast<float>((side == 0 ? -length : length) * grad[i]);
        }
        parameter->value = moved;
        sides[side] = LossOf(bench.context, *model, batch);
      }
      parameter->value = before;
      const double expected = std::sqrt(squares), actual = (sides[1] - sides[0]) / (2 * 2e-3);
      EXPECT_NEAR(actual, expected, 2e-3 + 0.03 * expected) << config.decoder_block << " " << parameter->name;
    }
  }
}

TEST(ExpertModels, BitsDoNotDependOnThreadsOrRemat) {
  for (const ModelConfig& config : AllTiny()) {
    ops::TestBench one(1);
    const TestBatch batch = RandomBatch(2, 24, config.vocab_size, true);
    const std::string expected = HashOf(RunStep(one.context, *Filled(config, one.pool), batch).grads);
    for (const int threads : {2, 3, 7}) {
      ops::TestBench bench(threads);
      const std::unique_ptr<Model> model = Filled(config, bench.pool);
      EXPECT_EQ(HashOf(RunStep(bench.context, *model, batch).grads), expected) << config.decoder_block << threads;
      if (threads != 2) continue;
      const ops::RematPolicy full = *ops::RematPolicyByName("full");
      bench.context.remat = &full;
      EXPECT_EQ(HashOf(RunStep(bench.context, *model, batch).grads), expected) << config.decoder_block << " remat";
      // The three products of the experts have names too: kept, they are not computed again.
      const ops::RematPolicy experts =
          ops::CustomRematPolicy(std::vector<std::string>{"moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo"});
      bench.context.remat = &experts;
      const TestStep kept = RunStep(bench.context, *model, batch);
      EXPECT_EQ(HashOf(kept.grads), expected) << config.decoder_block << " experts kept";
      const int64_t layers = config.num_decoder_layers - config.first_num_dense_layers;
      EXPECT_EQ(kept.skipped, config.num_experts > 1 ? 3 * layers : 0) << config.decoder_block;
    }
  }
}

// bf16 is storage: the loss moves by a few roundings, and every parameter has a gradient.
TEST(ExpertModels, TrainInBf16) {
  for (ModelConfig config : AllTiny()) {
    ops::TestBench bench(2);
    const TestBatch batch = RandomBatch(2, 9, config.vocab_size, true);
    const double wide = RunStep(bench.context, *Filled(config, bench.pool), batch).loss;
    config.dtype = DType::kBF16;
    const TestStep narrow = RunStep(bench.context, *Filled(config, bench.pool), batch);
    EXPECT_NEAR(narrow.loss, wide, 0.05) << config.decoder_block;
    EXPECT_NE(narrow.loss, wide) << config.decoder_block;
    EXPECT_GT(narrow.grads.size(), 10u);
  }
}

TEST(ExpertModels, SparseAndDenseExpertsGiveOneLoss) {
  ops::TestBench bench(2);
  const TestBatch batch = RandomBatch(2, 20, 61, true);
  const double sparse = LossOf(bench.context, *Filled(TinyMixtral(true), bench.pool), batch);
  const double dense = LossOf(bench.context, *Filled(TinyMixtral(false), bench.pool), batch);
  EXPECT_NEAR(sparse, dense, 2e-6);
}

TEST(ExpertModels, LoadsCountEveryLayerAndPadding) {
  ops::TestBench bench(2);
  const ModelConfig config = TinyDeepSeek();
  const TestBatch batch = RandomBatch(2, 20, config.vocab_size, true);
  const TestStep step = RunStep(bench.context, *Filled(config, bench.pool), batch);
  ASSERT_EQ(step.parts.loads.size(), 2u);
  EXPECT_EQ(step.parts.loads[0].path, "decoder/moe_layers_0/DeepSeekMoeBlock_0/MoeBlock_0");
  for (const auto& load : step.parts.loads) {
    int64_t total = 0;
    for (const int64_t tokens : load.tokens) total += tokens;
    EXPECT_EQ(total, 2 * 20 * 2);
  }
}

// With room for everybody nothing is dropped; with little room something is, and loss and gradients change.
TEST(ExpertModels, CapacityDropsTokens) {
  ops::TestBench bench(2);
  const TestBatch batch = RandomBatch(2, 20, 61, true);
  ModelConfig config = TinyCapacity();
  const double dense = LossOf(bench.context, *Filled(TinyMixtral(false), bench.pool), batch);
  config.capacity_factor = 4;
  EXPECT_NEAR(LossOf(bench.context, *Filled(config, bench.pool), batch), dense, 2e-6);
  config.capacity_factor = 0.3;
  EXPECT_GT(std::fabs(LossOf(bench.context, *Filled(config, bench.pool), batch) - dense), 1e-3);
}

// The further tokens' loss: what they are, how much they weigh, and that only training has them.
TEST(ExpertModels, MultiTokenPrediction) {
  const Tensor segments = ops::IntTensor({2, 6}, {1, 1, 1, 2, 2, 0, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(MtpWeights(segments, 1), 2 + 1 + 5);
  EXPECT_EQ(MtpWeights(segments, 2), 2 + 1 + 5 + 1 + 4);
  ops::TestBench bench(2);
  const ModelConfig config = TinyMtp();
  const TestBatch batch = RandomBatch(2, 20, config.vocab_size, true);
  const std::unique_ptr<Model> model = Filled(config, bench.pool);
  const TestStep step = RunStep(bench.context, *model, batch);
  const double lm = step.parts.xent_sum / static_cast<double>(batch.tokens.size());
  EXPECT_NEAR(step.loss, lm + step.parts.moe_lb_loss + step.parts.mtp_loss, 2e-6);
  // An untrained model is as sure of further tokens as of the next one; two layers count as one mean.
  EXPECT_NEAR(step.parts.mtp_loss, 0.5 * step.parts.xent_sum / step.parts.weights, 0.15);
  EXPECT_EQ(step.parts.loads.size(), 2u) << "balancing is of the model's own experts";
  LossParts parts;
  LossOptions options;
  options.total_weights = 40;
  options.training = false;
  Loss(bench.context, *model, batch.tokens, batch.targets, batch.segmentation, batch.rows, options, &parts);
  EXPECT_EQ(parts.mtp_loss, 0);
  EXPECT_EQ(parts.xent_sum, step.parts.xent_sum);
}

TEST(ExpertModels, RefuseWhatTheyCannotDo) {
  ModelConfig config = TinyMixtral();
  config.capacity_factor = 1.25;  // with grouped products
  EXPECT_THROW(MakeModel(config), Error);
  config = TinyDeepSeek();
  config.routed_score_func = "";
  EXPECT_THROW(MakeModel(config), Error);
  config = TinyMixtral();
  config.mtp_num_layers = 1;
  EXPECT_THROW(MakeModel(config), Error);
  config = TinyMixtral();
  config.num_experts_per_tok = 5;
  ops::TestBench bench(1);
  const TestBatch batch = RandomBatch(1, 4, config.vocab_size, false);
  const std::unique_ptr<Model> model = Filled(config, bench.pool);
  EXPECT_THROW(LossOf(bench.context, *model, batch), Error);
}

}  // namespace
}  // namespace octavo::models
