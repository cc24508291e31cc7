// GGUF files in and out: every family there and back, codes that stay codes, names, and what is refused.
#include "octavo/weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/gguf_writer.h"
#include "octavo/quant/quantize.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/gguf_export.h"
#include "octavo/weights/gguf_export_keys.h"
#include "octavo/weights/hf_export.h"
#include "octavo/weights/model_json.h"
#include "octavo/weights/test_models.h"

namespace octavo::weights {
namespace {

using models::ModelConfig;
using ::testing::HasSubstr;
using Value = std::variant<Tensor, QArray>;
using Read = std::function<Value(const std::string&)>;

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
    writer.Tensor(GgufNameOf(piece.theirs[0], "llama"), type_of(piece), piece.TheirShape().dims());
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
    EXPECT_THAT(HfNamesOf(GgufNameOf(piece.theirs[0], "llama"), "llama", 1), ::testing::ElementsAre(piece.theirs[0]));
  }
  ModelConfig c = TinyDeepSeek();
  c.num_experts = 3, c.trainable_position_size = 8;
  for (const char* type : {"mixtral", "qwen3_moe", "gpt2", "deepseek_v3"}) {
    for (const HfPiece& piece : HfPieces(type, c)) {
      const std::string name = GgufNameOf(piece.theirs[0], type);
      EXPECT_EQ(name.empty(), false) << piece.theirs[0];
      EXPECT_EQ(HfNamesOf(name, type, 3), piece.theirs) << name;
    }
  }
  for (const char* bad : {"blk.x.attn_q.weight", "blk..attn_q.weight", "blk.0.attn_q", "blk.0.attn_q.a.b",
                          "blk.9999999999.attn_q.weight", "output"}) {
    EXPECT_THAT(HfNamesOf(bad, "llama", 1), ::testing::IsEmpty()) << bad;
  }
}

GgufExported Export(const ModelConfig& config, const Read& read, const std::filesystem::path& path,
                    DType dtype = DType::kF32) {
  FilePublisher file(path);
  GgufWriter writer([&](std::span<const std::byte> bytes) { file.Write(bytes); });
  GgufExportOptions options;
  options.dtype = dtype;
  const GgufExported exported = ExportGguf(config, read, options, writer);
  file.Publish();
  return exported;
}

Read FloatsOf(const models::Model& model) {
  return [&model](const std::string& name) -> Value { return model.parameter_set().Find(name)->tensor(); };
}

std::string ConfigText(ModelConfig config) {
  config.model_name = "";
  return ModelToJson(config).dump(1);
}

ModelConfig YarnDeepSeek() {
  ModelConfig c = TinyDeepSeek();
  c.head_dim = 6;
  c.rope_factor = 8;
  c.original_max_position_embeddings = 16;
  c.max_position_embeddings = 17;
  c.mscale = 0.707;
  c.n_routing_groups = 2;
  c.topk_routing_group = 1;
  return c;
}

ModelConfig LiteDeepSeek() {
  ModelConfig c = TinyDeepSeek();
  c.q_lora_rank = 0;
  c.routed_score_func = "softmax";
  c.routed_bias = false;
  return c;
}

std::vector<ModelConfig> Families() {
  ModelConfig tied = Tiny("llama2");
  tied.logits_via_embedding = true;
  ModelConfig biased = Tiny("llama2");
  biased.attention_bias = true;
  ModelConfig linear = Tiny("llama2");
  linear.rope_linear_scaling_factor = 4;
  linear.normalization_layer_epsilon = 1e-6;
  ModelConfig llama3 = Tiny("llama2");
  llama3.rope_type = "llama3.1";
  llama3.llama3_factor = 32;
  llama3.rope_max_timescale = 500000;
  ModelConfig yarn = Tiny("llama2");
  yarn.rope_type = "yarn";
  yarn.rope_factor = 4;
  yarn.original_max_position_embeddings = 16;
  yarn.rope_interleave = false;
  yarn.rope_attention_scaling = true;
  yarn.beta_fast = 20;
  ModelConfig qwen_experts = Tiny("qwen3");
  qwen_experts.decoder_block = "qwen3_moe";
  qwen_experts.num_experts = 3, qwen_experts.num_experts_per_tok = 2, qwen_experts.moe_mlp_dim = 8;
  ModelConfig gpt = Tiny("gpt3");
  gpt.max_position_embeddings = ModelConfig().max_position_embeddings;  // plain folders say nothing about it either
  return {Tiny("llama2"), tied,         biased, linear,         llama3,         yarn,          Tiny("mixtral"),
          Tiny("qwen3"),  qwen_experts, gpt,    TinyDeepSeek(), YarnDeepSeek(), LiteDeepSeek()};
}

