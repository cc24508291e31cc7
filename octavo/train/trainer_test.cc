// Whole runs of a tiny model. The promise under test: parameters, optimizer and recipe state end with the same bits
// however the work was cut.
#include "octavo/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/dist/thread_ranks.h"

namespace octavo::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

// Two layers of width 32 on documents of random letters, read by bytes.
class Training : public testing::Test {
 protected:
  Training() {
    std::ofstream text(folder_ / "text.txt");
    const RngKey key = RngKey::FromSeed(1);
    for (uint64_t i = 0; i < 6000; ++i) {
      const uint32_t draw = key.Bits32(i);
      text << (draw % 37 == 0 ? "\n\n" : std::string(1, static_cast<char>('a' + draw % 11)));
    }
  }

  Settings SettingsOf(const std::string& run, const Words& more) const {
    Words words = {"run_name=" + run,
                   "base_output_directory=" + folder_.path().string(),
                   "dataset_type=files",
                   "data_files=" + (folder_ / "text.txt").string(),
                   "tokenizer_path=bytes",
                   "base_emb_dim=32",
                   "base_num_query_heads=2",
                   "base_num_kv_heads=2",
                   "head_dim=16",
                   "base_mlp_dim=64",
                   "base_num_decoder_layers=2",
                   "vocab_size=320",
                   "max_target_length=16",
                   "per_device_batch_size=8",
                   "dtype=float32",
                   "learning_rate=0.01",
                   "steps=6",
                   "enable_tensorboard=false",
                   "save_checkpoint_on_start=false",
                   "use_qwix_quantization=true"};
    for (const std::string& word : more) {  // takes the place of a word with the same key
      const std::string key = word.substr(0, word.find('=') + 1);
      std::erase_if(words, [&](const std::string& old) { return old.starts_with(key); });
      words.push_back(word);
    }
    return Settings::Load({.words = words});
  }

  struct Options {
    int threads = 1, ranks = 1;
    int64_t stop_after = 0;  // a SIGTERM when this many steps were made
    bool stop_at_once = false;
  };

  TrainSummary Run(const std::string& run, const Words& more, const Options& options) {
    const Settings settings = SettingsOf(run, more);
    TrainSummary summary;
    std::mutex mutex;
    RunThreadRanks(options.ranks, [&](Communicator& communicator) {
      Log log([&](std::string_view text) {
        const std::lock_guard lock(mutex);
        log_ += text;
      });
      ThreadPool pool(options.threads);
      int64_t made = 0;
      const TrainSummary one = Train({.settings = settings,
                                      .log = log,
                                      .pool = pool,
                                      .communicator = communicator,
                                      .isa = kernels::ChooseIsa().isa,
                                      .signal =
                                          [&] {
                                            const bool stop = made == options.stop_after && made > 0;
                                            return stop || options.stop_at_once ? SIGTERM : 0;
                                          },
                                      .on_step = [&](const StepMetrics&) { ++made; }});
      const std::lock_guard lock(mutex);
      if (!summary.bits.empty()) {
        EXPECT_EQ(summary.bits, one.bits) << "ranks disagree";
      }
      summary = one;
    });
    return summary;
  }
  TrainSummary Run(const std::string& run, const Words& more = {}) { return Run(run, more, Options{}); }

  std::vector<double> Losses(const std::string& run) const {
    std::vector<double> losses;
    std::ifstream file(folder_ / run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      losses.push_back(nlohmann::json::parse(line)["learning/loss"].get<double>());
    }
    return losses;
  }

