#include "octavo/weights/hf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/gguf_writer.h"
#include "octavo/models/model.h"
#include "octavo/ops/test_support.h"
#include "octavo/weights/gguf.h"
#include "octavo/weights/hf_export.h"
#include "octavo/weights/llama2c.h"
#include "octavo/weights/restore.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;
using ::testing::HasSubstr;

ModelConfig Tiny(const std::string& block) {
  ModelConfig c;
  c.decoder_block = block;
  c.vocab_size = 37;
  c.emb_dim = 24;
  c.num_query_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 6;
  c.mlp_dim = 40;
  c.num_decoder_layers = 2;
  c.max_target_length = c.max_position_embeddings = 64;
  c.logits_dot_in_fp32 = true;
  c.normalize_embedding_logits = false;
  if (block != "qwen3" && block != "gpt3") c.query_pre_attn_scalar = 1 / std::sqrt(6.0);
  if (block == "qwen3") c.use_qk_norm = true;
  if (block == "mixtral") c.num_experts = 3, c.num_experts_per_tok = 2;
  if (block == "gpt3") {
    c.num_kv_heads = 4;
    c.mlp_activations = {"gelu"};
    c.fused_qkv = c.logits_via_embedding = true;
    c.trainable_position_size = c.max_target_length;
  }
  return c;
}

ModelConfig TinyDeepSeek() {
  ModelConfig c = Tiny("deepseek");
  c.query_pre_attn_scalar = 0;
  c.num_kv_heads = 4;
  c.attention_type = "mla";
  c.rope_type = "yarn";
  c.rope_factor = 1;
  c.original_max_position_embeddings = c.max_position_embeddings;
  c.q_lora_rank = 10, c.kv_lora_rank = 12, c.qk_nope_head_dim = 6, c.qk_rope_head_dim = 4, c.v_head_dim = 5;
  c.num_experts = 4, c.num_experts_per_tok = 2, c.shared_experts = 1, c.moe_mlp_dim = 8;
  c.first_num_dense_layers = 1;
  c.routed_score_func = "sigmoid";
  c.routed_bias = true;
  c.routed_scaling_factor = 2.5;
  return c;
}

Tensor LogitsOf(ops::TestBench& bench, models::Model& model) {
  const Tensor tokens = ops::IntTensor(Shape{1, 7}, {3, 1, 4, 1, 5, 9, 2});
  const ops::Var hidden = models::Forward(bench.context, model, tokens, ops::RowsOfShape(1, 7));
  return model.Logits(bench.context, hidden).value.Contiguous();
}

std::unique_ptr<models::Model> RandomModel(ops::TestBench& bench, const ModelConfig& config) {
  auto model = models::MakeModel(config);
  models::Initialize(*model, RngKey::FromSeed(11), bench.pool);
  return model;
}

void Export(const models::Model& model, const std::filesystem::path& to, HfExportOptions options = {}) {
  FolderPublisher folder(to);
  ExportHf(
      model.config(), [&](const std::string& name) { return model.parameter_set().Find(name)->tensor(); }, options,
      folder);
  folder.Publish();
}

std::unique_ptr<models::Model> Load(const HfModel& hf) {
  auto model = models::MakeModel(hf.config.config);
  RestoreParameters(hf.source, model->parameters(), {.convert_floats = true});
  return model;
}

TEST(Hf, OutAndBackIsBitExact) {
  ops::TestBench bench;
  ModelConfig rope = Tiny("llama2");
  rope.rope_type = "llama3.1";
  rope.llama3_original_positions = 16;
  ModelConfig tied = Tiny("llama2");
  tied.logits_via_embedding = true;
  ModelConfig biased = Tiny("llama2");
  biased.attention_bias = true;
  for (const ModelConfig& config :
       {Tiny("llama2"), Tiny("mistral"), Tiny("mixtral"), Tiny("qwen3"), TinyDeepSeek(), rope, tied, biased}) {
    const auto model = RandomModel(bench, config);
    const TempFolder folder;
    Export(*model, folder / "m");
    const HfModel hf = OpenHf(folder / "m");
    EXPECT_THAT(hf.notes, ::testing::IsEmpty());
    const auto back = Load(hf);
    for (const ops::Parameter* parameter : model->parameters()) {
      ASSERT_TRUE(BitEqual(parameter->tensor(), back->parameter_set().Find(parameter->name)->tensor()))
          << config.decoder_block << " " << parameter->name;
    }
    EXPECT_TRUE(BitEqual(LogitsOf(bench, *model), LogitsOf(bench, *back))) << config.decoder_block;
  }
}

