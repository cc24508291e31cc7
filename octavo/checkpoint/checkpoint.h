// One checkpoint: a folder of safetensors files and a manifest (docs/formats/checkpoint.md). Written whole or not at
// all, read only after its digests were checked. Used by the trainer, the converter, the loaders and `octavo inspect`.
// Names are taken as they come; what they mean is the business of weights/.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/publish.h"
#include "octavo/checkpoint/manifest.h"
#include "octavo/checkpoint/safetensors.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// What one file group of a checkpoint is called: "model-00001-of-00002.safetensors", "optimizer-…", "state-…".
struct CheckpointContent {
  std::string kind = "train";
  int64_t step = 0;
  std::string config, recipe, data_state;
  // With `recipe`: what the rules are made from again without the files of the run.
  std::string recipe_name, recipe_mixed;
  std::vector<std::pair<std::string, std::string>> recipe_options = {};
  NamedTensors parameters, optimizer, state;
};

struct WriteCheckpointOptions {
  uint64_t file_bytes = uint64_t{2} << 30;  // a file takes more only for a single tensor
  Replace replace = Replace::kYes;
  PublishFault fault = nullptr;
};

struct WrittenCheckpoint {
  uint64_t bytes = 0;
  std::string bits;  // Manifest::Bits of everything
};

// Writes, syncs and publishes. A full disk is a job error; the target is then as it was.
WrittenCheckpoint WriteCheckpoint(const std::filesystem::path& folder, const CheckpointContent& content,
                                  const WriteCheckpointOptions& options = {});

class Checkpoint {
 public:
  // Reads the manifest and the headers of all files and insists that they agree. Does not read the data yet. What is
  // wrong is a file error that names the place.
  explicit Checkpoint(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  // A copy of one tensor, after its digest was checked. A missing name is a file error with the nearest names.
  Tensor Load(std::string_view name) const;
  // All tensors whose name begins with `prefix`.
  std::map<std::string, Tensor> LoadAll(std::string_view prefix) const;
  // Checks the digest of every tensor and of every carried file.
  void Verify() const;
  // The same for one carried file: its text, checked.
  std::string LoadCarried(const std::string& name) const;

 private:
  const StoredTensor& Find(const std::string& name, const ManifestTensor& tensor) const;
  void CheckDigest(const std::string& name, const ManifestTensor& tensor, std::span<const std::byte> bytes) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
};

// Whether the folder holds a manifest: what a checkpoint is recognized by. With a config.json it is a model folder that
// has a manifest.json of its own.
bool IsCheckpoint(const std::filesystem::path& folder);

}  // namespace octavo
