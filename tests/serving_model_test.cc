// A model opened to be served: the estimate of its memory against what loading and packing really take, for every kind
// of stored model; what is refused, in which words; what keys ask for.
#include "octavo/engine/serving_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/convert/convert.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/tensor/memory.h"
#include "octavo/weights/load_memory.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Settings SettingsOf(const Words& words) { return Settings::Load({.words = words}); }

quant::RecipeChoice Recipe(const Words& words) { return quant::ChooseRecipe(SettingsOf(words)); }

// Exit code, message, hint.
std::string FailureOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return fmt::format("{} {}\n{}", error.exit_code(), error.message(), error.hint());
  }
  return "no error";
}

class Serving : public testing::Test {
 protected:
  Serving() : isa_(kernels::ChooseIsa().isa) {}

  // Random parameters in floats.
  fs::path Write(const Words& more = {}) {
    Words words = {"base_emb_dim=256",       "base_num_query_heads=4",    "base_num_kv_heads=2", "head_dim=64",
                   "base_mlp_dim=512",       "base_num_decoder_layers=4", "vocab_size=512",      "dtype=float32",
                   "max_target_length=4096", "tokenizer_path=bytes"};
    for (const std::string& word : more) {
      const std::string key = word.substr(0, word.find('=') + 1);
      std::erase_if(words, [&](const std::string& old) { return old.starts_with(key); });
      words.push_back(word);
    }
    const Settings settings = SettingsOf(words);
    const auto model = models::MakeModel(models::ModelConfigFrom(settings));
    models::Initialize(*model, RngKey::FromSeed(3), pool_);
    CheckpointContent content;
    content.kind = "params";
    content.config = settings.EffectiveYaml();
    for (const ops::Parameter* parameter : model->parameters()) {
      content.parameters.emplace_back(parameter->name, parameter->tensor());
    }
    WriteCheckpoint(folder_ / "floats", content);
    return folder_ / "floats";
  }

  fs::path Convert(const fs::path& source, const std::string& name,
                   const std::function<void(convert::ConvertRequest&)>& change) {
    const weights::StoredModel stored = weights::OpenStored(source);
    convert::ConvertRequest request{
        .source = stored, .target = folder_ / name, .log = log_, .pool = pool_, .isa = isa_};
    change(request);
    convert::Convert(request);
    return folder_ / name;
  }
  fs::path Quantized(const fs::path& source, const std::string& name, const Words& words) {
    const quant::RecipeChoice recipe = Recipe(words);
    return Convert(source, name, [&](convert::ConvertRequest& request) { request.recipe = &recipe; });
  }

  // The estimate is never below what is needed by more than a few percent, nor far above it.
  void ExpectEstimate(const fs::path& path, const quant::RecipeChoice* recipe = nullptr) {
    SCOPED_TRACE(path.filename().string());
    weights::LoadOptions options;
    options.recipe = recipe;
    const weights::StoredModel stored = weights::OpenStored(path);
    weights::ParameterReader reader(stored, options, pool_, isa_);
    const weights::LoadMemory memory = weights::LoadMemoryOf(reader);
    const int64_t before = TensorBytes();
    ResetPeakTensorBytes();
    weights::LoadedModel loaded = weights::LoadModel(reader);
    const auto near = [](int64_t real, double share) { return share * static_cast<double>(real); };
    EXPECT_NEAR(static_cast<double>(memory.loaded), static_cast<double>(loaded.parameter_bytes),
                near(loaded.parameter_bytes, 0.01));
    quant::Provider provider(*loaded.plan);
    provider.StartStep();
    const engine::RunnerParts parts{*loaded.model, loaded.recipe_name.empty() ? nullptr : &provider, &loaded.state,
                                    pool_, isa_};
    const int64_t serving =
        loaded.recipe_name.empty() ? loaded.parameter_bytes : engine::PackWeights(parts, provider).bytes;
    EXPECT_NEAR(static_cast<double>(memory.serving), static_cast<double>(serving), near(serving, 0.04));
    const int64_t peak = PeakTensorBytes() - before;
    EXPECT_GE(memory.peak, peak * 24 / 25);
    EXPECT_LE(memory.peak, peak * 3 / 2);
  }