  std::string ReadAll(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TempFolder folder_;
  std::string log_;
};

const Words kRecipes[] = {
    {}, {"quantization=int8"}, {"quantization=te_fp8_delayedscaling", "use_qwix_quantization=false"}};

TEST_F(Training, ResumedEqualsUninterrupted) {
  for (const Words& recipe : kRecipes) {
    const std::string name = "r" + std::to_string(&recipe - kRecipes);
    const TrainSummary straight = Run(name, recipe);
    EXPECT_EQ(straight.exit_code, 0);
    EXPECT_LT(straight.last_loss, straight.first_loss);
    const std::string cut = name + "-cut";
    const TrainSummary first = Run(cut, recipe, {.stop_after = 2});
    EXPECT_EQ(first.exit_code, 143);
    EXPECT_EQ(first.steps, 2);
    EXPECT_NE(first.bits, straight.bits);
    Run(cut, recipe, {.stop_after = 3});
    EXPECT_EQ(Run(cut, recipe).bits, straight.bits) << fmt::format("{}", fmt::join(recipe, " "));
    EXPECT_EQ(Losses(cut), Losses(name));
    EXPECT_EQ(Checkpoint(folder_ / (cut + "/checkpoints/latest")).manifest().Bits(), straight.bits);
  }
  EXPECT_THAT(log_, HasSubstr("resumed   "));
  EXPECT_THAT(log_, HasSubstr("resume: octavo train "));
}

TEST_F(Training, ThreadsAccumulationAndRanksDoNotChangeBits) {
  for (Words recipe : kRecipes) {
    recipe.push_back("steps=3");
    const std::string name = recipe[0];
    const std::string bits = Run(name, recipe).bits;
    for (const int threads : {2, 3}) {
      EXPECT_EQ(Run(fmt::format("{}-{}t", name, threads), recipe, {.threads = threads}).bits, bits) << threads;
    }
    for (const int ranks : {2, 4}) {
      EXPECT_EQ(Run(fmt::format("{}-{}r", name, ranks), recipe, {.ranks = ranks}).bits, bits) << ranks;
    }
    for (const int64_t split : {2, 4}) {
      Words words = recipe;
      words.push_back(fmt::format("per_device_batch_size={}", 8 / split));
      words.push_back(fmt::format("gradient_accumulation_steps={}", split));
      EXPECT_EQ(Run(fmt::format("{}-{}a", name, split), words).bits, bits) << split;
    }
    // The hash notices another order of the same additions.
    Words other = recipe;
    other.push_back("gradient_shards=2");
    EXPECT_NE(Run(name + "-2s", other).bits, bits);
  }
}

TEST_F(Training, RematPoliciesGiveTheSameBits) {
  for (const Words& recipe : kRecipes) {
    const std::string name = "m" + std::to_string(&recipe - kRecipes);
    const std::string bits = Run(name, recipe).bits;
    for (const char* policy : {"none", "minimal", "save_qkv_proj"}) {
      Words words = recipe;
      words.push_back(std::string("remat_policy=") + policy);
      EXPECT_EQ(Run(name + "-" + policy, words).bits, bits) << policy;
    }
  }
}

// Running state is read-only inside a step, so recomputation and accumulation together leave every bit alone too: that
// of parameters, optimizer and histories.
TEST_F(Training, Fp8WithRematAndAccumulationGivesTheSameBits) {
  const Words recipes[] = {{"quantization=fp8_full"},
                           {"quantization=fp8_gpu"},
                           {"quantization=te_fp8_delayedscaling", "use_qwix_quantization=false"}};
  for (Words recipe : recipes) {
    recipe.push_back("steps=3");
    const std::string name = recipe[0];
    Words whole = recipe;
    whole.push_back("remat_policy=none");
    const std::string bits = Run(name, whole).bits;
    for (const char* policy : {"full", "minimal_with_quantization", "save_qkv_proj"}) {
      for (const int64_t split : {2, 4}) {
        Words words = recipe;
        words.push_back(std::string("remat_policy=") + policy);
        words.push_back(fmt::format("per_device_batch_size={}", 8 / split));
        words.push_back(fmt::format("gradient_accumulation_steps={}", split));
        EXPECT_EQ(Run(fmt::format("{}-{}-{}", name, policy, split), words).bits, bits) << policy << " " << split;
      }
    }
    // What a state that does not move would give: the hash tells it apart.
    Words two = whole;
    std::erase(two, "steps=3");
    two.push_back("steps=2");
    EXPECT_NE(Run(name + "-2", two).bits, bits);
  }
}

TEST_F(Training, ASignalBeforeTheFirstStepIsSeenAndTheRunSaved) {
  const std::string bits = Run("straight").bits;
  const TrainSummary none = Run("x", {}, {.stop_at_once = true});
  EXPECT_EQ(none.exit_code, 143);
  EXPECT_EQ(none.steps, 0);
  EXPECT_TRUE(fs::exists(folder_ / "x/checkpoints/0/manifest.json"));
  EXPECT_EQ(Run("x", {}, {.stop_after = 2}).steps, 2);
  EXPECT_EQ(Run("x", {}, {.stop_at_once = true}).steps, 2);
  EXPECT_EQ(Run("x").bits, bits);
}

// Before the model's memory is taken, and before what takes long.
TEST_F(Training, ThePriceComesFirst) {
  Run("x", {}, {.stop_after = 2});
  log_.clear();
  Run("x");
  EXPECT_LT(log_.find("\nestimate  "), log_.find("\nresumed   ")) << log_;
  EXPECT_THAT(log_, HasSubstr(" for 4 steps\n"));
  log_.clear();
  EXPECT_THROW(Run("y", {"load_parameters_path=/nowhere"}), Error);
  EXPECT_THAT(log_, HasSubstr("\nestimate  "));
  EXPECT_FALSE(fs::exists(folder_ / "y/config.yml"));
}

// The config of a run holds every key; taking it again must mean the same run.
TEST_F(Training, TheSavedConfigResumes) {
  const Words words = {"quantization=int8", "per_device_batch_size=2", "max_target_length=8"};
  const std::string bits = Run("straight", words).bits;
  Run("x", words, {.stop_after = 3});
  const Settings saved = Settings::Load({.words = {(folder_ / "x/config.yml").string()}});
  Log log([](std::string_view) {});
  ThreadPool pool(1);
  SelfCommunicator self;
  const TrainSummary summary =
      Train({.settings = saved, .log = log, .pool = pool, .communicator = self, .isa = kernels::ChooseIsa().isa});
  EXPECT_EQ(summary.first_step, 3);
  EXPECT_EQ(summary.bits, bits);
}

// Everything is saved by then, but who reads the events must learn that the last of them are missing.
TEST_F(Training, EventsThatCannotBeWrittenAfterTheLastStepAreAnError) {
  const std::unique_ptr<FILE, int (*)(FILE*)> events(std::fopen((folder_ / "events").c_str(), "w"), std::fclose),
      full(std::fopen("/dev/full", "w"), std::fclose);
  ASSERT_TRUE(events && full);
  Log log([](std::string_view) {});
  ThreadPool pool(1);
  SelfCommunicator self;
  const Settings settings = SettingsOf("x", {"steps=2"});
  const auto fill_disk = [&](const fs::path&, const fs::path&) {  // asked for between the last save and "done"
    EXPECT_EQ(::dup2(fileno(full.get()), fileno(events.get())), fileno(events.get()));
    return std::string();
  };
  try {
    Train({.settings = settings,
           .log = log,
           .pool = pool,
           .communicator = self,
           .isa = kernels::ChooseIsa().isa,
           .json = events.get(),
           .next_command = fill_disk});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kJob);
    EXPECT_EQ(error.message(), "cannot write the events to standard output: No space left on device");
  }
  EXPECT_TRUE(fs::exists(folder_ / "x/checkpoints/2/manifest.json"));
  EXPECT_THAT(ReadAll("events"), HasSubstr("\"step\":1"));
}

