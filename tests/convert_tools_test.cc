// What else the converter does: parameters alone, MaxText's spellings there and back, floats from codes, files that go
// along, dry runs, budgets; and the words it says it in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/gguf.h"
#include "octavo/convert/convert.h"
#include "octavo/models/model.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConvertTools : public testing::Test {
 protected:
  ConvertTools() {
    fs::create_directory(folder_ / "tok");
    std::ofstream(folder_ / "tok/tokenizer.json") << "{\"made\": \"up\"}";
    std::ofstream(folder_ / "tok/generation_config.json") << "{}";
  }

  // A checkpoint like that of a run, with a tokenizer and moments of an optimizer.
  fs::path WriteSource(const std::string& recipe) {
    std::vector<std::string> words = {"base_emb_dim=32",
                                      "base_num_query_heads=2",
                                      "base_num_kv_heads=2",
                                      "head_dim=16",
                                      "base_mlp_dim=48",
                                      "base_num_decoder_layers=2",
                                      "vocab_size=60",
                                      "dtype=float32",
                                      "max_target_length=64",
                                      "use_qwix_quantization=true",
                                      "tokenizer_path=" + (folder_ / "tok").string()};
    if (!recipe.empty()) words.push_back("quantization=" + recipe);
    const Settings settings = Settings::Load({.words = words});
    model_ = models::MakeModel(models::ModelConfigFrom(settings));
    models::Initialize(*model_, RngKey::FromSeed(4), pool_);
    const quant::RecipeChoice choice = quant::ChooseRecipe(settings);
    CheckpointContent content;
    content.step = 20;
    content.config = settings.EffectiveYaml();
    content.recipe = choice.text;
    content.recipe_name = choice.name;
    for (const ops::Parameter* parameter : model_->parameters()) {
      content.parameters.emplace_back(parameter->name, parameter->tensor());
      content.optimizer.emplace_back("opt/mu/" + parameter->name, parameter->tensor());
    }
    WriteCheckpoint(folder_ / "source", content);
    return folder_ / "source";
  }

  convert::ConvertSummary Convert(const fs::path& source, const std::string& target,
                                  const std::function<void(convert::ConvertRequest&)>& change = nullptr) {
    const weights::StoredModel stored = weights::OpenStored(source);
    convert::ConvertRequest request{
        .source = stored, .target = folder_ / target, .log = log_, .pool = pool_, .isa = kernels::ChooseIsa().isa};
    if (change) change(request);
    return convert::Convert(request);
  }

  Error ErrorOf(const fs::path& source, const std::function<void(convert::ConvertRequest&)>& change) {
    try {
      Convert(source, "bad", change);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "expected an Error";
    return Error(ErrorCode::kJob, "");
  }

  weights::LoadedModel Load(const std::string& name) {
    return weights::LoadModel(weights::OpenStored(folder_ / name), {}, pool_, kernels::ChooseIsa().isa);
  }
  void ExpectFloatsOfSource(const std::string& name) {
    const weights::StoredModel stored = weights::OpenStored(folder_ / name);
    for (const ops::Parameter* parameter : model_->parameters()) {
      EXPECT_EQ(stored.floats.tensors.at(parameter->name).read().ToVector<float>(),
                parameter->tensor().ToVector<float>())
          << parameter->name;
    }
  }

  static std::vector<int32_t> Tokens() {
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < 200; ++i) ids.push_back(static_cast<int32_t>(RngKey::FromSeed(1).Bits32(i) % 60));
    return ids;
  }

  TempFolder folder_;
  std::string text_;
  Log log_{[this](std::string_view line) { text_ += line; }};
  ThreadPool pool_{2};
  std::unique_ptr<models::Model> model_;
};