TEST(Hf, Gpt3ComesBackAsGpt2) {
  ops::TestBench bench;
  const auto model = RandomModel(bench, Tiny("gpt3"));
  const TempFolder folder;
  Export(*model, folder / "m");
  const auto back = Load(OpenHf(folder / "m"));
  EXPECT_TRUE(BitEqual(LogitsOf(bench, *model), LogitsOf(bench, *back)));
}

TEST(Hf, AModelTrainedHereIsScaledOnTheWayOut) {
  ops::TestBench bench;
  ModelConfig config = Tiny("llama2");
  config.query_pre_attn_scalar = 0;  // the factor is in the kernels
  config.head_dim = 16;              // a power of four: exact
  const auto model = RandomModel(bench, config);
  const TempFolder folder;
  Export(*model, folder / "m");
  const HfModel hf = OpenHf(folder / "m");
  EXPECT_EQ(hf.config.config.query_pre_attn_scalar, 0.25);
  const auto back = Load(hf);
  const std::vector<float> ours = LogitsOf(bench, *model).ToVector<float>();
  const std::vector<float> theirs = LogitsOf(bench, *back).ToVector<float>();
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 1e-5);
}

TEST(Hf, ShardsAndTypes) {
  ops::TestBench bench;
  const auto model = RandomModel(bench, Tiny("llama2"));
  const TempFolder folder;
  Export(*model, folder / "m", {.dtype = DType::kBF16, .shard_bytes = 4096});
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "m" / "model.safetensors.index.json"));
  const HfModel hf = OpenHf(folder / "m");
  EXPECT_EQ(hf.config.dtype, DType::kBF16);
  EXPECT_EQ(hf.source.tensors.at("token_embedder/embedding").dtype, DType::kBF16);
}

TEST(Hf, EveryFaultIsListed) {
  ops::TestBench bench;
  const auto model = RandomModel(bench, Tiny("llama2"));
  const TempFolder folder;
  Export(*model, folder / "m");
  std::string text = ReadSmallFile(folder.path() / "m" / "config.json");
  const auto with = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    PublishFile(folder.path() / "m" / "other.json", changed);
    try {
      OpenHf(folder / "m", "other.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"),
              HasSubstr("model.layers.1.mlp.up_proj.weight: superfluous"));
  EXPECT_THAT(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
              HasSubstr("model.layers.2.self_attn.q_proj.weight: missing"));
  EXPECT_THAT(with("\"intermediate_size\": 40", "\"intermediate_size\": 41"),
              HasSubstr("model.layers.0.mlp.gate_proj.weight: expected shape [41, 24], found [40, 24]"));
}

