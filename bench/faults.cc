// Crashes while saving and converting: the process ends at every system call of a publication, and at random moments by
// SIGKILL; and every call fails once with ENOSPC and with EIO. What is found afterwards must be the old state or the
// new one, whole, with every digest right. Prints counts; exit 1 when one was lost or half there.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "bench/common/driver.h"
#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint_store.h"
#include "octavo/convert/convert.h"
#include "octavo/kernels/isa.h"
#include "octavo/models/model.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

struct Tally {
  int tried = 0, old_state = 0, new_state = 0, lost = 0, half = 0;

  std::string Text() const {
    return fmt::format("{:4} tried   {:4} old   {:4} new   {} lost   {} half", tried, old_state, new_state, lost, half);
  }
};

Settings SmallSettings() {
  return Settings::Load({.words = {"base_emb_dim=256", "base_num_query_heads=4", "base_num_kv_heads=2", "head_dim=64",
                                   "base_mlp_dim=512", "base_num_decoder_layers=2", "vocab_size=1024", "dtype=float32",
                                   "use_qwix_quantization=true", "quantization=int8"}});
}

CheckpointContent RandomContent(int64_t step) {
  const Settings settings = SmallSettings();
  const std::unique_ptr<models::Model> model = models::MakeModel(models::ModelConfigFrom(settings));
  ThreadPool pool(1);
  models::Initialize(*model, RngKey::FromSeed(static_cast<uint64_t>(step)), pool);
  const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
  CheckpointContent content;
  content.step = step;
  content.config = settings.EffectiveYaml();
  content.recipe = recipe.text;
  content.recipe_name = recipe.name;
  for (const ops::Parameter* parameter : model->parameters()) {
    content.parameters.emplace_back(parameter->name, parameter->tensor());
  }
  return content;
}

std::string BitsOf(const fs::path& folder) {
  const Checkpoint checkpoint(folder);
  checkpoint.Verify();
  return checkpoint.manifest().Bits();
}

// One job over an old state: what makes the new one, and where it is found.
struct Job {
  std::string name;
  std::function<void(const fs::path& place)> prepare;                      // the old state
  std::function<void(const fs::path& place, const PublishFault&)> change;  // towards the new one
  std::function<fs::path(const fs::path& place)> result;
  std::string old_bits, new_bits;
};

void Judge(const Job& job, const fs::path& place, Tally& tally) {
  ++tally.tried;
  const fs::path result = job.result(place);
  if (!fs::exists(result)) {
    ++(job.old_bits.empty() ? tally.old_state : tally.lost);
    return;
  }
  try {
    const std::string bits = BitsOf(result);
    ++(bits == job.old_bits ? tally.old_state : bits == job.new_bits ? tally.new_state : tally.half);
  } catch (const Error& error) {
    fmt::print("  {}: {}\n", job.name, error.what());
    ++tally.half;
  }
}