// What would go wrong if a resume lost something: the hash must tell.
TEST_F(Training, ALostPieceOfStateIsNoticed) {
  const std::string bits = Run("straight").bits;
  Run("cut", {}, {.stop_after = 3});
  const Checkpoint saved(folder_ / "cut/checkpoints/3");
  const auto write = [&](const std::string& name, const std::function<void(CheckpointContent&)>& change) {
    CheckpointContent content;
    content.step = 3;
    content.config = saved.manifest().config;
    content.data_state = saved.manifest().data_state;
    for (const auto& [tensor_name, tensor] : saved.LoadAll("")) {
      (tensor_name.starts_with("opt/") ? content.optimizer : content.parameters).emplace_back(tensor_name, tensor);
    }
    change(content);
    WriteCheckpoint(folder_ / name, content);
    return Run("from-" + name, {"load_full_state_path=" + (folder_ / name).string()}).bits;
  };
  EXPECT_EQ(write("whole", [](CheckpointContent&) {}), bits);
  EXPECT_NE(write("count", [](CheckpointContent& c) { c.optimizer[0].second.MutableData<int64_t>()[0] = 2; }), bits);
  EXPECT_NE(write("moment", [](CheckpointContent& c) { c.optimizer[1].second.MutableData<float>()[0] += 1e-3f; }),
            bits);
}