std::string ConfigError(const std::string& text) {
  try {
    ParseHfConfig(text, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

std::string Llama(const std::string& more) {
  return R"({"model_type":"llama","vocab_size":32,"hidden_size":16,"intermediate_size":32,"num_hidden_layers":1,)"
         R"("num_attention_heads":2)" +
         more + "}";
}

TEST(HfConfig, BothSpellings) {
  const HfConfig newer = ParseHfConfig(
      Llama(R"(,"rope_parameters":{"rope_type":"linear","factor":2.5,"rope_theta":5e5},"dtype":"bfloat16")"), "c");
  const HfConfig older = ParseHfConfig(
      Llama(R"(,"rope_theta":5e5,"rope_scaling":{"type":"linear","factor":2.5},"torch_dtype":"bfloat16")"), "c");
  for (const HfConfig& hf : {newer, older}) {
    EXPECT_EQ(hf.config.rope_max_timescale, 5e5);
    EXPECT_EQ(hf.config.rope_linear_scaling_factor, 2.5);
    EXPECT_EQ(hf.dtype, DType::kBF16);
    EXPECT_EQ(hf.config.head_dim, 8);
  }
}

TEST(HfConfig, WhatChangesTheMathsIsAnError) {
  EXPECT_EQ(ConfigError(Llama("")), "no error");
  EXPECT_THAT(ConfigError(R"({"model_type":"gemma9"})"), HasSubstr("unsupported architecture 'gemma9'\nknown: llama"));
  EXPECT_THAT(ConfigError(Llama(R"(,"attention_bias":true)")), HasSubstr("attention_bias=true is not supported"));
  EXPECT_THAT(ConfigError(Llama(R"(,"mlp_bias":true)")), HasSubstr("mlp_bias=true"));
  EXPECT_THAT(ConfigError(Llama(R"(,"attn_logit_softcapping":30.0)")), HasSubstr("attn_logit_softcapping is set"));
  EXPECT_THAT(ConfigError(Llama(R"(,"rope_scaling":{"type":"dynamic","factor":2.0})")),
              HasSubstr("rope_type 'dynamic' is not supported"));
  EXPECT_THAT(ConfigError(Llama(R"(,"hidden_act":"mish")")), HasSubstr("hidden_act 'mish'"));
  EXPECT_THAT(ConfigError(Llama(R"(,"num_key_value_heads":0)")), HasSubstr("num_key_value_heads is 0"));
  EXPECT_THAT(ConfigError(Llama(R"(,"head_dim":"x")")), HasSubstr("expected a whole number"));
  EXPECT_THAT(ConfigError("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ParseHfConfig(Llama(R"(,"frobnicate":3)"), "c").notes,
              ::testing::ElementsAre("key 'frobnicate' is not read"));
}

// A GGUF file of the model in one type; rows of q and k turn neighbours there.
void WriteGguf(const models::Model& model, GgmlType type, const std::filesystem::path& path) {
  const ModelConfig& c = model.config();
  FilePublisher file(path);
  GgufWriter writer([&](std::span<const std::byte> bytes) { file.Write(bytes); });
  writer.Text("general.architecture", "llama");
  const auto size = [&](const char* key, int64_t value) { writer.U32(key, static_cast<uint32_t>(value)); };
  size("llama.embedding_length", c.emb_dim);
  size("llama.feed_forward_length", c.mlp_dim);
  size("llama.block_count", c.num_decoder_layers);
  size("llama.attention.head_count", c.num_query_heads);
  size("llama.attention.head_count_kv", c.num_kv_heads);
  size("llama.attention.key_length", c.head_dim);
  size("llama.context_length", c.max_target_length);
  writer.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const std::vector<HfPiece> pieces = HfPieces("llama", c);
  const auto type_of = [&](const HfPiece& piece) { return piece.TheirShape().rank() == 2 ? type : GgmlType::kF32; };
  for (const HfPiece& piece : pieces) {
    writer.Tensor(GgufNameOf(piece.theirs[0]), type_of(piece), piece.TheirShape().dims());
  }
  writer.WriteHeader();
  for (const HfPiece& piece : pieces) {
    Tensor theirs = ExportPiece(piece, model.parameter_set().Find(piece.ours)->tensor())[0];
    if (piece.ours.ends_with("query/kernel")) theirs = RowsToPairs(theirs, c.num_query_heads);
    if (piece.ours.ends_with("key/kernel")) theirs = RowsToPairs(theirs, c.num_kv_heads);
    const GgmlTypeInfo& info = Info(type_of(piece));
    std::vector<std::byte> blocks(static_cast<size_t>(theirs.size() / info.block * info.bytes));
    QuantizeBlocks(info.type, theirs.Contiguous().Values<float>(), blocks);
    writer.Write(blocks);
  }
  writer.Finish();
  file.Publish();
}

ModelConfig WideLlama() {
  ModelConfig c = Tiny("llama2");
  c.emb_dim = 32, c.head_dim = 16, c.mlp_dim = 64;
  c.query_pre_attn_scalar = 0.25;
  return c;
}

TEST(GgufWeights, F32IsBitExactAndQ8KeepsItsCodes) {
  ops::TestBench bench;
  const auto model = RandomModel(bench, WideLlama());
  const TempFolder folder;
  WriteGguf(*model, GgmlType::kF32, folder / "a.gguf");
  EXPECT_TRUE(BitEqual(LogitsOf(bench, *Load(OpenGguf(folder / "a.gguf"))), LogitsOf(bench, *model)));
  WriteGguf(*model, GgmlType::kQ8_0, folder / "b.gguf");
  const HfModel quantized = OpenGguf(folder / "b.gguf");
  std::string reason;
  const std::string query = "decoder/layers_1/self_attention/query/kernel";
  const std::optional<QArray> codes = quantized.Codes(query, &reason);
  ASSERT_TRUE(codes) << reason;
  EXPECT_EQ(codes->shape(), (Shape{32, 4, 16}));
  // The values of the codes are those that the file decodes to.
  const Tensor values = quantized.source.tensors.at(query).read().Contiguous();
  const Tensor q = codes->qvalue.Contiguous(), scale = codes->scale.RepeatTo(q.shape()).Contiguous();
  for (int64_t i = 0; i < q.size(); ++i) {
    const float expected = static_cast<float>(q.Data<int8_t>()[i]) * Decode(Format::kF16, scale.Data<uint16_t>()[i]);
    ASSERT_EQ(values.Data<float>()[i], expected);
  }
}

TEST(GgufWeights, NamesGoBothWays) {
  for (const HfPiece& piece : HfPieces("llama", Tiny("llama2"))) {
    EXPECT_EQ(HfNameOf(GgufNameOf(piece.theirs[0])), piece.theirs[0]);
  }
  EXPECT_EQ(HfNameOf("blk.x.attn_q.weight"), "");
  EXPECT_EQ(HfNameOf("blk..attn_q.weight"), "");
}

}  // namespace
}  // namespace octavo::weights
