// Converting over an old target while the process ends, or a call fails, at every system call: what is found is the old
// target or the new one, whole. The long form with random kills is `./run bench faults`.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/convert/convert.h"
#include "octavo/models/model.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

void WriteSource(const fs::path& folder, uint64_t seed) {
  const Settings settings =
      Settings::Load({.words = {"base_emb_dim=32", "base_num_query_heads=2", "base_num_kv_heads=2", "head_dim=16",
                                "base_mlp_dim=48", "base_num_decoder_layers=1", "vocab_size=40", "dtype=float32",
                                "use_qwix_quantization=true", "quantization=int8"}});
  const std::unique_ptr<models::Model> model = models::MakeModel(models::ModelConfigFrom(settings));
  ThreadPool pool(1);
  models::Initialize(*model, RngKey::FromSeed(seed), pool);
  const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
  CheckpointContent content;
  content.config = settings.EffectiveYaml();
  content.recipe = recipe.text;
  content.recipe_name = recipe.name;
  for (const ops::Parameter* parameter : model->parameters()) {
    content.parameters.emplace_back(parameter->name, parameter->tensor());
  }
  WriteCheckpoint(folder, content);
}

// Several files, so that there are several of every call.
void Convert(const fs::path& source, const fs::path& target, bool replace, const PublishFault& fault) {
  ThreadPool pool(1);
  Log quiet([](std::string_view) {}, {.level = LogLevel::kError});
  const weights::StoredModel stored = weights::OpenStored(source);
  convert::ConvertRequest request{
      .source = stored, .target = target, .log = quiet, .pool = pool, .isa = kernels::Isa::kReference};
  request.replace = replace;
  request.file_bytes = 6000;
  request.fault = fault;
  convert::Convert(request);
}

std::string BitsOf(const fs::path& folder) {
  const Checkpoint checkpoint(folder);
  checkpoint.Verify();
  return checkpoint.manifest().Bits();
}

class ConvertFaults : public testing::TestWithParam<bool> {  // whether there is an old target
 protected:
  ConvertFaults() {
    WriteSource(sources_ / "a", 1);
    WriteSource(sources_ / "b", 2);
    Convert(sources_ / "a", sources_ / "old", false, nullptr);
    Convert(sources_ / "b", sources_ / "new", false, nullptr);
    old_ = BitsOf(sources_ / "old");
    new_ = BitsOf(sources_ / "new");
  }

  void Prepare(const fs::path& target) {
    if (GetParam()) fs::copy(sources_ / "old", target, fs::copy_options::recursive);
  }
  void Judge(const fs::path& target, int step) {
    if (!fs::exists(target)) {
      EXPECT_FALSE(GetParam()) << "the old target is lost at step " << step;
      return;
    }
    std::string bits;
    ASSERT_NO_THROW(bits = BitsOf(target)) << step;
    if (bits == new_) {
      ++found_new_;
    } else {
      EXPECT_EQ(bits, GetParam() ? old_ : "") << step;
    }
  }

  TempFolder sources_;
  std::string old_, new_;
  int found_new_ = 0;
};

TEST_P(ConvertFaults, AKillAtEachCall) {
  EXPECT_NE(old_, new_);
  int step = 1;
  for (;; ++step) {
    const TempFolder folder;
    const fs::path target = folder / "out";
    Prepare(target);
    const pid_t child = fork();
    if (child == 0) {
      int at = 0;
      Convert(sources_ / "b", target, true, [&](PublishStep, const fs::path&) {
        if (++at == step) _exit(9);
        return 0;
      });
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    Judge(target, step);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), 9);
  }
  EXPECT_GT(step, 15);
  EXPECT_GE(found_new_, 1);
  EXPECT_LE(found_new_, 4);  // only after the last rename
}

TEST_P(ConvertFaults, AFullDiskAtEachCall) {
  for (int bad = 1;; ++bad) {
    const TempFolder folder;
    const fs::path target = folder / "out";
    Prepare(target);
    int at = 0;
    bool failed = false;
    try {
      Convert(sources_ / "b", target, true, [&](PublishStep, const fs::path&) { return ++at == bad ? ENOSPC : 0; });
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.code(), ErrorCode::kJob) << error.what();
    }
    Judge(target, bad);
    if (at < bad) break;
    EXPECT_TRUE(failed) << bad;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ConvertFaults, testing::Bool());

}  // namespace
}  // namespace octavo
