#include "octavo/models/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/models/test_models.h"
#include "octavo/ops/interceptor.h"

namespace octavo::models {
namespace {

ModelConfig Named(const std::string& block, int64_t emb, int64_t heads, int64_t kv, int64_t dim, int64_t mlp,
                  int64_t layers, int64_t vocab) {
  ModelConfig config;
  config.decoder_block = block;
  config.emb_dim = emb;
  config.num_query_heads = heads;
  config.num_kv_heads = kv;
  config.head_dim = dim;
  config.mlp_dim = mlp;
  config.num_decoder_layers = layers;
  config.vocab_size = vocab;
  return config;
}

TEST(Model, ParameterCountsOfTheNamedSizes) {
  EXPECT_EQ(ParameterCount(*MakeModel(Named("llama2", 4096, 32, 32, 128, 11008, 32, 32000))), 6738415616);
  EXPECT_EQ(ParameterCount(*MakeModel(Named("llama2", 5120, 40, 40, 128, 13824, 40, 32000))), 13015864320);
  EXPECT_EQ(ParameterCount(*MakeModel(Named("llama2", 8192, 64, 8, 128, 28672, 80, 32000))), 68976648192);
  EXPECT_EQ(ParameterCount(*MakeModel(Named("llama2", 4096, 32, 8, 128, 14336, 32, 128256))), 8030261248);
  EXPECT_EQ(ParameterCount(*MakeModel(Named("mistral", 4096, 32, 8, 128, 14336, 32, 32000))), 7241732096);
  ModelConfig gpt3 = TinyGpt3();
  gpt3.emb_dim = 16, gpt3.num_query_heads = gpt3.num_kv_heads = 2, gpt3.head_dim = 8, gpt3.mlp_dim = 64;
  gpt3.num_decoder_layers = 1, gpt3.vocab_size = 1024;
  EXPECT_EQ(ParameterCount(*MakeModel(gpt3)), 52464);
}

TEST(Model, NamesAreMaxTexts) {
  std::vector<std::string> names;
  ModelConfig config = TinyLlama();
  config.num_decoder_layers = 1;
  const auto model = MakeModel(config);
  for (const ops::Parameter* parameter : model->parameters()) names.push_back(parameter->name);
  const std::string layer = "decoder/layers_0/";
  EXPECT_EQ(names, (std::vector<std::string>{"token_embedder/embedding", layer + "pre_self_attention_layer_norm/scale",
                                             layer + "self_attention/query/kernel", layer + "self_attention/key/kernel",
                                             layer + "self_attention/value/kernel", layer + "self_attention/out/kernel",
                                             layer + "post_self_attention_layer_norm/scale", layer + "mlp/wi_0/kernel",
                                             layer + "mlp/wi_1/kernel", layer + "mlp/wo/kernel",
                                             "decoder/decoder_norm/scale", "decoder/logits_dense/kernel"}));
  EXPECT_THROW(MakeModel(Named("lama2", 8, 1, 1, 8, 8, 1, 8)), Error);
}

TEST(Model, InitializersHaveTheirVariance) {
  ThreadPool pool(2);
  ModelConfig config = Named("llama2", 256, 4, 4, 64, 512, 1, 1000);
  const auto model = MakeModel(config);
  Initialize(*model, RngKey::FromSeed(3), pool);
  const auto deviation = [&](const std::string& name) {
    double square = 0;
    const Tensor& tensor = model->parameter_set().Find(name)->tensor();
    for (float value : tensor.Values<float>()) square += static_cast<double>(value) * value;
    return std::sqrt(square / static_cast<double>(tensor.size()));
  };
  const std::string layer = "decoder/layers_0/";
  EXPECT_NEAR(deviation(layer + "mlp/wi_0/kernel"), 1.0 / 16, 4e-4);
  EXPECT_NEAR(deviation(layer + "mlp/wo/kernel"), 1 / std::sqrt(512.0), 4e-4);
  EXPECT_NEAR(deviation(layer + "self_attention/key/kernel"), 1.0 / 16, 4e-4);
  EXPECT_NEAR(deviation(layer + "self_attention/query/kernel"), 1.0 / 128, 1e-4);
  EXPECT_NEAR(deviation("token_embedder/embedding"), 1.0 / 16, 4e-4);
  EXPECT_EQ(deviation("decoder/decoder_norm/scale"), 1);
  float largest = 0;
  for (float value : model->parameter_set().Find(layer + "mlp/wi_0/kernel")->tensor().Values<float>()) {
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_LT(largest, 2.01 / 16 / 0.8796);
}

// Central differences of the loss for a few elements of every parameter.
void CheckGradients(const ModelConfig& config, double tolerance) {
  ops::TestBench bench(1);
  const auto model = MakeModel(config);
  Initialize(*model, RngKey::FromSeed(1), bench.pool);
  const TestBatch batch = RandomBatch(2, 9, config.vocab_size, true);
  LossOptions options;
  options.z_loss_multiplier = 1e-3;
  const TestStep step = RunStep(bench.context, *model, batch, options);
  const auto loss = [&] {
    LossParts parts;
    LossOptions plain = options;
    plain.total_weights = static_cast<double>(batch.tokens.size());
    Loss(bench.context, *model, batch.tokens, batch.targets, batch.segmentation, batch.rows, plain, &parts);
    return parts.xent_sum / (plain.total_weights + 1e-8);
  };
  EXPECT_NEAR(loss(), step.loss, 1e-6);
  for (ops::Parameter* parameter : model->parameters()) {
    const Tensor start = parameter->tensor();
    double largest = 1e-3;
    for (float value : step.grads.at(parameter->name).Values<float>()) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
    for (int64_t i = 0; i < start.size(); i += std::max<int64_t>(1, start.size() / 5)) {
      const float h = 2e-3f;
      double sides[2];
      for (int side : {0, 1}) {
        Tensor moved = start.Clone();
        moved.MutableValues<float>()[i] += side == 0 ? -h : h;
        parameter->value = moved;
        sides[side] = loss();
      }
      parameter->value = start;
      EXPECT_NEAR(step.grads.at(parameter->name).Values<float>()[i], (sides[1] - sides[0]) / (2 * h),
                  tolerance * largest)
          << parameter->name << " " << i;
    }
  }
}

TEST(Model, GradientsAgreeWithDifferences) {
  CheckGradients(TinyLlama(), 0.02);
  ModelConfig fused = TinyLlama();
  fused.fused_qkv = fused.fused_mlp = true;
  fused.use_qk_norm = true;
  fused.attention_bias = fused.mlp_bias = true;
  fused.final_logits_soft_cap = 5;
  fused.attn_logits_soft_cap = 3;
  CheckGradients(fused, 0.02);
  ModelConfig gpt3 = TinyGpt3();
  gpt3.logits_via_embedding = false;  // the tied table is rounded to bf16: no differences to take
  CheckGradients(gpt3, 0.02);
}

class Listener : public ops::Interceptor {
 public:
  std::optional<ops::Var> Dot(ops::Context&, const ops::DotCall& call) override {
    sites.push_back(call.site.ToString());
    return std::nullopt;
  }
  void Fused(ops::Context&, const ops::DotCall& call) override { sites.push_back(call.site.ToString()); }
  std::vector<std::string> sites;
};

// The order and names of the reference's site table.
TEST(Model, SitesOfADryRun) {
  ops::TestBench bench;
  ModelConfig config = TinyGpt3();
  config.num_decoder_layers = 1;
  const auto model = MakeModel(config);
  Listener listener;
  bench.context.interceptor = &listener;
  const Tensor tokens = Tensor::Meta({2, 12}, DType::kI32);
  Loss(bench.context, *model, tokens, tokens, tokens, ops::RowsOfShape(2, 12), {}, nullptr);
  const std::string layer = "decoder/layers_0/";
  EXPECT_EQ(listener.sites,
            (std::vector<std::string>{
                "token_embedder dot_general0", "decoder/position_embedder dot_general0",
                layer + "pre_self_attention_norm einsum0", layer + "self_attention/qkv_proj dot_general0",
                layer + "self_attention/attention_op einsum0", layer + "self_attention/attention_op einsum1",
                layer + "self_attention/out dot_general0", layer + "mlp/mlp_layer_norm einsum0",
                layer + "mlp/wi dot_general0", layer + "mlp/wo dot_general0", "decoder/decoder_norm einsum0",
                "decoder dot_general0"}));
}

}  // namespace
}  // namespace octavo::models