// The child ends before its n-th system call; 0 when it came through.
int RunChild(const Job& job, const fs::path& place, int stop_at) {
  const pid_t child = ::fork();
  if (child == 0) {
    int at = 0;
    job.change(place, [&](PublishStep, const fs::path&) {
      if (++at == stop_at) ::_exit(9);
      return 0;
    });
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Tally KillPoints(const Job& job) {
  Tally tally;
  for (int stop_at = 1;; ++stop_at) {
    const TempFolder folder;
    job.prepare(folder / "place");
    const int code = RunChild(job, folder / "place", stop_at);
    Judge(job, folder / "place", tally);
    if (code == 0) return tally;
    if (code != 9) throw Error(ErrorCode::kJob, fmt::format("{}: the child ended with {}", job.name, code));
  }
}

Tally RandomKills(const Job& job, int count, std::mt19937& random) {
  Tally tally;
  double longest = 0.05;
  for (int i = 0; i < count; ++i) {
    const TempFolder folder;
    job.prepare(folder / "place");
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      job.change(folder / "place", nullptr);
      ::_exit(0);
    }
    int status = 0;
    if (i > 0) {  // the first one shows how long it takes
      const double wait = longest * std::uniform_real_distribution<double>(0, 1.02)(random);
      std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      ::kill(child, SIGKILL);
    }
    ::waitpid(child, &status, 0);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (WIFEXITED(status)) longest = passed.count();
    Judge(job, folder / "place", tally);
  }
  return tally;
}

Tally Failures(const Job& job, int number) {
  Tally tally;
  for (int bad = 1;; ++bad) {
    const TempFolder folder;
    job.prepare(folder / "place");
    int at = 0;
    bool failed = false;
    try {
      job.change(folder / "place", [&](PublishStep, const fs::path&) { return ++at == bad ? number : 0; });
    } catch (const Error&) {
      failed = true;
    }
    Judge(job, folder / "place", tally);
    if (at < bad) return tally;
    // A failed fsync of the folder comes after the rename: the new state is there and the error was said.
    if (!failed) throw Error(ErrorCode::kJob, fmt::format("{}: failure {} was swallowed", job.name, bad));
  }
}

Job SaveJob() {
  Job job;
  job.name = "save";
  job.prepare = [content = RandomContent(10)](const fs::path& place) {
    fs::create_directories(place);
    WriteCheckpoint(place / "10", content);
  };
  job.change = [content = RandomContent(20)](const fs::path& place, const PublishFault& fault) {
    WriteCheckpointOptions options;
    options.fault = fault;
    WriteCheckpoint(place / "20", content, options);
  };
  job.result = [](const fs::path& place) { return fs::exists(place / "20") ? place / "20" : place / "10"; };
  return job;
}

Job ConvertJob(const fs::path& source, bool replace) {
  Job job;
  job.name = replace ? "convert --force" : "convert";
  const auto run = [source](const fs::path& place, bool again, const PublishFault& fault) {
    ThreadPool pool(1);
    Log quiet([](std::string_view) {}, {.level = LogLevel::kError});
    const weights::StoredModel stored = weights::OpenStored(source / (again ? "20" : "10"));
    convert::ConvertRequest request{
        .source = stored, .target = place / "out", .log = quiet, .pool = pool, .isa = kernels::ChooseIsa().isa};
    request.replace = again;
    request.fault = fault;
    convert::Convert(request);
  };
  job.prepare = [replace, run](const fs::path& place) {
    fs::create_directories(place);
    if (replace) run(place, false, nullptr);
  };
  job.change = [replace, run](const fs::path& place, const PublishFault& fault) { run(place, replace, fault); };
  job.result = [](const fs::path& place) { return place / "out"; };
  return job;
}

// What the old and the new state look like when nothing goes wrong.
void Learn(Job& job) {
  const TempFolder folder;
  job.prepare(folder / "place");
  if (fs::exists(job.result(folder / "place"))) job.old_bits = BitsOf(job.result(folder / "place"));
  job.change(folder / "place", nullptr);
  job.new_bits = BitsOf(job.result(folder / "place"));
}

int Run(const Args& args) {
  const int kills = static_cast<int>(args.Int("kills", 200, 4, 1'000'000));
  const TempFolder sources;
  for (const int64_t step : {10, 20}) WriteCheckpoint(sources / std::to_string(step), RandomContent(step));
  Job jobs[] = {SaveJob(), ConvertJob(sources.path(), false), ConvertJob(sources.path(), true)};
  std::mt19937 random(7);
  int bad = 0;
  for (Job& job : jobs) {
    Learn(job);
    const Tally tallies[] = {KillPoints(job), Failures(job, ENOSPC), Failures(job, EIO),
                             RandomKills(job, kills / (job.name == "save" ? 2 : 4), random)};
    const char* names[] = {"kill at each call", "ENOSPC at each call", "EIO at each call", "random SIGKILL"};
    for (size_t i = 0; i < std::size(tallies); ++i) {
      fmt::print("{:16} {:20} {}\n", job.name, names[i], tallies[i].Text());
      bad += tallies[i].lost + tallies[i].half;
    }
    std::fflush(stdout);
  }
  fmt::print("{}\n", bad == 0 ? "nothing lost, nothing half there" : "FAILED");
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  const octavo::VerbSpec spec{
      .name = "bench faults",
      .synopsis = "[kills=200]",
      .summary = "saving and converting, killed and failing at every system call and at random moments",
      .details = "Exit 1 when anything is lost or half there.",
      .options = {{"kills", "N", "random moments in all (200)"}},
  };
  return octavo::bench::RunDriver(spec, argc, argv, octavo::Run);
}