TEST(GgufExport, EveryFamilyOutAndBackIsBitExact) {
  ops::TestBench bench;
  for (const ModelConfig& config : Families()) {
    SCOPED_TRACE(config.decoder_block + " " + config.rope_type);
    const auto model = RandomModel(bench, config);
    const TempFolder folder;
    const GgufExported exported = Export(config, FloatsOf(*model), folder / "m.gguf");
    EXPECT_THAT(exported.notes, ::testing::IsEmpty());
    const HfModel hf = OpenGguf(folder / "m.gguf");
    EXPECT_EQ(ConfigText(hf.config.config), ConfigText(config));
    const auto back = Load(hf);
    for (const ops::Parameter* parameter : model->parameters()) {
      ASSERT_TRUE(BitEqual(parameter->tensor(), back->parameter_set().Find(parameter->name)->tensor()))
          << parameter->name;
    }
    EXPECT_TRUE(BitEqual(LogitsOf(bench, *model), LogitsOf(bench, *back)));
  }
}

// transformers writes the part of a head that turns as head_dim of deepseek, which neither GGUF nor the model knows.
TEST(GgufExport, LatentModelsOfFoldersComeBackWithTheirConfiguration) {
  ops::TestBench bench;
  for (const ModelConfig& tiny : {TinyDeepSeek(), YarnDeepSeek(), LiteDeepSeek()}) {
    nlohmann::ordered_json json = WriteHfConfig(tiny, DType::kF32);
    json["head_dim"] = tiny.qk_rope_head_dim;
    const ModelConfig config = ParseHfConfig(json.dump(), "config.json").config;
    const auto model = RandomModel(bench, config);
    const TempFolder folder;
    Export(config, FloatsOf(*model), folder / "m.gguf");
    EXPECT_EQ(ConfigText(OpenGguf(folder / "m.gguf").config.config), ConfigText(config));
  }
}

TEST(GgufExport, ShortFloatsAreRoundedOnceAndVectorsStayWhole) {
  ops::TestBench bench;
  const ModelConfig config = Tiny("mixtral");
  const auto model = RandomModel(bench, config);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const TempFolder folder;
    Export(config, FloatsOf(*model), folder / "m.gguf", dtype);
    const HfModel hf = OpenGguf(folder / "m.gguf");
    for (const ops::Parameter* parameter : model->parameters()) {
      const Tensor& exact = parameter->tensor();
      const bool vector = exact.rank() < 2;
      const Tensor expected = vector ? exact : ConvertFloats(ConvertFloats(exact, dtype), DType::kF32);
      EXPECT_TRUE(BitEqual(hf.source.tensors.at(parameter->name).read().Contiguous(), expected)) << parameter->name;
    }
  }
}

// Random codes with a scale for each 32 inputs (or for each output), in f16 numbers or not.
QArray RandomCodes(const HfPiece& piece, Format format, bool by_32, float scale_step, uint64_t seed) {
  std::vector<int64_t> scale_dims;
  if (piece.stacked) scale_dims.push_back(static_cast<int64_t>(piece.theirs.size()));
  for (int i = 0; i < piece.in.rank(); ++i) {
    const bool last = i + 1 == piece.in.rank();
    scale_dims.push_back(!by_32 ? 1 : last ? piece.in[i] / 32 : piece.in[i]);
  }
  for (const int64_t dim : piece.out) scale_dims.push_back(dim);
  QArray array;
  array.format = format;
  array.qvalue = Tensor::Empty(piece.OurShape(), DType::kI8);
  array.scale = Tensor::Empty(Shape(scale_dims), DType::kF32);
  const RngKey key = RngKey::FromSeed(seed);
  const int32_t most = format == Format::kInt8 ? 127 : 7;
  uint64_t at = 0;
  for (int8_t& code : array.qvalue.MutableValues<int8_t>()) {
    code = static_cast<int8_t>(static_cast<int32_t>(key.Bits32(at++) % static_cast<uint32_t>(2 * most + 2)) - most - 1);
  }
  for (float& scale : array.scale.MutableValues<float>()) {
    scale = scale_step * static_cast<float>(1 + key.Bits32(at++) % 2047);
  }
  return array;
}