TEST_F(Training, ADamagedCheckpointCostsOnlyTime) {
  const std::string bits = Run("straight").bits;
  Run("x", {"checkpoint_period=2"}, {.stop_after = 5});
  const fs::path file = folder_ / "x/checkpoints/5/model-00001-of-00001.safetensors";
  std::fstream broken(file, std::ios::in | std::ios::out | std::ios::binary);
  broken.seekp(-10, std::ios::end);
  broken.put('\x7f');
  broken.close();
  log_.clear();
  EXPECT_EQ(Run("x", {"checkpoint_period=2"}).bits, bits);
  EXPECT_THAT(log_, HasSubstr("checkpoints/5 is damaged and not used"));
  EXPECT_THAT(log_, HasSubstr("step 4 of 6"));
}

TEST_F(Training, NumbersThatBreakStopTheRunWithAReport) {
  const TrainSummary summary =
      Run("x", {"learning_rate=1e30", "gradient_clipping_threshold=0", "quantization=int8", "checkpoint_period=1"});
  EXPECT_EQ(summary.exit_code, 4);
  EXPECT_GE(summary.steps, 1);
  EXPECT_THAT(log_, HasSubstr(fmt::format("stopped   step {}: ", summary.steps)));
  EXPECT_THAT(log_, HasSubstr(fmt::format("last good checkpoint {}", summary.steps)));
  EXPECT_THAT(log_, HasSubstr("first     "));
  EXPECT_THAT(log_, HasSubstr("replay    the same step: fp8_full loss "));
  EXPECT_THAT(log_, HasSubstr(";   without quantization loss "));
  EXPECT_THAT(log_, HasSubstr("try       "));
}

// A weight-gradient operand that overflows: the report names the operand of the site, its format and its history.
TEST_F(Training, TheReportNamesTheOperandOfABackwardProduct) {
  Run("x", {"quantization=fp8_full", "learning_rate=1e30", "gradient_clipping_threshold=0"});
  EXPECT_THAT(log_, HasSubstr("first     "));
  EXPECT_THAT(log_, HasSubstr(" of 14 sites saturated above 0.1 %"));
  EXPECT_THAT(log_, HasSubstr("replay    the same step: int8 loss "));
}

