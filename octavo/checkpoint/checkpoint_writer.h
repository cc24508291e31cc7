// Writes a checkpoint as a stream, a tensor at a time, for the converter: the folder appears under its name complete or
// not at all, and can be read and checked under its temporary name before. Checkpoints of runs, which have all their
// tensors in memory, are written by WriteCheckpoint (checkpoint.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/safetensors_stream.h"

namespace octavo {

// One parameter in the order of writing, with about how many bytes it will take: decides which file it goes to.
struct PlannedParameter {
  std::string name;
  int64_t bytes = 0;
};

class CheckpointWriter {
 public:
  // Only `file_bytes`, `replace` and `fault` of the options matter.
  CheckpointWriter(const std::filesystem::path& folder, std::vector<PlannedParameter> planned,
                   const WriteCheckpointOptions& options);

  // Everything but files and tensors is the caller's to fill in, before Close.
  Manifest& manifest() { return manifest_; }

  // The tensors that hold the next planned parameter; their names begin with its name. Gives the digests.
  void Add(const std::string& parameter, const std::vector<std::pair<TensorEntry, Tensor>>& tensors);
  // Recipe state, in one small file of its own.
  void AddState(const NamedTensors& state);
  // A file that goes along.
  void AddCarried(const std::string& name, std::string_view text);

  // Ends all files and writes the manifest. Afterwards `temporary()` is a checkpoint like any other.
  void Close();
  const std::filesystem::path& temporary() const { return folder_.temporary(); }
  uint64_t bytes() const { return bytes_; }  // of all files, after Close

  void Publish() { folder_.Publish(); }

 private:
  void EndFile();
  void StartFile(size_t file);

  FolderPublisher folder_;
  std::vector<PlannedParameter> planned_;
  std::vector<size_t> file_of_;  // of each planned parameter
  size_t next_ = 0;              // planned parameter
  size_t files_ = 0;
  std::optional<SafetensorsStream> stream_;
  std::string file_name_;
  size_t file_ = 0;
  Manifest manifest_;
  uint64_t bytes_ = 0;
};

}  // namespace octavo