// All matrices of a model in codes, out and back.
void CheckCodes(ModelConfig config, Format format, bool by_32) {
  SCOPED_TRACE(fmt::format("{} {} {}", config.decoder_block, Info(format).name, by_32));
  ops::TestBench bench;
  const auto model = RandomModel(bench, config);
  std::map<std::string, QArray> codes;
  for (const HfPiece& piece : HfPieces(HfModelTypeOf(config), config)) {
    if (piece.in.rank() == 0 || piece.in.size() % 32 != 0 || piece.in[piece.in.rank() - 1] % 32 != 0) continue;
    codes[piece.ours] = RandomCodes(piece, format, by_32, 0x1p-16f, codes.size());
  }
  ASSERT_GE(codes.size(), 8u);
  const Read read = [&](const std::string& name) -> Value {
    if (codes.contains(name)) return codes.at(name);
    return model->parameter_set().Find(name)->tensor();
  };
  const TempFolder folder;
  const GgufExported exported = Export(config, read, folder / "m.gguf");
  EXPECT_EQ(exported.quantized, static_cast<int64_t>(codes.size()));
  EXPECT_THAT(exported.notes, ::testing::IsEmpty());
  const HfModel hf = OpenGguf(folder / "m.gguf");
  for (const auto& item : codes) {
    const Tensor expected = quant::Dequantize(item.second).Contiguous();
    const Tensor found = hf.source.tensors.at(item.first).read().Contiguous();
    float largest = 0;
    for (int64_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected.Data<float>()[i] - found.Data<float>()[i]));
    }
    EXPECT_EQ(largest, 0) << item.first;
    std::string reason;
    const std::optional<QArray> back = hf.Codes(item.first, &reason);
    ASSERT_TRUE(back) << item.first << " " << reason;
    EXPECT_TRUE(BitEqual(back->qvalue.Contiguous(), item.second.qvalue)) << item.first;
    const Shape& shape = item.second.shape();
    EXPECT_TRUE(BitEqual(ConvertFloats(back->scale, DType::kF32).RepeatTo(shape).Contiguous(),
                         item.second.scale.RepeatTo(shape).Contiguous()))
        << item.first;
  }
}

ModelConfig Wide(ModelConfig c) {
  c.emb_dim = 64, c.head_dim = 32, c.num_query_heads = 2, c.num_kv_heads = c.decoder_block == "gpt3" ? 2 : 1;
  c.mlp_dim = 96;
  if (c.query_pre_attn_scalar != 0) c.query_pre_attn_scalar = 1 / std::sqrt(32.0);
  if (c.attention_type == "mla") {
    c.num_kv_heads = 2;
    c.q_lora_rank = 32, c.kv_lora_rank = 64, c.qk_nope_head_dim = 16, c.qk_rope_head_dim = 8, c.v_head_dim = 32;
    c.moe_mlp_dim = 32;
  }
  return c;
}

TEST(GgufExport, LatticesOf32GoWithoutLoss) {
  for (const Format format : {Format::kInt8, Format::kInt4}) {
    for (const char* block : {"llama2", "mixtral", "qwen3", "gpt3"}) CheckCodes(Wide(Tiny(block)), format, true);
    CheckCodes(Wide(TinyDeepSeek()), format, true);
    CheckCodes(Wide(Tiny("llama2")), format, false);
  }
}

