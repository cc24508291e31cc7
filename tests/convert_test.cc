// Train a little, convert, load again: the logits are those of the trainer's forward pass, bit for bit, under every
// kind of recipe; quantizing on load gives the same; what was written takes the bytes that the plan said.
#include "octavo/convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/dist/communicator.h"
#include "octavo/quant/provider.h"
#include "octavo/train/model_plan.h"
#include "octavo/train/run_state.h"
#include "octavo/train/trainer.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

std::string HashOf(const Tensor& tensor) {
  const Tensor packed = tensor.Contiguous();
  return DigestHex({packed.RawData(), static_cast<size_t>(packed.bytes())});
}

Tensor Tokens(int64_t vocab) {
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < 2 * 24; ++i) {
    ids.push_back(static_cast<int32_t>(RngKey::FromSeed(5).Bits32(i) % static_cast<uint32_t>(vocab)));
  }
  return Tensor::FromValues<int32_t>({2, 24}, DType::kI32, ids);
}

std::string LogitsHash(models::Model& model, quant::Provider* provider, const ops::StateStore& state, int threads) {
  ThreadPool pool(threads);
  kernels::Workspace workspace;
  ops::Context context(pool, kernels::ChooseIsa().isa, workspace);
  context.interceptor = provider;
  context.state = &state;
  const Tensor tokens = Tokens(model.config().vocab_size);
  const ops::Var hidden = models::Forward(context, model, tokens, ops::RowsOfShape(2, 24));
  return HashOf(model.Logits(context, hidden).value);
}

std::string LogitsHash(weights::LoadedModel& loaded, int threads = 1) {
  quant::Provider provider(*loaded.plan);
  return LogitsHash(*loaded.model, loaded.recipe_name.empty() ? nullptr : &provider, loaded.state, threads);
}

class Converting : public testing::Test {
 protected:
  Converting() : isa_(kernels::ChooseIsa().isa) {}

  Settings SettingsOf(const Words& more) const {
    Words words = {"run_name=r",
                   "base_output_directory=" + folder_.path().string(),
                   "dataset_type=synthetic",
                   "base_emb_dim=128",
                   "base_num_query_heads=2",
                   "base_num_kv_heads=1",
                   "head_dim=64",
                   "base_mlp_dim=128",
                   "base_num_decoder_layers=2",
                   "vocab_size=192",
                   "max_target_length=32",
                   "per_device_batch_size=4",
                   "gradient_shards=1",
                   "learning_rate=0.01",
                   "dtype=float32",
                   "steps=3",
                   "enable_tensorboard=false",
                   "save_checkpoint_on_start=false"};
    for (const std::string& word : more) {
      const std::string key = word.substr(0, word.find('=') + 1);
      std::erase_if(words, [&](const std::string& old) { return old.starts_with(key); });
      words.push_back(word);
    }
    return Settings::Load({.words = words});
  }

  // A run of three steps; its last checkpoint.
  fs::path Train(const Words& more) {
    const Settings settings = SettingsOf(more);
    SelfCommunicator self;
    train::Train({.settings = settings, .log = log_, .pool = pool_, .communicator = self, .isa = isa_});
    return folder_ / settings.Text("run_name") / "checkpoints/3";
  }

  // What the trainer itself would compute from a checkpoint, by its own functions.
  std::string TrainerHash(const fs::path& path, const Words& more) {
    const Settings settings = SettingsOf(more);
    const Checkpoint checkpoint(path);
    const auto model = models::MakeModel(models::ModelConfigFrom(settings));
    const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
    const quant::Plan plan = train::PlanOf(*model, recipe, train::TrainOptionsFrom(settings));
    train::RestoreParameters(checkpoint, *model);
    ops::StateStore state;
    for (auto& [name, value] : checkpoint.LoadAll("state/")) state.Set(name.substr(6), value);
    quant::Provider provider(plan);
    return LogitsHash(*model, recipe.empty() ? nullptr : &provider, state, 2);
  }

  convert::ConvertRequest RequestOf(const weights::StoredModel& source, const fs::path& target) {
    return {.source = source, .target = target, .log = log_, .pool = pool_, .isa = isa_};
  }

  convert::ConvertSummary Convert(const fs::path& source, const fs::path& target,
                                  const std::function<void(convert::ConvertRequest&)>& change = nullptr) {
    const weights::StoredModel stored = weights::OpenStored(source);
    convert::ConvertRequest request = RequestOf(stored, target);
    if (change) change(request);
    return convert::Convert(request);
  }

  weights::LoadedModel Load(const fs::path& path, const weights::LoadOptions& options = {}) {
    return weights::LoadModel(weights::OpenStored(path), options, pool_, isa_);
  }

