// The safetensors files of a model folder as one set of tensors: model.safetensors, or the shards that
// model.safetensors.index.json lists. Checks that the index and the files agree in both directions. Used by weights/
// for folders of the Hugging Face form. Does not interpret names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/safetensors.h"

namespace octavo {

// Which file holds each tensor. Names of files are plain: no folders, no "..", ending in .safetensors.
using ShardMap = std::map<std::string, std::string>;

// The weight_map of an index. `where` names it in errors.
ShardMap ParseShardIndex(std::string_view text, const std::string& where);

class ShardedSafetensors {
 public:
  // A folder without safetensors files is a file error that says what it holds instead: pickles, Orbax, a GGUF file.
  explicit ShardedSafetensors(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, const StoredTensor*, std::less<>>& tensors() const { return tensors_; }
  const StoredTensor* Find(std::string_view name) const;  // nullptr when there is none

 private:
  std::filesystem::path folder_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::map<std::string, const StoredTensor*, std::less<>> tensors_;
};

// "PK\3\4" of zipped pickles, or protocol 2 to 5 of a bare one.
bool LooksLikePickle(std::span<const std::byte> bytes);

// Small text files of a model folder (config.json …), whole. Larger than `most` bytes is a file error.
std::string ReadSmallFile(const std::filesystem::path& path, uint64_t most = uint64_t{16} << 20);

}  // namespace octavo
