#include "octavo/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <mutex>

#include "octavo/base/error.h"
#include "octavo/base/progress.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemoved = ".removed-";  // what a checkpoint is called while its files are being removed

std::optional<int64_t> StepOf(const std::string& name) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || std::to_string(step) != name) return std::nullopt;
  return step;
}

void CopyTensors(NamedTensors& tensors) {
  for (auto& item : tensors) item.second = item.second.Clone();
}

}  // namespace

// What the writing thread and the caller share.
struct CheckpointStore::Background {
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<SavedCheckpoint> completed;
  std::thread thread;

  void Join() {
    if (thread.joinable()) thread.join();
  }
  void Rethrow() {
    const std::lock_guard lock(mutex);
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }
};

CheckpointStore::CheckpointStore(fs::path folder, StoreOptions options)
    : folder_(std::move(folder)), options_(std::move(options)), background_(std::make_unique<Background>()) {}

CheckpointStore::~CheckpointStore() { background_->Join(); }

std::vector<int64_t> CheckpointStore::Steps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::optional<int64_t> step = StepOf(it->path().filename().string());
    if (step && it->is_directory() && !it->is_symlink()) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<Checkpoint> CheckpointStore::OpenLatest(Log& log) {
  std::optional<Checkpoint> newest = NewestWhole(log);
  RemoveUnfinished(log);
  return newest;
}

std::optional<Checkpoint> CheckpointStore::NewestWhole(Log& log) const {
  const std::vector<int64_t> steps = Steps();
  for (size_t i = steps.size(); i-- > 0;) {
    try {
      Checkpoint checkpoint(PathOf(steps[i]));
      checkpoint.Verify();
      return checkpoint;
    } catch (const Error& problem) {
      log.Warning("checkpoint {} is damaged and not used: {}\n{}", PathOf(steps[i]).string(), problem.message(),
                  i > 0 ? fmt::format("  going on from the one before it, {}", PathOf(steps[i - 1]).string())
                        : std::string("  there is none before it"));
    }
  }
  if (steps.empty()) return std::nullopt;
  // Beginning anew would overwrite what might still be rescued.
  throw Error(ErrorCode::kFile,
              steps.size() == 1 ? fmt::format("the only checkpoint in {} is damaged", folder_.string())
                                : fmt::format("all {} checkpoints in {} are damaged", steps.size(), folder_.string()),
              "restore one, or start anew with another run_name");
}

void CheckpointStore::RemoveUnfinished(Log& log) const {
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    // ".40<mark>…" is what a save of step 40 left that never finished.
    const std::string name = it->path().filename().string();
    if (!name.starts_with('.')) continue;
    if (name.starts_with(kRemoved)) {
      std::error_code ignored;
      fs::remove_all(it->path(), ignored);
      continue;
    }
    const std::string step = name.substr(1, name.find_first_not_of("0123456789", 1) - 1);
    if (StepOf(step) && RemoveTemporaries(folder_ / step) > 0) {
      log.Warning("{}: removed a checkpoint of step {} that was never finished", folder_.string(), step);
    }
  }
}

void CheckpointStore::Link(int64_t step) const {
  // A new link under another name takes the place of the old one in a single rename.
  const fs::path link = folder_ / "latest", fresh = folder_ / ".latest.new";
  std::error_code ignored, error;
  fs::remove(fresh, ignored);
  fs::create_directory_symlink(std::to_string(step), fresh, error);
  if (!error) fs::rename(fresh, link, error);
  if (error) {
    throw Error(ErrorCode::kJob, fmt::format("cannot point {} to step {}: {}", link.string(), step, error.message()));
  }
}

void CheckpointStore::Prune() const {
  if (options_.keep <= 0) return;
  const std::vector<int64_t> steps = Steps();
  for (size_t i = 0; i + static_cast<size_t>(options_.keep) < steps.size(); ++i) {
    // Renamed first: a crash in the middle must not leave half a checkpoint under its name.
    const fs::path doomed = folder_ / fmt::format("{}{}", kRemoved, steps[i]);
    std::error_code ignored;
    fs::rename(PathOf(steps[i]), doomed, ignored);
    if (!ignored) fs::remove_all(doomed, ignored);
  }
}

void CheckpointStore::Write(const CheckpointContent& content) {
  const double start = Progress::SteadySeconds();
  fs::create_directories(folder_);
  const WrittenCheckpoint written = WriteCheckpoint(PathOf(content.step), content, options_.write);
  Link(content.step);
  Prune();
  const std::lock_guard lock(background_->mutex);
  background_->completed.push_back(
      {PathOf(content.step), written.bytes, Progress::SteadySeconds() - start, written.bits});
}

void CheckpointStore::Save(CheckpointContent content) {
  Wait();
  if (!options_.async) {
    Write(content);
    return;
  }
  CopyTensors(content.parameters);
  CopyTensors(content.optimizer);
  CopyTensors(content.state);
  background_->thread = std::thread([this, owned = std::move(content)] {
    try {
      Write(owned);
    } catch (...) {
      const std::lock_guard lock(background_->mutex);
      background_->error = std::current_exception();
    }
  });
}

void CheckpointStore::Wait() {
  background_->Join();
  background_->Rethrow();
}

std::vector<SavedCheckpoint> CheckpointStore::Completed() {
  background_->Rethrow();
  const std::lock_guard lock(background_->mutex);
  return std::exchange(background_->completed, {});
}

}  // namespace octavo