  TempFolder folder_;
  std::string text_;
  Log log_{[this](std::string_view line) { text_ += line; }};
  ThreadPool pool_{1};
  kernels::Isa isa_;
};

const Words kInt8 = {"use_qwix_quantization=true", "quantization=int8"};

TEST_F(Serving, MemoryOfFloats) {
  const fs::path floats = Write();
  ExpectEstimate(floats);
  // Half the bytes on disk, floats in memory, since that is what runs by default.
  const fs::path folder = Convert(floats, "hf", [](convert::ConvertRequest& request) {
    request.format = convert::TargetFormat::kHf;
    request.dtype = DType::kBF16;
  });
  ExpectEstimate(folder);
  const weights::StoredModel stored = weights::OpenStored(folder);
  weights::ParameterReader reader(stored, {}, pool_, isa_);
  EXPECT_EQ(weights::LoadMemoryOf(reader).loaded, 2 * stored.stored_bytes);
}

TEST_F(Serving, MemoryOfLayersInOneStack) {
  const fs::path stacked = Convert(Write(), "stacked", [](convert::ConvertRequest& request) {
    request.parameters_only = true;
    request.tree.scanned = true;
  });
  const quant::RecipeChoice recipe = Recipe(kInt8);
  ExpectEstimate(stacked, &recipe);
}

