#include "octavo/config/settings.h"

#include <gtest/gtest.h>

#include <fstream>

#include "octavo/base/error_test_support.h"
#include "octavo/base/temp_folder.h"
#include "octavo/config/built_in.h"

namespace octavo {
namespace {

Settings Load(std::vector<std::string> words, std::map<std::string, std::string> environment = {}) {
  return Settings::Load({std::move(words), std::move(environment)});
}

std::string ErrorOf(std::vector<std::string> words, std::map<std::string, std::string> environment = {}) {
  return ErrorText(ErrorCode::kUsage, [&] { Load(std::move(words), std::move(environment)); });
}

TEST(Settings, DefaultsAreThoseOfTheReference) {
  const Settings settings = Load({});
  // 696 keys of the reference, two that only its model files have, and our own.
  EXPECT_EQ(settings.table().keys().size(), 696u + 2u + 18u);
  EXPECT_EQ(settings.Int("steps"), 150001);
  EXPECT_EQ(settings.Number("learning_rate"), 3e-5);
  EXPECT_EQ(settings.Number("per_device_batch_size"), 12.0);
  EXPECT_EQ(settings.Text("dataset_type"), "tfds");
  EXPECT_EQ(settings.Text("dtype"), "float32");
  EXPECT_TRUE(settings.Bool("packing"));
  EXPECT_EQ(settings.List("mlp_activations"), (std::vector<std::string>{"silu", "linear"}));
  EXPECT_TRUE(settings.IsNull("weight_sparsity_n"));
  EXPECT_TRUE(settings.IsNull("max_num_checkpoints_to_keep"));
  EXPECT_EQ(settings.Text("quantization"), "");
  EXPECT_EQ(settings.OriginOf("steps"), "base.yml");
  EXPECT_FALSE(settings.IsGiven("steps"));
}

TEST(Settings, EveryWayToWriteAKey) {
  const Settings settings = Load({"base.yml", "steps=1_000", "--learning_rate=1e-3", "--max-target-length", "128",
                                  "--packing=False", "--scan-layers", "false", "--profile", "quantization='int8'",
                                  "prompt=a: b", "max_num_checkpoints_to_keep=3", "weight_sparsity_n=None"});
  EXPECT_EQ(settings.Int("steps"), 1000);
  EXPECT_EQ(settings.Number("learning_rate"), 1e-3);
  EXPECT_EQ(settings.Int("max_target_length"), 128);
  EXPECT_FALSE(settings.Bool("packing"));
  EXPECT_FALSE(settings.Bool("scan_layers"));
  EXPECT_TRUE(settings.Bool("profile"));
  EXPECT_EQ(settings.Text("quantization"), "int8");
  EXPECT_EQ(settings.Text("prompt"), "a: b");
  EXPECT_EQ(settings.Int("max_num_checkpoints_to_keep"), 3);
  EXPECT_TRUE(settings.IsNull("weight_sparsity_n"));
  EXPECT_EQ(settings.OriginOf("steps"), "command line");
  EXPECT_EQ(settings.overrides(), 10);
  EXPECT_EQ(settings.config_name(), "base.yml");
}

TEST(Settings, ListsAsYamlAndAsWords) {
  for (const char* text : {"mlp_activations=['silu','linear']", "mlp_activations=silu,linear",
                           "mlp_activations=\"silu, linear\"", "mlp_activations=[silu, linear]"}) {
    EXPECT_EQ(Load({text}).List("mlp_activations"), (std::vector<std::string>{"silu", "linear"})) << text;
  }
  EXPECT_TRUE(Load({"mlp_activations="}).List("mlp_activations").empty());
  EXPECT_EQ(Load({"hf_train_files=a.jsonl"}).List("hf_train_files"), (std::vector<std::string>{"a.jsonl"}));
}

TEST(Settings, ModelFilesGoOverTheDefaults) {
  const Settings settings = Load({"model_name=gpt3-52k"});
  EXPECT_EQ(settings.Int("base_emb_dim"), 16);
  EXPECT_EQ(settings.Text("opt_type"), "adam_pax");
  EXPECT_EQ(settings.OriginOf("base_emb_dim"), "models/gpt3-52k.yml:2");
  // The same value again is no disagreement.
  EXPECT_EQ(Load({"model_name=gpt3-52k", "base_emb_dim=16"}).OriginOf("base_emb_dim"), "command line");
  EXPECT_EQ(Load({"model_name=gpt3-52k", "base_emb_dim=32", "override_model_config=true"}).Int("base_emb_dim"), 32);
}

TEST(Settings, EveryModelFileLoads) {
  EXPECT_EQ(BuiltInModels().size(), 78u);
  for (const EmbeddedFile& file : BuiltInModels()) {
    const std::string name(file.name.substr(0, file.name.size() - 4));
    EXPECT_GT(Load({"model_name=" + name}).Int("base_emb_dim"), 0) << name;
  }
}

TEST(Settings, EnvironmentGoesBelowTheCommandLine) {
  const std::map<std::string, std::string> environment = {{"M_STEPS", "7"}, {"HOME", "/"}, {"MY_STEPS", "8"}};
  const Settings settings = Load({"learning_rate=1"}, environment);
  EXPECT_EQ(settings.Int("steps"), 7);
  EXPECT_EQ(settings.OriginOf("steps"), "environment M_STEPS");
  EXPECT_EQ(ErrorOf({"steps=9"}, environment),
            "key 'steps' is given by the environment (M_STEPS) and on the command line\nunset M_STEPS or drop steps=9");
}

TEST(Settings, MistakesHaveTheirTexts) {
  EXPECT_EQ(ErrorOf({"quantisation=int8"}),
            "unknown key 'quantisation' on the command line\n"
            "did you mean 'quantization'? See octavo config explain quantization");
  EXPECT_EQ(ErrorOf({"--learning-rat=1"}),
            "unknown key 'learning_rat' on the command line\n"
            "did you mean 'learning_rate'? See octavo config explain learning_rate");
  EXPECT_EQ(ErrorOf({}, {{"M_STEP", "1"}}).substr(0, 49), "unknown key 'step' in the environment (M_STEP)\ndi");
  EXPECT_EQ(ErrorOf({"steps=many"}),
            "steps='many' on the command line: expected a whole number\nsee octavo config explain steps");
  EXPECT_EQ(ErrorOf({"steps=1.5"}),
            "steps='1.5' on the command line: expected a whole number\nsee octavo config explain steps");
  EXPECT_EQ(ErrorOf({"packing=1"}),
            "packing='1' on the command line: expected true or false\nsee octavo config explain packing");
  EXPECT_EQ(ErrorOf({"dtype=float64"}),
            "dtype='float64' on the command line: expected one of float32, bfloat16\nsee octavo config explain dtype");
  EXPECT_EQ(ErrorOf({"steps=None"}),
            "steps=None on the command line: expected a whole number\nsee octavo config explain steps");
  EXPECT_EQ(ErrorOf({}, {{"M_STEPS", "x"}}),
            "steps='x' in the environment (M_STEPS): expected a whole number\nsee octavo config explain steps");
  EXPECT_EQ(ErrorOf({"steps=1", "--steps", "2"}),
            "key 'steps' is given twice on the command line\nsteps=1 and steps=2: keep one");
  EXPECT_EQ(ErrorOf({"--steps"}), "--steps needs a value\nexpected a whole number");
  EXPECT_EQ(ErrorOf({"steps=1", "base.yml"}),
            "'base.yml' is not a setting\n"
            "expected key=value, --key=value or --key value; a config file (.yml) comes first");
  EXPECT_EQ(ErrorOf({"none.yml"}).substr(0, 51), "config 'none.yml' is neither a file nor built in\nbu");
  EXPECT_EQ(ErrorOf({"model_name=llama2-8b"}),
            "model_name='llama2-8b' is not a model\nnearest: llama2-7b, llama3-8b, llama2-13b (octavo ls models)");
  EXPECT_EQ(ErrorOf({"model_name=gpt3-52k", "base_emb_dim=32"}),
            "base_emb_dim=32 (command line), but models/gpt3-52k.yml has 16\n"
            "add override_model_config=true to keep 32, or drop the key");
}

class SettingsFiles : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  TempFolder folder_;
};

TEST_F(SettingsFiles, ChainsOfConfigs) {
  Write("one.yml", "base_config: base.yml\nsteps: 1\nlog_period: 1\n");
  Write("two.yml", "base_config: one.yml\nsteps: 2\nrun_name: x\n");
  const std::string three = Write("three.yml", "base_config: two.yml\nrun_name: y\n");
  const Settings settings = Load({three});
  EXPECT_EQ(settings.Int("steps"), 2);
  EXPECT_EQ(settings.Int("log_period"), 1);
  EXPECT_EQ(settings.Text("run_name"), "y");
  EXPECT_EQ(settings.OriginOf("steps"), (folder_ / "two.yml").string() + ":2");
  EXPECT_TRUE(settings.IsGiven("steps"));
  EXPECT_EQ(Load({three, "steps=5"}).Int("steps"), 5);
}

TEST_F(SettingsFiles, BuiltInConfigsUnderTheirOldNames) {
  for (const char* name : {"base.yml", "src/maxtext/configs/base.yml", "maxtext/configs/base.yml"}) {
    EXPECT_EQ(Load({name}).Int("steps"), 150001) << name;
  }
}

TEST_F(SettingsFiles, MistakesInFilesNameTheLine) {
  const std::string twice = Write("twice.yml", "steps: 1\nsteps: 2\n");
  EXPECT_EQ(ErrorOf({twice}), twice + ":2: key 'steps' stands here and on line 1");
  const std::string unknown = Write("unknown.yml", "steps: 1\nsteps_: 2\n");
  EXPECT_EQ(ErrorOf({unknown}).substr(0, unknown.size() + 40).substr(0, 25), "unknown key 'steps_' in /");
  const std::string type = Write("type.yml", "\nsteps: [1]\n");
  EXPECT_EQ(ErrorOf({type}), type + ":2: steps=[1]: expected a whole number\nsee octavo config explain steps");
  const std::string a = Write("a.yml", "base_config: b.yml\n");
  Write("b.yml", "base_config: a.yml\n");
  EXPECT_NE(ErrorOf({a}).find("base_config goes round: "), std::string::npos);
  const std::string list = Write("list.yml", "- 1\n");
  EXPECT_EQ(ErrorOf({list}), list + ": expected key: value lines");
  const std::string model = Write("model.yml", "model_name: gpt3-52k\nvocab_size: 7\n");
  EXPECT_EQ(ErrorOf({model}), "vocab_size=7 (" + model +
                                  ":2), but models/gpt3-52k.yml has 1024\n"
                                  "add override_model_config=true to keep 7, or drop the key");
}

TEST_F(SettingsFiles, TheEffectiveConfigLoadsToTheSameSettings) {
  const Settings settings =
      Load({"model_name=gpt3-52k", "override_model_config=true", "base_emb_dim=32", "prompt=it's: \"x\" #1\n\ttwo",
            "learning_rate=0.1", "data_files=a b.txt,c*.jsonl", "run_name=123", "tokenizer_path=None", "steps=20",
            "mlp_activations_limit=inf", "wandb_project_name=null x", "autoregressive_decode_assert='None'",
            "engram_layers=[1, 2]", "constant_bound_config=[0.5, 1]", "weight_sparsity_n=2"});
  const std::string yaml = settings.EffectiveYaml();
  const Settings again = Settings::FromText(yaml, "config.yml");
  EXPECT_TRUE(Settings::Diff(settings, again).empty());
  EXPECT_EQ(again.Text("prompt"), "it's: \"x\" #1\n\ttwo");
  EXPECT_EQ(again.Text("autoregressive_decode_assert"), "None");
  EXPECT_EQ(again.Int("base_emb_dim"), 32);
  EXPECT_EQ(again.List("data_files"), (std::vector<std::string>{"a b.txt", "c*.jsonl"}));
  EXPECT_NE(yaml.find("\nsteps: 20  # command line\n"), std::string::npos);
  EXPECT_NE(yaml.find("\nbase_mlp_dim: 64  # models/gpt3-52k.yml:5\n"), std::string::npos);
  EXPECT_EQ(Settings::Diff(settings, Load({Write("config.yml", yaml)})).size(), 0u);
  EXPECT_EQ(again.IgnoredNote(), "no effect on CPU: wandb_project_name (1 key)");
}

TEST_F(SettingsFiles, EveryModelSurvivesTheRoundTrip) {
  for (const EmbeddedFile& file : BuiltInModels()) {
    const Settings settings = Load({"model_name=" + std::string(file.name.substr(0, file.name.size() - 4))});
    const Settings again = Settings::FromText(settings.EffectiveYaml(), "config.yml");
    EXPECT_TRUE(Settings::Diff(settings, again).empty()) << file.name;
  }
}

TEST(Settings, DifferencesAreListedInOrder) {
  const auto differences = Settings::Diff(Load({"steps=1", "quantization=int8"}), Load({"learning_rate=1", "steps=2"}));
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].key, "steps");
  EXPECT_EQ(differences[0].first, "1");
  EXPECT_EQ(differences[0].second, "2");
  EXPECT_EQ(differences[1].key, "quantization");
  EXPECT_EQ(differences[1].second, "''");
  EXPECT_EQ(differences[2].key, "learning_rate");
  EXPECT_TRUE(Settings::Diff(Load({"steps=1_000"}), Load({"steps=1e3"})).empty());
}

