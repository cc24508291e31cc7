// The checkpoints of one run: RUN/checkpoints/STEP and the link `latest`. Saves, keeps the newest N, finds the newest
// that is whole. Saving may happen in the background: the caller waits for a copy of the tensors, a thread writes.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "octavo/base/log.h"
#include "octavo/checkpoint/checkpoint.h"

namespace octavo {

struct StoreOptions {
  int64_t keep = 0;  // newest checkpoints to keep; 0 keeps all
  bool async = true;
  WriteCheckpointOptions write = {};
};

struct SavedCheckpoint {
  std::filesystem::path path;
  uint64_t bytes = 0;
  double seconds = 0;  // of writing
  std::string bits;
};

class CheckpointStore {
 public:
  CheckpointStore(std::filesystem::path folder, StoreOptions options);
  // Waits for a save that is under way; an error of it that nobody asked for is lost, so call Wait before.
  ~CheckpointStore();

  const std::filesystem::path& folder() const { return folder_; }

  // The steps that are there, ascending. Unfinished ones have other names and do not show.
  std::vector<int64_t> Steps() const;
  std::filesystem::path PathOf(int64_t step) const { return folder_ / std::to_string(step); }

  // The newest checkpoint that is whole, with every digest checked; nothing when there is none at all. A damaged
  // one is skipped with a warning that says what is wrong and which one is tried next; when all are damaged that is an
  // error and nothing is changed. Removes what crashed saves left.
  std::optional<Checkpoint> OpenLatest(Log& log);

  // Saves content.step. Waits for the save before it, copies the tensors, and writes in the background when
  // options.async. An error of an earlier save is thrown here.
  void Save(CheckpointContent content);
  // Waits until nothing is being written; throws the error of the save if it failed. Afterwards everything is on disk.
  void Wait();
  // What was completed since the last call, oldest first; throws like Wait, but does not wait.
  std::vector<SavedCheckpoint> Completed();

 private:
  struct Background;
  std::optional<Checkpoint> NewestWhole(Log& log) const;
  void RemoveUnfinished(Log& log) const;
  void Write(const CheckpointContent& content);
  void Prune() const;
  void Link(int64_t step) const;

  std::filesystem::path folder_;
  StoreOptions options_;
  std::unique_ptr<Background> background_;
};

}  // namespace octavo