TEST_F(Training, ShadowsAreMeasuredAndChangeNothing) {
  const Words words = {"quantization=int8", "quant_stats_period=2", "steps=5"};
  const std::string bits = Run("x", words).bits;
  Words more = words;
  more.push_back("quant_shadow=[fp8_full,int4]");
  EXPECT_EQ(Run("y", more).bits, bits);
  EXPECT_EQ(Run("z", more, {.ranks = 2}).bits, bits);
  EXPECT_TRUE(ReadAll("y/quant.jsonl") == ReadAll("z/quant.jsonl"));  // figures do not depend on ranks either
  std::map<std::string, int> lines;
  std::map<std::string, double> noise;  // of one operand
  std::istringstream file(ReadAll("y/quant.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    const std::string recipe = json.value("recipe", "int8");
    ++lines[recipe + "@" + std::to_string(json["step"].get<int>())];
    if (json["operand"] == "forward.lhs" && json["site"] == "decoder/layers_0/mlp/wo") {
      noise[recipe] = json["sqnr_db"].get<double>();
    }
  }
  // 14 sites with four operands each, in steps 0, 2 and 4.
  for (const char* recipe : {"int8", "fp8_full", "int4"}) {
    for (const char* step : {"0", "2", "4"}) EXPECT_EQ(lines[recipe + std::string("@") + step], 56) << recipe << step;
  }
  EXPECT_EQ(lines.size(), 9u);
  EXPECT_GT(noise["int8"], noise["fp8_full"]);
  EXPECT_GT(noise["fp8_full"], noise["int4"]);
  EXPECT_THAT(log_, HasSubstr("shadow    fp8_full   loss of step 4 "));
  EXPECT_THROW(Run("e", {"quant_shadow=int9"}), Error);
}

// As many layers as one likes: few lines.
TEST_F(Training, WarningsAreMerged) {
  Run("x", {"quantization=int4", "base_num_decoder_layers=4", "steps=2"});
  size_t warnings = 0;
  for (size_t at = 0; (at = log_.find("warning: ", at)) != std::string::npos; ++at) ++warnings;
  EXPECT_GT(warnings, 0u);
  EXPECT_LE(warnings, 8u) << log_;
  EXPECT_THAT(log_, HasSubstr(" sites: flushed to zero up to "));
}

TEST_F(Training, EvaluatesAndStopsAtTheTarget) {
  const Words words = {"eval_fraction=0.2", "eval_interval=2", "steps=6"};
  const TrainSummary summary = Run("x", words);
  EXPECT_GT(summary.last_eval_loss, 1);
  EXPECT_THAT(log_, HasSubstr("Completed eval after train step 2, loss="));
  EXPECT_THAT(log_, HasSubstr("Completed eval after train step 6, loss="));
  const TrainSummary stopped = Run("y", {"eval_fraction=0.2", "eval_interval=2", "target_eval_loss=100"});
  EXPECT_EQ(stopped.exit_code, 0);
  EXPECT_EQ(stopped.steps, 2);
}

TEST_F(Training, WritesWhatARunConsistsOf) {
  Run("x", {"enable_tensorboard=true", "quantization=int8", "checkpoint_period=2", "max_num_checkpoints_to_keep=2",
            "profile=true"});
  for (const char* name : {"config.yml", "plan.txt", "metrics.jsonl", "quant.jsonl", "checkpoints/4", "checkpoints/6",
                           "checkpoints/latest/manifest.json"}) {
    EXPECT_TRUE(fs::exists(folder_ / "x" / name)) << name;
  }
  EXPECT_FALSE(fs::exists(folder_ / "x/checkpoints/2"));
  EXPECT_FALSE(fs::is_empty(folder_ / "x/tensorboard"));
  for (const char* line : {"octavo 0", "config    base.yml + ", "model     default", "plan      int8 fwd", "estimate  ",
                           "completed step: 5, seconds: ", "saved     ", "done      6 steps   768 tokens   loss "}) {
    EXPECT_THAT(log_, HasSubstr(line));
  }
}

TEST_F(Training, ErrorsAreTheUsers) {
  EXPECT_THROW(Run("a", {"gradient_shards=3"}), Error);
  EXPECT_THROW(Run("b", {"quantization=int9"}), Error);
  EXPECT_THROW(Run("c", {"eval_interval=1"}), Error);
  EXPECT_THROW(Run("d", {"remat_policy=some"}), Error);
  EXPECT_THROW(Run("e", {"vocab_size=64"}), Error);  // bytes need more
  EXPECT_THROW(Run("f", {"load_parameters_path=/nowhere"}), Error);
  EXPECT_THROW(Run("g", {}, {.ranks = 3}), Error);
}

}  // namespace
}  // namespace octavo::train