TEST_F(ConvertTools, SaysWhatItDidAndCarriesTheTokenizer) {
  const fs::path source = WriteSource("int8");
  const convert::ConvertSummary summary = Convert(source, "out");
  EXPECT_EQ(summary.quantized, 14);
  EXPECT_THAT(summary.carried, ElementsAre("tokenizer.json", "generation_config.json"));
  EXPECT_THAT(text_, HasSubstr("read      source   octavo train   21 tensors   "));
  EXPECT_THAT(text_, HasSubstr("   1 shard, no holes"));
  EXPECT_THAT(text_, HasSubstr("write     int8   14 quantized, 7 kept f32   "));
  EXPECT_THAT(text_, HasSubstr("   peak memory "));
  EXPECT_THAT(text_, HasSubstr("carried   tokenizer.json, generation_config.json"));
  EXPECT_THAT(text_, HasSubstr("check     re-read: 35 of 35 equal"));
  fs::remove_all(source);
  fs::remove_all(folder_ / "tok");
  EXPECT_EQ(weights::OpenStored(folder_ / "out").tokenizer, folder_ / "out");  // needs nothing of its source
  EXPECT_FALSE(Load("out").recipe_text.empty());
  const Manifest manifest = Checkpoint(folder_ / "out").manifest();
  EXPECT_EQ(manifest.source_name, "source");
  EXPECT_EQ(manifest.quantized.size(), 14u);
  for (const auto& item : manifest.quantized) {
    EXPECT_GT(item.second.sqnr_db, 30) << item.first;
    EXPECT_LT(item.second.sqnr_db, 60) << item.first;
    EXPECT_GT(item.second.largest_error, 0) << item.first;
  }
  std::ofstream(folder_ / "out/tokenizer.json") << "{\"made\": \"UP\"}";
  EXPECT_THROW(weights::OpenStored(folder_ / "out"), Error);  // a carried file is checked too
}

TEST_F(ConvertTools, ParametersAloneKeepTheRecipe) {
  const fs::path source = WriteSource("int8");
  Convert(source, "params", [](convert::ConvertRequest& request) { request.parameters_only = true; });
  ExpectFloatsOfSource("params");
  EXPECT_EQ(weights::OpenStored(folder_ / "params").kind, weights::StoredKind::kParams);
  EXPECT_EQ(Checkpoint(folder_ / "params").LoadAll("opt/").size(), 0u);
  Convert(source, "int8");
  EXPECT_EQ(Load("params").fingerprint, Load("int8").fingerprint);
  Convert(folder_ / "params", "again");
  EXPECT_EQ(Checkpoint(folder_ / "again").manifest().Bits(), Checkpoint(folder_ / "int8").manifest().Bits());
}

TEST_F(ConvertTools, MaxTextTreesThereAndBack) {
  const fs::path source = WriteSource("");
  for (const char* collection : {"", "params/", "params/params/"}) {
    Convert(source, "tree", [&](convert::ConvertRequest& request) {
      request.tree = {.scanned = true, .param_scan_axis = 1, .collection = collection};
      request.replace = true;
    });
    const std::string name = std::string(collection) + "decoder/layers/mlp/wi_0/kernel";
    EXPECT_THAT(Checkpoint(folder_ / "tree").manifest().tensors.at(name).shape, ElementsAre(32, 2, 48));
    ExpectFloatsOfSource("tree");
    Convert(folder_ / "tree", "back", [](convert::ConvertRequest& request) { request.replace = true; });
    ExpectFloatsOfSource("back");
    EXPECT_EQ(Checkpoint(folder_ / "back").manifest().tensors.count("decoder/layers_1/mlp/wi_0/kernel"), 1u);
  }
  const fs::path quantized = WriteSource("int8");
  EXPECT_EQ(ErrorOf(quantized, [](auto& request) { request.tree.scanned = true; }).message(),
            "quantized checkpoints are unrolled and without collections");
}

TEST_F(ConvertTools, FloatsFromCodes) {
  Convert(WriteSource("int8"), "int8");
  Convert(folder_ / "int8", "floats", [](convert::ConvertRequest& request) { request.dequantize = true; });
  const weights::StoredModel codes = weights::OpenStored(folder_ / "int8"),
                             floats = weights::OpenStored(folder_ / "floats");
  EXPECT_TRUE(codes.quantized());
  EXPECT_FALSE(floats.quantized());
  EXPECT_TRUE(floats.recipe.empty());
  for (const auto& item : codes.floats.tensors) {
    EXPECT_EQ(floats.floats.tensors.at(item.first).read().ToVector<float>(), item.second.read().ToVector<float>());
  }
  // Codes run under their own recipe only.
  const Settings settings = Settings::Load({.words = {"use_qwix_quantization=true", "quantization=int4"}});
  const quant::RecipeChoice other = quant::ChooseRecipe(settings);
  EXPECT_THAT(ErrorOf(folder_ / "int8", [&](auto& request) { request.recipe = &other; }).message(),
              HasSubstr("is quantized by int8; it cannot run under int4"));
}