  void CheckRecipe(const Words& recipe, bool codes = true);

  TempFolder folder_;
  std::string text_;
  Log log_{[this](std::string_view line) { text_ += line; }};
  ThreadPool pool_{2};
  kernels::Isa isa_;
};

int64_t FileBytes(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

void Converting::CheckRecipe(const Words& recipe, bool codes) {
  const std::string what = fmt::format("{}", fmt::join(recipe, " "));
  SCOPED_TRACE(what);
  const fs::path source = Train(recipe), target = folder_ / "converted";
  const convert::ConvertSummary summary = Convert(source, target);
  EXPECT_EQ(summary.quantized > 0, codes);
  const std::string expected = TrainerHash(source, recipe);
  weights::LoadedModel converted = Load(target);
  for (const int threads : {1, 2, 3, 7}) EXPECT_EQ(LogitsHash(converted, threads), expected) << threads;
  weights::LoadedModel on_load = Load(source);
  EXPECT_EQ(LogitsHash(on_load), expected);
  EXPECT_EQ(on_load.fingerprint, converted.fingerprint);
  weights::LoadOptions floats;
  floats.holding = weights::Holding::kFloats;
  weights::LoadedModel as_trained = Load(source, floats);
  EXPECT_EQ(LogitsHash(as_trained), expected);
  // The file holds no float copies: planned bytes, and headers that are small beside any real model.
  int64_t headers = 0;
  const Checkpoint checkpoint(target);
  for (const auto& item : checkpoint.manifest().tensors)
    headers += static_cast<int64_t>(3 * (2 * item.first.size() + 400));
  int64_t state = 0;
  for (const auto& item : checkpoint.LoadAll("state/")) state += item.second.bytes();
  const int64_t data = FileBytes(target) - state;
  EXPECT_GE(data, summary.planned_bytes * 99 / 100);
  EXPECT_LE(data - headers, summary.planned_bytes * 101 / 100);
  fs::remove_all(target);
  fs::remove_all(folder_ / "r");
}

TEST_F(Converting, Float) { CheckRecipe({}, false); }
TEST_F(Converting, QwixInt8) { CheckRecipe({"quantization=int8", "use_qwix_quantization=true"}); }
TEST_F(Converting, QwixInt8InBf16) {
  CheckRecipe({"quantization=int8", "use_qwix_quantization=true", "dtype=bfloat16"});
}
TEST_F(Converting, QwixInt4) { CheckRecipe({"quantization=int4", "use_qwix_quantization=true"}); }
TEST_F(Converting, QwixFp8Full) { CheckRecipe({"quantization=fp8_full", "use_qwix_quantization=true"}); }
TEST_F(Converting, QwixFp4) { CheckRecipe({"quantization=fp4", "use_qwix_quantization=true"}); }
TEST_F(Converting, AqtInt8) { CheckRecipe({"quantization=int8"}); }
TEST_F(Converting, AqtInt8Weights) { CheckRecipe({"quantization=int8w"}); }
TEST_F(Converting, AqtInt4Weights) { CheckRecipe({"quantization=int4w"}); }
TEST_F(Converting, DelayedFp8) { CheckRecipe({"quantization=fp8"}); }
TEST_F(Converting, TransformerEngineDelayed) { CheckRecipe({"quantization=te_fp8_delayedscaling"}); }
TEST_F(Converting, TransformerEngineMx) { CheckRecipe({"quantization=te_mxfp8"}); }
TEST_F(Converting, GroupedInt4) { CheckRecipe({"quantization=w4a8", "head_dim=128"}); }
TEST_F(Converting, GroupedInt4Of32) { CheckRecipe({"quantization=w4a8", "quantization_group_size=32"}); }

TEST_F(Converting, AMutationIsCaught) {
  const Words recipe = {"quantization=int8", "use_qwix_quantization=true"};
  const fs::path source = Train(recipe), target = folder_ / "converted";
  Convert(source, target);
  weights::LoadedModel converted = Load(target);
  const std::string expected = LogitsHash(converted), fingerprint = converted.fingerprint;
  for (ops::Parameter* parameter : converted.model->parameters()) {
    if (!parameter->frozen()) continue;
    int8_t& code = std::get<QArray>(parameter->value).qvalue.MutableData<int8_t>()[17];
    code = static_cast<int8_t>(code == 127 ? 126 : code + 1);
    break;
  }
  EXPECT_NE(LogitsHash(converted), expected);
  EXPECT_EQ(Load(target).fingerprint, fingerprint);
}

}  // namespace
}  // namespace octavo
