#include "octavo/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/base/publish.h"

namespace octavo::train {
namespace {

namespace fs = std::filesystem;

// What is printed, timed and kept on disk; no number of the run depends on them.
constexpr std::string_view kFreeKeys[] = {
    "profile",
    "quant_stats",
    "quant_stats_period",
    "quant_stats_filter",
    "quant_shadow",
    "log_period",
    "metrics_file",
    "enable_tensorboard",
    "enable_checkpointing",
    "checkpoint_period",
    "max_num_checkpoints_to_keep",
    "async_checkpointing",
    "save_checkpoint_on_start",
    "save_checkpoint_on_completion",
    "abort_on_nan_loss",
    "abort_on_inf_loss",
    "base_output_directory",
    "eval_interval",
    "eval_steps",
    "eval_start_step",
    "target_eval_loss",
    "remat_policy",

};

}  // namespace

std::vector<std::string> KeysThatMatter(const std::vector<SettingsDifference>& differences) {
  std::vector<std::string> keys;
  for (const SettingsDifference& difference : differences) {
    if (std::find(std::begin(kFreeKeys), std::end(kFreeKeys), difference.key) == std::end(kFreeKeys)) {
      keys.push_back(difference.key);
    }
  }
  return keys;
}

fs::path RunPath(const Settings& settings) {
  const std::string folder = settings.Text("base_output_directory");
  std::string name = settings.Text("run_name");
  if (name.find('/') != std::string::npos || name == "." || name == "..") {
    ThrowUsage("run_name='{}': a run is one folder inside base_output_directory, without '/'", name);
  }
  if (name.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%d-%H-%M-%S", &local);
    name = text;
  }
  return fs::path(folder.empty() ? "out" : folder) / name;
}

RunFolder::RunFolder(const Settings& settings, fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) {
    throw Error(ErrorCode::kJob, fmt::format("cannot make the folder {}: {}", path_.string(), error.message()),
                "choose another base_output_directory");
  }
  Lock();
  try {
    CheckConfig(settings);
  } catch (...) {
    close(lock_);
    throw;
  }
}

void RunFolder::SaveConfig(const Settings& settings) const { PublishFile(config(), settings.EffectiveYaml()); }

RunFolder::~RunFolder() {
  if (lock_ >= 0) close(lock_);
}

void RunFolder::Lock() {
  const fs::path file = path_ / ".lock";
  lock_ = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock_ < 0) throw Error(ErrorCode::kJob, fmt::format("cannot write {}: {}", file.string(), std::strerror(errno)));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  close(lock_);
  lock_ = -1;
  throw Error(ErrorCode::kJob, fmt::format("{} is in use by another process", path_.string()),
              "wait for it, or choose another run_name");
}

// Whether anything would be lost if another run took the folder.
bool RunFolder::HoldsWork() const {
  std::error_code ignored;
  for (fs::directory_iterator it(checkpoints(), ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (!it->path().filename().string().starts_with('.')) return true;
  }
  return fs::exists(metrics(), ignored) && fs::file_size(metrics(), ignored) > 0;
}

void RunFolder::CheckConfig(const Settings& settings) const {
  if (!fs::exists(config()) || !HoldsWork()) return;
  const MappedFile file(config());
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const std::vector<std::string> keys =
      KeysThatMatter(Settings::Diff(Settings::FromText(text, config().string()), settings));
  if (keys.empty()) return;
  const size_t shown = std::min<size_t>(keys.size(), 6);
  throw Error(
      ErrorCode::kUsage,
      fmt::format("{} holds a run with a different config ({} key{}: {}{})", path_.string(), keys.size(),
                  keys.size() == 1 ? "" : "s", fmt::join(keys.begin(), keys.begin() + static_cast<int>(shown), ", "),
                  shown < keys.size() ? ", …" : ""),
      "resume with the saved config, or choose another run_name");
}

}  // namespace octavo::train