TEST_F(ConvertTools, DryRunsAndExistingTargets) {
  const fs::path source = WriteSource("int8");
  const convert::ConvertSummary planned =
      Convert(source, "out", [](convert::ConvertRequest& request) { request.dry_run = true; });
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_THAT(text_, HasSubstr("dry run   int8   14 quantized, 7 kept f32   "));
  EXPECT_EQ(Convert(source, "out").planned_bytes, planned.planned_bytes);
  fs::create_directory(folder_ / "bad");
  const Error exists = ErrorOf(source, [](auto&) {});
  EXPECT_EQ(exists.exit_code(), 2);
  EXPECT_EQ(exists.message(), (folder_ / "bad").string() + " exists");
  EXPECT_EQ(exists.hint(), "add --force to replace it; it is kept until the new one is complete");
}

TEST_F(ConvertTools, GgufFilesWithoutATokenizerSaySo) {
  const fs::path source = WriteSource("");
  fs::remove_all(folder_ / "tok");
  Convert(source, "out.gguf", [](convert::ConvertRequest& request) { request.format = convert::TargetFormat::kGguf; });
  EXPECT_THAT(text_, HasSubstr("note      no tokenizer in the file"));
  const GgufFile file(folder_ / "out.gguf");
  // llama.cpp loads no file without the first key, and takes the vocabulary's size from the second.
  EXPECT_EQ(file.content().Text("tokenizer.ggml.model"), "none");
  EXPECT_EQ(file.content().Int("llama.vocab_size"), 60);
  EXPECT_EQ(weights::OpenStored(folder_ / "out.gguf").tokenizer, "");
}

TEST_F(ConvertTools, OverTheBudgetNothingIsPublished) {
  const fs::path source = WriteSource("");
  const Settings settings = Settings::Load({.words = {"use_qwix_quantization=true", "quantization=int4"}});
  const quant::RecipeChoice int4 = quant::ChooseRecipe(settings);
  const Error over = ErrorOf(source, [&](convert::ConvertRequest& request) {
    request.recipe = &int4;
    request.max_kl = 1e-9;
    request.tokens = Tokens;
  });
  EXPECT_EQ(over.exit_code(), 3);
  EXPECT_THAT(over.message(), HasSubstr(" is over max_kl=1e-09; nothing was published"));
  EXPECT_THAT(over.hint(), HasSubstr("largest parts: "));
  EXPECT_THAT(over.hint(), HasSubstr("keep them in bf16 or raise max_kl"));
  int entries = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    ++entries;
    EXPECT_FALSE(entry.path().filename().string().starts_with(".bad")) << entry.path();
  }
  EXPECT_EQ(entries, 2);  // tokenizer and source
  const convert::ConvertSummary under = Convert(source, "out", [&](convert::ConvertRequest& request) {
    request.recipe = &int4;
    request.max_kl = 10;
    request.tokens = Tokens;
  });
  ASSERT_TRUE(under.kl);
  EXPECT_GT(*under.kl, 1e-9);
  EXPECT_LT(*under.kl, 0.2);
  EXPECT_THAT(text_, HasSubstr("KL to source "));
  EXPECT_THAT(text_, HasSubstr("(budget 10)"));
  // What was trained under the recipe loses nothing.
  const convert::ConvertSummary same = Convert(WriteSource("int8"), "same", [](convert::ConvertRequest& request) {
    request.max_kl = 0;
    request.tokens = Tokens;
  });
  EXPECT_EQ(same.kl, 0);
  EXPECT_THAT(text_, HasSubstr("every logit equal"));
}

}  // namespace
}  // namespace octavo