TEST_F(Serving, MemoryOfRecipes) {
  const fs::path floats = Write();
  for (const Words& words : std::vector<Words>{kInt8,
                                               {"quantization=int8"},
                                               {"quantization=int8w"},
                                               {"quantization=int4w"},
                                               {"quantization=w4a8", "quantization_group_size=64"},
                                               {"use_qwix_quantization=true", "quantization=fp8"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
    const quant::RecipeChoice recipe = Recipe(words);
    ExpectEstimate(floats, &recipe);
    ExpectEstimate(Quantized(floats, fmt::format("{}", fmt::join(words, "-")), words));
  }
}

TEST_F(Serving, MemoryOfCodesFromElsewhere) {
  const fs::path floats = Write();
  const quant::RecipeChoice recipe =
      quant::RestoreRecipe("blocks",
                           "name: blocks\norigin: octavo\nsummary: blocks of 32\nrules:\n"
                           "  - {only_weights: true, weight_qtype: int8, tile_size: 32}\n",
                           {}, "", "test");
  const fs::path file = Convert(floats, "q8.gguf", [&](convert::ConvertRequest& request) {
    request.format = convert::TargetFormat::kGguf;
    request.recipe = &recipe;
  });
  const weights::StoredModel stored = weights::OpenStored(file);
  ASSERT_TRUE(stored.quantized());
  ExpectEstimate(file);
}

TEST_F(Serving, WhatDoesNotFitIsRefusedWithNumbers) {
  const fs::path path = Quantized(Write(), "x-int8", kInt8);
  engine::ServingOptions options;
  options.path = path.string();
  options.slots = 512;
  // 4 layers, 2 heads of 64, keys and values in f32: 4 KiB a token, so 8 GiB for 512 contexts of 4,096.
  options.available_bytes = int64_t{4} << 30;
  EXPECT_EQ(FailureOf([&] { engine::ServingModel::Open(options); }),
            "2 model 0.0 + KV 8.0 + work 0.0 = 8.0 GiB, available 4.0 GiB\n"
            "try max_concurrent_decodes=255, max_target_length=1984 or quantize_kvcache=true");
  options.available_bytes = int64_t{1} << 30;  // int8 would need 2.1 GiB
  EXPECT_EQ(FailureOf([&] { engine::ServingModel::Open(options); }),
            "2 model 0.0 + KV 8.0 + work 0.0 = 8.0 GiB, available 1.0 GiB\n"
            "try max_concurrent_decodes=63 or max_target_length=448");
  options.kv_bytes = int64_t{2} << 30;
  EXPECT_EQ(FailureOf([&] { engine::ServingModel::Open(options); }).substr(0, 71),
            "2 model 0.0 + KV 2.0 + work 0.0 = 2.0 GiB, available 1.0 GiB\ntry prefix");
  options.kv_bytes = 0;
  options.slots = 1;
  options.available_bytes = 12 << 20;  // not even one context
  EXPECT_EQ(FailureOf([&] { engine::ServingModel::Open(options); }),
            "2 model 0.0 + KV 0.0 + work 0.0 = 0.0 GiB, available 0.0 GiB\n"
            "try max_target_length=1280 or quantize_kvcache=true");
  options.available_bytes = 1 << 20;
  EXPECT_EQ(FailureOf([&] { engine::ServingModel::Open(options); }),
            "2 model 0.0 + KV 0.0 + work 0.0 = 0.0 GiB, available 0.0 GiB\nfree memory");
  options.available_bytes = int64_t{1} << 30;
  EXPECT_EQ(engine::ServingModel::Open(options)->context_length(), 4096);
}

// A bf16 folder that would fit as it is on disk.
TEST_F(Serving, FloatsAreCountedAsTheyRun) {
  const fs::path small = Convert(Write({"base_num_decoder_layers=1"}), "hf", [](convert::ConvertRequest& request) {
    request.format = convert::TargetFormat::kHf;
    request.dtype = DType::kBF16;
  });
  const int64_t stored = weights::OpenStored(small).stored_bytes;
  engine::ServingOptions options;
  options.path = small.string();
  options.tokenizer_path = "bytes";
  options.slots = 1;
  options.context_length = 64;
  options.step_tokens = 1;
  options.available_bytes = stored * 3 / 2;  // enough for the file, not for floats
  EXPECT_NE(FailureOf([&] { engine::ServingModel::Open(options); }), "no error");
  const quant::RecipeChoice recipe = Recipe(kInt8);
  options.recipe = &recipe;
  options.available_bytes = stored * 3;
  EXPECT_EQ(FailureOf([&] { engine::ServingModel::Open(options); }), "no error");
}

// A number of /proc/self/status, in bytes.
int64_t OfThisProcess(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kib = 0;
    if (word == name + ":" && status >> kib) return kib << 10;
  }
  return 0;
}

// Run by the test below in a process of its own, whose memory nothing else has touched.
TEST_F(Serving, DISABLED_InAProcessOfItsOwn) {
  const char* path = std::getenv("OCTAVO_TEST_MODEL");
  ASSERT_NE(path, nullptr);
  const int64_t before = OfThisProcess("VmHWM");
  engine::ServingOptions options;
  options.path = path;
  options.slots = 1;
  options.context_length = 64;
  const auto model = engine::ServingModel::Open(options);
  const int64_t loaded = OfThisProcess("VmRSS") - before;
  const std::vector<int32_t> prompt{1, 2, 3, 4, 5};
  const engine::SequenceId id = model->runner().Open(prompt, 0, "", nullptr);
  const engine::Work all{id, prompt, false};
  model->runner().Step({&all, 1});
  model->runner().Close(id);
  const int64_t peak = OfThisProcess("VmHWM") - before;
  std::ofstream(std::string(path) + ".resident") << loaded << ' ' << peak << ' ' << model->kv_bytes();
}

// The promise: a model that is quantized on disk takes its bytes there, its cache and a tenth in memory; while it loads
// a layer more. What any process takes besides (code, threads, tables) is measured with a model of no size.
TEST_F(Serving, AQuantizedModelTakesItsBytesAndATenth) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "memory is the checker's";
#endif
  struct Resident {
    int64_t loaded = 0, peak = 0, kv = 0;
  };
  const auto measure = [&](const fs::path& path) {
    const std::string child = fmt::format(
        "OCTAVO_TEST_MODEL='{}' '{}' --gtest_also_run_disabled_tests "
        "--gtest_filter=Serving.DISABLED_InAProcessOfItsOwn > '{}' 2>&1",
        path.string(), fs::read_symlink("/proc/self/exe").string(), (folder_ / "log").string());
    EXPECT_EQ(std::system(child.c_str()), 0);
    Resident result;
    std::ifstream(path.string() + ".resident") >> result.loaded >> result.peak >> result.kv;
    return result;
  };
  const Words tiny = {"base_emb_dim=64", "base_mlp_dim=128", "base_num_decoder_layers=1"};
  const Resident nothing = measure(Quantized(Write(tiny), "tiny", kInt8));
  constexpr int64_t kLayers = 12, kAnyPages = 1 << 20;
  fs::remove_all(folder_ / "floats");
  const fs::path path = Quantized(
      Write({"base_emb_dim=512", "base_mlp_dim=2048", fmt::format("base_num_decoder_layers={}", kLayers)}), "x", kInt8);
  const Resident resident = measure(path);
  const int64_t weights = weights::OpenStored(path).stored_bytes;
  EXPECT_GT(weights, 40 << 20);
  EXPECT_GT(resident.loaded - nothing.loaded, weights * 9 / 10);
  EXPECT_LE(resident.loaded - nothing.loaded, (weights + resident.kv) * 11 / 10 + kAnyPages);
  EXPECT_LE(resident.peak - nothing.peak, (weights + resident.kv) * 11 / 10 + weights / kLayers + kAnyPages);
}

