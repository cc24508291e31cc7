// The one door: what it recognizes, what it refuses and with which words; every fault of a checkpoint by name.
#include "octavo/weights/stored_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/models/model.h"
#include "octavo/weights/carried.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/model_json.h"
#include "octavo/weights/restore.h"

#include <nlohmann/json.hpp>

namespace octavo::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Failure {
  int exit = 0;
  std::string message, hint;
};

Failure FailureOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.exit_code(), error.message(), error.hint()};
  }
  ADD_FAILURE() << "expected an Error";
  return {};
}

class Stored : public testing::Test {
 protected:
  Stored()
      : settings_(Settings::Load(
            {.words = {"base_emb_dim=16", "base_num_query_heads=2", "base_num_kv_heads=2", "head_dim=8",
                       "base_mlp_dim=24", "base_num_decoder_layers=2", "vocab_size=32", "dtype=float32"}})),
        model_(models::MakeModel(models::ModelConfigFrom(settings_))) {
    models::Initialize(*model_, RngKey::FromSeed(3), pool_);
    content_.kind = "params";
    content_.config = settings_.EffectiveYaml();
    for (const ops::Parameter* parameter : model_->parameters()) {
      content_.parameters.emplace_back(parameter->name, parameter->tensor());
    }
  }

  fs::path Write(const CheckpointContent& content, const std::string& name = "c") {
    WriteCheckpoint(folder_ / name, content);
    return folder_ / name;
  }
  void Touch(const std::string& name, const std::string& text = "x") {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  LoadedModel Load(const fs::path& path) { return LoadModel(OpenStored(path), {}, pool_, kernels::Isa::kReference); }
  std::map<std::string, Tensor> Values() const {
    std::map<std::string, Tensor> values;
    for (const auto& [name, tensor] : content_.parameters) values[name] = tensor;
    return values;
  }
  void ExpectLoaded(const LoadedModel& loaded) {
    const auto values = Values();
    ASSERT_EQ(loaded.model->parameters().size(), values.size());
    for (const ops::Parameter* parameter : loaded.model->parameters()) {
      EXPECT_EQ(parameter->tensor().ToVector<float>(), values.at(parameter->name).ToVector<float>()) << parameter->name;
    }
  }
  // The same checkpoint with one tensor replaced (undefined: left out) under a name.
  fs::path With(const std::string& name, const std::string& as, const Tensor& value) {
    CheckpointContent content = content_;
    std::erase_if(content.parameters, [&](const auto& item) { return item.first == name; });
    if (value.defined()) content.parameters.emplace_back(as, value);
    return Write(content);
  }

  const std::string kKernel = "decoder/layers_1/mlp/wi_0/kernel";
  TempFolder folder_;
  ThreadPool pool_{1};
  Settings settings_;
  std::unique_ptr<models::Model> model_;
  CheckpointContent content_;
};

// The same parameters compute something else: the fingerprint says so. Names and lengths change no logit.
TEST_F(Stored, TheFingerprintHasTheArchitecture) {
  const std::string original = Load(Write(content_)).fingerprint;
  const auto with = [&](const std::string& word) {
    CheckpointContent content = content_;
    const std::string key = word.substr(0, word.find('='));
    const size_t at = content.config.find("\n" + key + ": ") + 1;
    content.config.replace(at, content.config.find('\n', at) - at, key + ": " + word.substr(key.size() + 1));
    return Load(Write(content, key)).fingerprint;
  };
  EXPECT_NE(with("rope_max_timescale=500000"), original);
  EXPECT_NE(with("normalization_layer_epsilon=0.001"), original);
  EXPECT_EQ(with("max_target_length=64"), original);
  EXPECT_EQ(with("run_name=another"), original);
  EXPECT_EQ(with("scan_layers=false"), original);
  EXPECT_EQ(with("dropout_rate=0.5"), original);
}

TEST_F(Stored, ParametersComeBack) {
  const fs::path path = Write(content_);
  const StoredModel stored = OpenStored(path);
  EXPECT_EQ(stored.kind, StoredKind::kParams);
  EXPECT_EQ(stored.name, "c");
  EXPECT_FALSE(stored.quantized());
  EXPECT_EQ(stored.stored_tensors, static_cast<int64_t>(content_.parameters.size()));
  ExpectLoaded(Load(path));
  EXPECT_EQ(Load(path).fingerprint, Load(path).fingerprint);
}

TEST_F(Stored, EveryFaultIsNamedAtOnce) {
  const Tensor kernel = Values().at(kKernel);
  const auto fault = [&](const fs::path& path) {
    const Failure failure = FailureOf([&] { Load(path); });
    EXPECT_EQ(failure.exit, 5);
    EXPECT_THAT(failure.message, HasSubstr("do not fit the model; nothing was loaded"));
    return failure.hint;
  };
  EXPECT_THAT(fault(With(kKernel, "", Tensor())), HasSubstr(kKernel + ": missing"));
  const std::string renamed = fault(With(kKernel, "decoder/layers_1/mlp/wi_9/kernel", kernel));
  EXPECT_THAT(renamed, HasSubstr("decoder/layers_1/mlp/wi_9/kernel: superfluous"));
  EXPECT_THAT(renamed, HasSubstr(kKernel + ": missing; did you mean 'decoder/layers_1/mlp/wi_9/kernel'?"));
  EXPECT_THAT(fault(With(kKernel, kKernel, kernel.SwapAxes(0, 1).Contiguous())),
              HasSubstr(kKernel + ": expected shape [16, 24], found [24, 16] (axes in another order)"));
  CheckpointContent two = content_;
  std::erase_if(two.parameters, [&](const auto& item) { return item.first == kKernel; });
  two.parameters.emplace_back("extra", kernel);
  const std::string both = fault(Write(two));
  EXPECT_THAT(both, HasSubstr("extra: superfluous"));
  EXPECT_THAT(both, HasSubstr(kKernel + ": missing"));
}

TEST_F(Stored, AnotherTypeIsAFault) {
  const Tensor codes = Tensor::Zeros({16, 24}, DType::kI8);
  const Failure failure = FailureOf([&] { Load(With(kKernel, kKernel, codes)); });
  EXPECT_THAT(failure.message, HasSubstr("parameter '" + kKernel + "' is I8, expected floats"));
  CheckpointContent train = content_;
  train.kind = "train";
  for (auto& item : train.parameters) {
    if (item.first == kKernel) item.second = Tensor::Zeros({16, 24}, DType::kBF16);
  }
  EXPECT_THAT(FailureOf([&] { Load(Write(train)); }).hint, HasSubstr(kKernel + ": expected f32, found bf16"));
}

TEST_F(Stored, ZeroedBytesOfSeveralTensorsAreOneError) {
  const fs::path path = Write(content_);
  const fs::path file = path / "model-00001-of-00001.safetensors";
  uint64_t header = 0;
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.read(reinterpret_cast<char*>(&header), 8);
  const auto size = fs::file_size(file);
  for (const uint64_t at : {8 + header + 100, size - 40}) {
    stream.seekp(static_cast<std::streamoff>(at));
    stream.write("\0\0\0\0\0\0\0\0", 8);
  }
  stream.close();
  const Failure failure = FailureOf([&] { Load(path); });
  EXPECT_EQ(failure.exit, 5);
  EXPECT_THAT(failure.message, HasSubstr("2 of its tensors are damaged; nothing was loaded"));
  EXPECT_THAT(failure.hint, HasSubstr("do not match its checksum"));
}

TEST_F(Stored, RunsPicklesAndOrbaxAreRefusedInWords) {
  Touch("run/config.yml");
  fs::create_directories(folder_ / "run/checkpoints");
  Write(content_, "run/checkpoints/10");
  Write(content_, "run/checkpoints/20");
  const std::string run = (folder_ / "run").string();
  const Failure is_run = FailureOf([&] { OpenStored(run); });
  EXPECT_EQ(is_run.exit, 2);
  EXPECT_EQ(is_run.message, run + " is a run; its checkpoints are 10, 20");
  EXPECT_EQ(is_run.hint, "use " + run + "/checkpoints/20 or " + run + "/checkpoints/latest");
  fs::create_directory_symlink("20", folder_ / "run/checkpoints/latest");
  EXPECT_EQ(OpenStored(folder_ / "run/checkpoints/latest").path.filename(), "20");

  Touch("torch/pytorch_model.bin");
  const Failure pickle = FailureOf([&] { OpenStored(folder_ / "torch"); });
  EXPECT_EQ(pickle.exit, 5);
  EXPECT_EQ(pickle.message, "pytorch_model.bin is a pickle; Octavo never runs code from a model file");
  Touch("model.bin", "PK\x03\x04 zipped");
  EXPECT_EQ(FailureOf([&] { OpenStored(folder_ / "model.bin"); }).message,
            "model.bin is a pickle; Octavo never runs code from a model file");

  Touch("items/manifest.ocdbt");
  const Failure orbax = FailureOf([&] { OpenStored(folder_ / "items"); });
  EXPECT_EQ(orbax.exit, 5);
  EXPECT_THAT(orbax.message, HasSubstr("is an Orbax OCDBT checkpoint, which Octavo does not read"));
  EXPECT_EQ(FailureOf([&] { OpenStored(folder_ / "nothing"); }).exit, 5);
  Touch("notes.txt");
  EXPECT_THAT(FailureOf([&] { OpenStored(folder_ / "notes.txt"); }).message, HasSubstr("no model that Octavo knows"));
}

// A llama2.c file: dim 4, mlp 8, 1 layer, 1 head, 1 key head, 3 tokens (tied), 2 positions.
std::string Llama2cBytes() {
  std::string file;
  for (const int32_t size : {4, 8, 1, 1, 1, 3, 2}) file.append(reinterpret_cast<const char*>(&size), 4);
  const int floats = 3 * 4 + 4 + 4 * 16 + 4 + 3 * 32 + 4 + 2 * 2 * 2;
  return file.append(static_cast<size_t>(floats) * 4, '\0');
}

std::vector<std::string> CarriedNames(const StoredModel& model) {
  std::vector<std::string> names;
  for (const CarriedFile& file : model.carried) names.push_back(file.name);
  return names;
}

TEST_F(Stored, FoldersAroundACheckpointAreRefusedInWords) {
  fs::create_directories(folder_ / "checkpoints");
  Write(content_, "checkpoints/10");
  Write(content_, "checkpoints/20");
  const fs::path folder = folder_ / "checkpoints";
  const Failure steps = FailureOf([&] { OpenStored(folder); });
  EXPECT_EQ(steps.exit, 2);
  EXPECT_EQ(steps.message, folder.string() + " is a folder of checkpoints; its checkpoints are 10, 20");
  EXPECT_EQ(steps.hint, "use " + (folder / "20").string() + " or " + (folder / "latest").string());

  Touch("orbax/0/items/manifest.ocdbt");
  const Failure orbax = FailureOf([&] { OpenStored(folder_ / "orbax/0"); });
  EXPECT_EQ(orbax.exit, 5);
  EXPECT_EQ(orbax.message,
            (folder_ / "orbax/0/items").string() + " is an Orbax OCDBT checkpoint, which Octavo does not read");
}

TEST_F(Stored, TheTokenizerBesideAFileGoesAlong) {
  Touch("story/stories.bin", Llama2cBytes());
  EXPECT_EQ(OpenStored(folder_ / "story").tokenizer, "");
  Touch("story/tok3.bin", "words");
  StoredModel story = OpenStored(folder_ / "story/stories.bin");
  EXPECT_EQ(story.tokenizer, folder_ / "story/tok3.bin");
  EXPECT_THAT(CarriedNames(story), ElementsAre("tokenizer.bin"));
  EXPECT_EQ(story.carried[0].read(), "words");

  Touch("other/tokenizer.json", "{}");
  Touch("other/tokenizer_config.json", "{}");
  EXPECT_TRUE(UseTokenizer(story, folder_ / "other/tokenizer.json"));
  EXPECT_THAT(CarriedNames(story), ElementsAre("tokenizer.json", "tokenizer_config.json"));
  EXPECT_FALSE(UseTokenizer(story, folder_ / "nowhere"));
  EXPECT_EQ(story.tokenizer, folder_ / "other/tokenizer.json");
  EXPECT_TRUE(CarriesTokenizer(story));
  EXPECT_TRUE(UseTokenizer(story, "bytes"));
  EXPECT_FALSE(CarriesTokenizer(story));  // nothing in the target would say so
}

TEST_F(Stored, TheTokenizerOfARunIsFoundFromWhereItWasStarted) {
  const auto open = [&](const std::string& tokenizer, const std::string& output) {
    CheckpointContent content = content_;
    content.config = Settings::FromText(content_.config, "config").EffectiveYaml();
    content.config =
        std::regex_replace(content.config, std::regex("(^|\n)tokenizer_path:[^\n]*"), "$1tokenizer_path: " + tokenizer);
    content.config = std::regex_replace(content.config, std::regex("(^|\n)base_output_directory:[^\n]*"),
                                        "$1base_output_directory: " + output);
    fs::create_directories(folder_ / "a/b/x/checkpoints");
    WriteCheckpoint(folder_ / "a/b/x/checkpoints/20", content);
    return OpenStored(folder_ / "a/b/x/checkpoints/20");
  };
  Touch("tok/tokenizer.json", "{}");
  const StoredModel found = open("tok", "a/b/");
  EXPECT_THAT(CarriedNames(found), ElementsAre("tokenizer.json"));
  EXPECT_TRUE(fs::equivalent(found.tokenizer, folder_ / "tok"));
  EXPECT_EQ(open("tok", "b").tokenizer, "");     // would be a/tok
  EXPECT_EQ(open("tok", "c/b").tokenizer, "");   // the run was moved
  EXPECT_EQ(open("tok", "../b").tokenizer, "");  // not to be known
  EXPECT_EQ(open("kot", "a/b").tokenizer, "");   // not there
  EXPECT_TRUE(CarriesTokenizer(open("bytes", "a/b")));
}

TEST_F(Stored, FoldersOfLlama2cAndGgufFilesAreTheirFile) {
  const std::string file = Llama2cBytes();
  Touch("story/stories.bin", file);
  Touch("story/tokenizer.bin", "words");
  Touch("story/tokenizer.model");
  const StoredModel story = OpenStored(folder_ / "story");
  EXPECT_EQ(story.kind, StoredKind::kLlama2c);
  EXPECT_EQ(story.path.filename(), "stories.bin");
  EXPECT_EQ(story.config.vocab_size, 3);
  EXPECT_EQ(story.tokenizer, folder_ / "story/tokenizer.model");

  Touch("story/again.bin", file);
  const Failure two = FailureOf([&] { OpenStored(folder_ / "story"); });
  EXPECT_EQ(two.exit, 2);
  EXPECT_EQ(two.message, (folder_ / "story").string() + " holds 2 models: again.bin, stories.bin");
  EXPECT_EQ(two.hint, "name one of them: " + (folder_ / "story/again.bin").string());

  Touch("gguf/model.gguf", "GGUF");  // opened as what it says it is
  EXPECT_THAT(FailureOf([&] { OpenStored(folder_ / "gguf"); }).message, HasSubstr("model.gguf"));
  Touch("words/tokenizer.bin", "words");
  EXPECT_THAT(FailureOf([&] { OpenStored(folder_ / "words"); }).message, HasSubstr("holds neither model.safetensors"));
}

TEST_F(Stored, MaxTextTreesOfBothForms) {
  for (const char* collection : {"params/", "params/params/"}) {
    for (const bool scanned : {false, true}) {
      CheckpointContent tree = content_;
      tree.parameters.clear();
      for (auto& [name, value] : ToMaxTextTree(Values(), scanned, 1, collection))
        tree.parameters.emplace_back(name, value);
      const fs::path path = Write(tree, "tree");
      ExpectLoaded(Load(path));  // a checkpoint says which model it is
      // The bare file does not.
      const fs::path file = path / "model-00001-of-00001.safetensors";
      EXPECT_THAT(FailureOf([&] { OpenStored(file); }).hint, HasSubstr("model_name="));
      const models::ModelConfig config = models::ModelConfigFrom(settings_);
      const StoredModel bare = OpenStored(file, {.config = &config});
      EXPECT_EQ(bare.kind, StoredKind::kMaxText);
      ExpectLoaded(LoadModel(bare, {}, pool_, kernels::Isa::kReference));
    }
  }
}

TEST_F(Stored, ConfigurationsGoThroughJson) {
  models::ModelConfig config = models::ModelConfigFrom(settings_);
  config.query_pre_attn_scalar = 0.35355339059327373;
  config.mlp_activations = {"gelu"};
  const nlohmann::json json = nlohmann::json::parse(ModelToJson(config).dump());
  EXPECT_EQ(ModelToJson(ModelFromJson(json, "here")), ModelToJson(config));
  nlohmann::json wrong = json;
  wrong.erase("head_dim");
  EXPECT_EQ(FailureOf([&] { ModelFromJson(wrong, "here"); }).message, "here: no field 'head_dim'");
  wrong = json;
  wrong["heads_dim"] = 3;
  EXPECT_EQ(FailureOf([&] { ModelFromJson(wrong, "here"); }).message, "here: unknown field 'heads_dim'");
  wrong = json;
  wrong["head_dim"] = "8";
  EXPECT_EQ(FailureOf([&] { ModelFromJson(wrong, "here"); }).message,
            "here: head_dim: expected a whole number from -1");
  wrong["head_dim"] = 1e300;
  EXPECT_EQ(FailureOf([&] { ModelFromJson(wrong, "here"); }).exit, 5);
}

TEST_F(Stored, FlagsThatDoNotFit) {
  const fs::path path = Write(content_);
  LoadOptions options;
  options.must_be_quantized = true;
  const Failure failure = FailureOf([&] { LoadModel(OpenStored(path), options, pool_, kernels::Isa::kReference); });
  EXPECT_EQ(failure.exit, 2);
  EXPECT_EQ(failure.message, path.string() + " is not quantized but checkpoint_is_quantized=true");
  EXPECT_EQ(failure.hint, "drop the flag to quantize on load (same bits), or convert first");
}

}  // namespace
}  // namespace octavo::weights