TEST(GgufExport, ScalesThatAreNoF16AreRoundedWithANote) {
  ops::TestBench bench;
  const ModelConfig config = Wide(Tiny("llama2"));
  const auto model = RandomModel(bench, config);
  const std::string name = "decoder/layers_0/mlp/wi_0/kernel";
  const std::vector<HfPiece> pieces = HfPieces("llama", config);
  const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const HfPiece& one) { return one.ours == name; });
  const QArray codes = RandomCodes(*piece, Format::kInt8, true, 0.1f * 0x1p-13f, 3);
  const TempFolder folder;
  const GgufExported exported = Export(
      config,
      [&](const std::string& wanted) -> Value {
        if (wanted == name) return codes;
        return model->parameter_set().Find(wanted)->tensor();
      },
      folder / "m.gguf");
  ASSERT_EQ(exported.notes.size(), 1u);
  EXPECT_THAT(exported.notes[0],
              HasSubstr("1 tensors: scales rounded to f16, by at most 3.9e-04 of a value; the codes are kept"));
  std::string reason;
  EXPECT_TRUE(BitEqual(OpenGguf(folder / "m.gguf").Codes(name, &reason)->qvalue.Contiguous(), codes.qvalue));
}

// Newer files keep the halves of kv_b apart, the first turned around.
TEST(GgufWeights, HalvesOfLatentKeysAndValuesAreJoined) {
  ops::TestBench bench;
  const ModelConfig c = TinyDeepSeek();
  const auto model = RandomModel(bench, c);
  const TempFolder folder;
  FilePublisher file(folder / "m.gguf");
  GgufWriter writer([&](std::span<const std::byte> bytes) { file.Write(bytes); });
  WriteGgufKeys(c, "deepseek_v3", {"", DType::kF32, {}}, writer);
  writer.U32("deepseek2.attention.key_length_mla", 10);
  writer.U32("deepseek2.attention.value_length_mla", 5);
  std::vector<Tensor> data;
  const auto add = [&](const std::string& name, const Tensor& values) {
    writer.Tensor(name, GgmlType::kF32, values.shape().dims());
    data.push_back(values.Contiguous());
  };
  for (const HfPiece& piece : HfPieces("deepseek_v3", c)) {
    const std::vector<Tensor> theirs = ExportPiece(piece, model->parameter_set().Find(piece.ours)->tensor());
    const std::string name = GgufNameOf(piece.theirs[0], "deepseek_v3");
    if (name.ends_with("attn_kv_b.weight")) {
      const std::string before = name.substr(0, name.find("attn_kv_b"));
      const Tensor heads = theirs[0].Reshape({4, 6 + 5, 12});
      add(before + "attn_k_b.weight", heads.Slice(1, 0, 6).SwapAxes(1, 2));
      add(before + "attn_v_b.weight", heads.Slice(1, 6, 11));
    } else if (piece.stacked) {
      std::vector<float> all;
      for (const Tensor& one : theirs) {
        const std::vector<float> values = one.ToVector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
      const Shape one = piece.TheirShape();
      add(name, Tensor::FromValues<float>(Shape{c.num_experts, one[0], one[1]}, DType::kF32, all));
    } else {
      add(name, theirs[0]);
    }
  }
  writer.WriteHeader();
  for (const Tensor& values : data) writer.Write({values.RawData(), static_cast<size_t>(values.bytes())});
  writer.Finish();
  file.Publish();
  const auto back = Load(OpenGguf(folder / "m.gguf"));
  EXPECT_TRUE(BitEqual(LogitsOf(bench, *model), LogitsOf(bench, *back)));
}

TEST(GgufExport, WhatLlamaCppDoesNotComputeIsRefused) {
  const auto refused = [](const ModelConfig& config) {
    try {
      GgufArchitectureFor(config, HfModelTypeOf(config));
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      return error.message();
    }
    return std::string("written");
  };
  EXPECT_EQ(refused(Tiny("llama2")), "written");
  ModelConfig window = Tiny("mistral");
  window.attention_type = "local_sliding";
  EXPECT_EQ(refused(window), "models of type mistral with a window are not written as GGUF");
  ModelConfig groups = LiteDeepSeek();
  groups.n_routing_groups = 2;
  EXPECT_EQ(refused(groups), "models of type deepseek_v2 with groups of experts are not written as GGUF");
  ModelConfig gelu = Tiny("llama2");
  gelu.mlp_activations = {"gelu", "linear"};
  EXPECT_EQ(refused(gelu), "models of type llama with the activation 'gelu' are not written as GGUF");
}

}  // namespace
}  // namespace octavo::weights