// What the keys of a serving command ask for.
engine::ServingOptions OptionsOf(const Words& words) {
  static const quant::RecipeChoice none;
  return engine::ServingOptionsFrom(SettingsOf(words), none, "model");
}

TEST(ServingOptions, KeysOfTheCache) {
  EXPECT_TRUE(OptionsOf({}).prefix_cache);
  EXPECT_FALSE(OptionsOf({"enable_prefix_caching=false"}).prefix_cache);
  EXPECT_TRUE(OptionsOf({"enable_prefix_caching=true"}).prefix_cache);
  EXPECT_EQ(OptionsOf({}).kv_bytes, 0);
  EXPECT_EQ(OptionsOf({"prefix_caching_hbm_byte=123456"}).kv_bytes, 123456);
  EXPECT_EQ(SettingsOf({"use_chunked_prefill=true", "prefix_caching_hbm_byte=5"}).IgnoredNote(),
            "no effect on CPU: use_chunked_prefill (1 key)");
}

TEST(ServingOptions, NumbersBelowOneAreNotTheDefault) {
  const auto failure = [](const std::string& word) { return FailureOf([&] { OptionsOf({word}); }); };
  EXPECT_EQ(failure("max_target_length=0"),
            "2 max_target_length=0 (command line): expected at least 1\nleave it out for the default");
  EXPECT_EQ(failure("prefill_chunk_size=-1"),
            "2 prefill_chunk_size=-1 (command line): expected at least 1\nleave it out for the default");
  EXPECT_EQ(failure("prefix_caching_hbm_byte=0"),
            "2 prefix_caching_hbm_byte=0 (command line): expected at least 1\nleave it out for the default");
  EXPECT_EQ(failure("per_device_batch_size=-3"),
            "2 per_device_batch_size=-3 (command line): expected 1 to 1024 slots\nleave it out for the default");
  EXPECT_EQ(failure("per_device_batch_size=1e9").substr(0, 50), "2 per_device_batch_size=1000000000 (command line):");
  EXPECT_EQ(OptionsOf({"per_device_batch_size=0.25"}).slots, 1);
  EXPECT_EQ(OptionsOf({"per_device_batch_size=3"}).slots, 3);
  EXPECT_EQ(failure("mla_form=absorbed").substr(0, 1), "2");
}

// The budget of the pages: no more are kept than fit, and a cache that holds none is refused.
TEST_F(Serving, TheCacheHasItsBudget) {
  engine::ServingOptions options;
  options.path = Write().string();
  options.slots = 4;
  const int64_t page = 64 * 4 * 2 * 2 * 64 * 4;  // tokens, layers, keys and values, heads, their width, floats
  options.kv_bytes = 6 * page - 1;
  EXPECT_EQ(engine::ServingModel::Open(options)->kv_bytes(), 5 * page);
  options.kv_bytes = page - 1;
  EXPECT_EQ(
      FailureOf([&] { engine::ServingModel::Open(options); }).substr(0, 72),
      fmt::format("2 the key-value cache has {} bytes, one page of 64 tokens takes {}", page - 1, page).substr(0, 72));
}

}  // namespace
}  // namespace octavo