TEST(Settings, KeysWithoutEffectAreNamedOnce) {
  EXPECT_EQ(Load({}).IgnoredNote(), "");
  EXPECT_EQ(Load({"model_name=deepseek3-671b-2dfsdp"}).IgnoredNote(), "");
  EXPECT_EQ(Load({"megablox=true", "dump_hlo=true", "steps=3"}).IgnoredNote(),
            "no effect on CPU: megablox, dump_hlo (2 keys)");
  EXPECT_EQ(Load({"hardware=gpu"}).IgnoredNote(), "no effect on CPU: hardware (1 key)");
}

TEST(Settings, WhatOctavoDoesNotDoIsRefusedByJobs) {
  Load({}).RequireSupported();
  Load({"model_name=llama2-7b"}).RequireSupported();
  try {
    Load({"enable_diloco=true"}).RequireSupported();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "enable_diloco=true (command line): Octavo does not do this\n"
                 "the only value is false; see octavo config explain enable_diloco");
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST(Settings, PathsAreLocal) {
  Load({"model_name=gpt3-175b"}).RequireSupported();  // has dataset_path: gs://…, which nothing reads
  Load({"prompt=see https://example.org"}).RequireSupported();
  for (const char* word : {"base_output_directory=gs://b/x", "load_parameters_path=s3://b/x", "data_files=gs://b/a.txt",
                           "recipe=https://h/r.yml", "metrics_file=gs://b/m"}) {
    try {
      Load({word}).RequireSupported();
      FAIL() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), word + std::string(": only local folders\nmount the bucket, or give a local path"));
      EXPECT_EQ(error.exit_code(), 2);
    }
  }
}

TEST(KeyTable, EveryKeyIsExplained) {
  const KeyTable table = KeyTable::BuiltIn();
  for (const KeyInfo& key : table.keys()) {
    EXPECT_FALSE(key.about.empty()) << key.name;
    EXPECT_FALSE(key.heading.empty()) << key.name;
  }
}

}  // namespace
}  // namespace octavo
