// Gradients and losses have the same bits whatever the thread count, the remat policy, the packing, and the type of
// run; remat frees memory and counts what it computes again.
#include <gtest/gtest.h>

#include "octavo/models/test_models.h"
#include "octavo/ops/remat.h"
#include "octavo/tensor/memory.h"

namespace octavo::models {
namespace {

// Long enough for several leaves and key blocks, small otherwise.
ModelConfig Wide(ModelConfig config) {
  config.emb_dim = 48;
  config.head_dim = 12;
  config.mlp_dim = 300;
  return config;
}

TEST(Invariance, ThreadsAndInstructionSets) {
  for (ModelConfig config : {Wide(TinyLlama()), Wide(TinyGpt3())}) {
    config.dropout_rate = 0.1;
    config.num_decoder_layers = 1;
    const auto model = MakeModel(config);
    const TestBatch batch = RandomBatch(1, 400, config.vocab_size, true);
    std::string hash;
    float loss = 0;
    for (int threads : {1, 2, 3, 7}) {
      ops::TestBench bench(threads);
      bench.context.key = RngKey::FromSeed(5);
      if (threads == 1) Initialize(*model, RngKey::FromSeed(1), bench.pool);
      if (threads == 3) bench.context.isa = kernels::Isa::kReference;
      const TestStep step = RunStep(bench.context, *model, batch);
      if (threads == 1) hash = HashOf(step.grads), loss = step.loss;
      EXPECT_EQ(HashOf(step.grads), hash) << threads;
      EXPECT_EQ(step.loss, loss);
    }
  }
}

// Two segments of one row against two rows of their own: logits of 1,100 and 200 tokens, bit for bit.
TEST(Invariance, PackedSegmentsEqualSeparateSequences) {
  for (const ModelConfig& config : {TinyLlama(), TinyGpt3()}) {
    const auto model = MakeModel(config);
    ops::TestBench bench;
    Initialize(*model, RngKey::FromSeed(2), bench.pool);
    const int64_t first = 1100, second = 200, total = first + second;
    const TestBatch random = RandomBatch(1, total, config.vocab_size, false);
    std::vector<int32_t> positions, ids;
    for (int64_t t = 0; t < total; ++t) {
      positions.push_back(static_cast<int32_t>(t < first ? t : t - first));
      ids.push_back(t < first ? 1 : 2);
    }
    const auto logits = [&](const Tensor& tokens, const ops::Rows& rows) {
      return model->Logits(bench.context, Forward(bench.context, *model, tokens, rows)).value;
    };
    const Shape shape{1, total};
    const Tensor packed =
        logits(random.tokens, ops::RowsOfBatch(ops::IntTensor(shape, positions), ops::IntTensor(shape, ids)));
    const Tensor alone = logits(random.tokens.Slice(1, 0, first), ops::RowsOfShape(1, first));
    const Tensor other = logits(random.tokens.Slice(1, first, total), ops::RowsOfShape(1, second));
    EXPECT_TRUE(BitEqual(packed.Slice(1, 0, first), alone));
    EXPECT_TRUE(BitEqual(packed.Slice(1, first, total), other));
  }
}

// A shard is its rows: dropout, losses and hidden states are those of the same rows in the whole batch.
TEST(Invariance, ShardsSeeTheirPartOfTheBatch) {
  ModelConfig config = TinyLlama();
  config.dropout_rate = 0.2;
  const auto model = MakeModel(config);
  ops::TestBench bench;
  bench.context.key = RngKey::FromSeed(9);
  Initialize(*model, RngKey::FromSeed(2), bench.pool);
  const TestBatch batch = RandomBatch(4, 20, config.vocab_size, true);
  LossOptions options;
  options.total_weights = 80;
  LossParts whole;
  Loss(bench.context, *model, batch.tokens, batch.targets, batch.segmentation, batch.rows, options, &whole);
  double sum = 0;
  for (int64_t shard : {0, 1}) {
    const auto part = [&](const Tensor& t) { return t.Slice(0, shard * 2, shard * 2 + 2).Contiguous(); };
    ops::Rows rows = ops::RowsOfBatch(part(batch.positions), part(batch.segmentation));
    rows.global_row = shard * 40;
    LossParts parts;
    Loss(bench.context, *model, part(batch.tokens), part(batch.targets), part(batch.segmentation), rows, options,
         &parts);
    sum += parts.xent_sum;
  }
  EXPECT_NEAR(sum, whole.xent_sum, 1e-9);
}

TEST(Remat, EveryPolicyGivesTheSameBits) {
  for (ModelConfig config : {Wide(TinyLlama()), Wide(TinyGpt3())}) {
    config.dropout_rate = 0.1;
    config.num_decoder_layers = 3;
    const auto model = MakeModel(config);
    ops::TestBench bench(1);
    bench.context.key = RngKey::FromSeed(5);
    Initialize(*model, RngKey::FromSeed(1), bench.pool);
    const TestBatch batch = RandomBatch(2, 40, config.vocab_size, true);
    const TestStep plain = RunStep(bench.context, *model, batch);
    EXPECT_EQ(plain.replayed + plain.skipped, 0);
    int64_t full = 0;
    for (const std::string& name : ops::RematPolicyNames()) {
      const std::vector<std::string> kept = {"mlpwi_0", "mlpwi", "context"};
      const ops::RematPolicy policy = name == "custom" ? ops::CustomRematPolicy(kept) : *ops::RematPolicyByName(name);
      bench.context.remat = &policy;
      const TestStep step = RunStep(bench.context, *model, batch);
      EXPECT_EQ(HashOf(step.grads), HashOf(plain.grads)) << name;
      EXPECT_EQ(step.loss, plain.loss) << name;
      EXPECT_EQ(step.replayed == 0, name == "none") << name;
      if (name == "full") {
        full = step.replayed;
        EXPECT_GT(full, 20);
        EXPECT_EQ(step.skipped, 0);
      }
      if (name == "minimal_with_context") {
        // Every projection and the attention of each layer.
        EXPECT_EQ(step.skipped, 3 * (config.decoder_block == "gpt3" ? 5 : 8));
        EXPECT_EQ(step.replayed, full - step.skipped);
      }
      EXPECT_TRUE(name != "custom" || step.skipped == 3 * 2) << step.skipped;
      bench.context.remat = nullptr;
    }
  }
}

TEST(Remat, PeakMemoryFalls) {
  ModelConfig config = Wide(TinyLlama());
  config.num_decoder_layers = 8;
  const auto model = MakeModel(config);
  ops::TestBench bench(1);
  Initialize(*model, RngKey::FromSeed(1), bench.pool);
  const TestBatch batch = RandomBatch(4, 128, config.vocab_size, false);
  const auto peak = [&](const char* name) {
    const ops::RematPolicy policy = *ops::RematPolicyByName(name);
    bench.context.remat = &policy;
    const int64_t before = TensorBytes();
    ResetPeakTensorBytes();
    RunStep(bench.context, *model, batch);
    bench.context.remat = nullptr;
    return PeakTensorBytes() - before;
  };
  const int64_t none = peak("none"), minimal = peak("minimal_with_context"), full = peak("full");
  // Per token and layer: full keeps its input; none the inputs of every op as well.
  const int64_t tokens = 4 * 128, f32 = 4;
  const int64_t wide = config.mlp_dim, emb = config.emb_dim;
  EXPECT_GT(none - full, 7 * tokens * f32 * (3 * wide + 3 * emb));
  EXPECT_LT(full, none / 3);
  EXPECT_LT(minimal, none);
  EXPECT_GT(minimal, full);
}

TEST(Remat, UnknownNames) {
  EXPECT_FALSE(ops::RematPolicyByName("ful").has_value());
  const std::vector<std::string> wrong = {"mlpw"};
  EXPECT_ANY_THROW(ops::CustomRematPolicy(wrong));
}

TEST(Bf16, LossIsNearThatOfF32AndRematKeepsItsBits) {
  for (ModelConfig config : {Wide(TinyLlama()), Wide(TinyGpt3())}) {
    ops::TestBench bench;
    const TestBatch batch = RandomBatch(2, 40, config.vocab_size, true);
    float losses[2];
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      config.dtype = dtype;
      const auto model = MakeModel(config);
      Initialize(*model, RngKey::FromSeed(1), bench.pool);
      const TestStep step = RunStep(bench.context, *model, batch);
      losses[dtype == DType::kBF16 ? 1 : 0] = step.loss;
      for (const auto& [name, grad] : step.grads) EXPECT_EQ(grad.dtype(), DType::kF32) << name;
      const ops::RematPolicy policy = *ops::RematPolicyByName("save_qkv_proj");
      bench.context.remat = &policy;
      EXPECT_EQ(HashOf(RunStep(bench.context, *model, batch).grads), HashOf(step.grads));
      bench.context.remat = nullptr;
    }
    EXPECT_NE(losses[0], losses[1]);
    EXPECT_NEAR(losses[0], losses[1], 0.03);
  }
}

}  // namespace
}  // namespace octavo::models
