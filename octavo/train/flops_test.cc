#include "octavo/train/flops.h"

#include <gtest/gtest.h>

namespace octavo::train {
namespace {

models::ModelConfig Gpt52k() {
  models::ModelConfig c;
  c.decoder_block = "gpt3";
  c.emb_dim = 16;
  c.num_query_heads = c.num_kv_heads = 2;
  c.head_dim = 8;
  c.mlp_dim = 64;
  c.mlp_activations = {"gelu"};
  c.num_decoder_layers = 1;
  c.vocab_size = 1024;
  return c;
}

// The reference's log of this model, 64 tokens in rows of 32: "split as 97.44% learnable weight flops and 2.56%".
TEST(Flops, SplitIsTheReferences) {
  const StepFlops flops = FlopsOfStep(Gpt52k(), 2, 32);
  EXPECT_NEAR(100 * flops.learnable / flops.total(), 97.44, 0.005);
  EXPECT_NEAR(100 * flops.attention / flops.total(), 2.56, 0.005);
  EXPECT_DOUBLE_EQ(flops.learnable, 3e-12 * 64 * (4096 + 1536 + 512 + 32768));
}

TEST(Flops, ExpertsCountThoseThatRun) {
  models::ModelConfig c = Gpt52k();
  const double dense = FlopsOfStep(c, 1, 32).learnable;
  c.num_experts = 8;
  c.num_experts_per_tok = 2;
  EXPECT_DOUBLE_EQ(FlopsOfStep(c, 1, 32).learnable, dense + 3e-12 * 32 * (4096 + 2 * 16 * 8));
}

TEST(Flops, LatentAttentionAndSharedExperts) {
  models::ModelConfig c = Gpt52k();
  c.decoder_block = "deepseek";
  c.attention_type = "mla";
  c.q_lora_rank = 0;
  c.kv_lora_rank = 4;
  c.qk_nope_head_dim = 8, c.qk_rope_head_dim = 2, c.v_head_dim = 6;
  c.num_decoder_layers = 3;
  c.first_num_dense_layers = 1;
  c.num_experts = 4, c.num_experts_per_tok = 2, c.shared_experts = 1, c.moe_mlp_dim = 10;
  const double projections = 2.0 * (16 * 2 * 10 + 16 * 6 + 4 * 2 * 14 + 16 * 2 * 6);
  const double mlp = 2.0 * 64 * 16 * 2 + 2 * (2.0 * 16 * 4 + 3 * (2.0 * 10 * 16 * 2));
  const StepFlops flops = FlopsOfStep(c, 1, 32);
  EXPECT_DOUBLE_EQ(flops.learnable, 3e-12 * 32 * (mlp + 3 * projections + 32768));
  EXPECT_DOUBLE_EQ(flops.attention, 3e-12 * 32 * 3 * (2.0 * 32 * 2 * 16) / 2);
}

}  // namespace
}  // namespace octavo::train
