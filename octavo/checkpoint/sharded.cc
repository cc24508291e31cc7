#include "octavo/checkpoint/sharded.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/checkpoint/strict_json.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kSingleName[] = "model.safetensors";
constexpr size_t kMostIndexBytes = 64 << 20;  // 500,000 tensors

void CheckShardName(const std::string& name, const std::string& where) {
  const bool plain = !name.empty() && name.find('/') == std::string::npos && name.find('\\') == std::string::npos &&
                     name.find('\0') == std::string::npos && name[0] != '.';
  if (!plain || !name.ends_with(".safetensors")) {
    throw Error(ErrorCode::kFile, fmt::format("{}: the shard name '{}' is refused", where, name),
                "expected the name of a .safetensors file beside the index, without folders");
  }
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// By its name, or by its first bytes: others use the ending .bin as well.
bool IsPickle(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string(), extension = entry.path().extension().string();
  if (extension == ".pt" || extension == ".pth" || extension == ".pkl") return true;
  if (extension != ".bin") return false;
  std::error_code error;
  return name.starts_with("pytorch_model") ||
         (entry.is_regular_file(error) && LooksLikePickle(MappedFile(entry.path()).bytes()));
}

[[noreturn]] void FailWithoutTensors(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorCode::kFile, fmt::format("{} is not a folder", folder.string()),
                "expected a model folder with config.json and model.safetensors");
  }
  for (const char* mark : {"manifest.ocdbt", "_CHECKPOINT_METADATA", "_METADATA"}) {
    if (!Exists(folder / mark)) continue;
    throw Error(ErrorCode::kFile,
                fmt::format("{} is an Orbax OCDBT checkpoint, which Octavo does not read", folder.string()),
                "export it: python3 -m maxtext.checkpoint_conversion.to_huggingface …, or save with "
                "checkpoint_storage_use_ocdbt=False");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!IsPickle(entry)) continue;
    throw Error(
        ErrorCode::kFile,
        fmt::format("{} is a pickle; Octavo never runs code from a model file", entry.path().filename().string()),
        "use the .safetensors file of the same model");
  }
  throw Error(ErrorCode::kFile, fmt::format("{} holds neither {} nor {}", folder.string(), kSingleName, kIndexName),
              "give a checkpoint, a folder with config.json and safetensors files, or a .gguf or llama2.c .bin file");
}

// What the index says and the file of a shard holds must be the same set.
void CheckShard(const SafetensorsFile& file, const std::string& shard, const ShardMap& map) {
  for (const StoredTensor& tensor : file.tensors()) {
    const auto listed = map.find(tensor.name);
    if (listed == map.end()) ThrowFile("{}: tensor '{}' is not in {}", file.path().string(), tensor.name, kIndexName);
    if (listed->second != shard) {
      ThrowFile("{}: tensor '{}' belongs to {} by {}", file.path().string(), tensor.name, listed->second, kIndexName);
    }
  }
}

}  // namespace

ShardMap ParseShardIndex(std::string_view text, const std::string& where) {
  const nlohmann::json index = ParseStrictJson(text, where, {.bytes = kMostIndexBytes, .depth = 8});
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) ThrowFile("{}: no object 'weight_map'", where);
  ShardMap shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) ThrowFile("{}: the shard of '{}' is not a text", where, tensor);
    const std::string name = shard.get<std::string>();
    CheckShardName(name, where);
    shards.emplace(tensor, name);
  }
  if (shards.empty()) ThrowFile("{}: lists no tensor", where);
  return shards;
}

ShardedSafetensors::ShardedSafetensors(const fs::path& folder) : folder_(folder) {
  const fs::path index = folder / kIndexName;
  ShardMap map;
  if (Exists(index)) {
    map = ParseShardIndex(ReadSmallFile(index, kMostIndexBytes), index.string());
    std::map<std::string, int64_t> shards;
    for (const auto& [tensor, shard] : map) ++shards[shard];
    for (const auto& [shard, count] : shards) {
      if (!Exists(folder / shard)) {
        throw Error(
            ErrorCode::kFile,
            fmt::format("{} lists {}, which is missing ({} tensor{})", kIndexName, shard, count, count == 1 ? "" : "s"),
            fmt::format("in {}", folder.string()));
      }
      files_.push_back(std::make_unique<const SafetensorsFile>(folder / shard));
      CheckShard(*files_.back(), shard, map);
    }
  } else {
    if (!Exists(folder / kSingleName)) FailWithoutTensors(folder);
    files_.push_back(std::make_unique<const SafetensorsFile>(folder / kSingleName));
  }
  for (const auto& file : files_) {
    for (const StoredTensor& tensor : file->tensors()) tensors_.emplace(tensor.name, &tensor);
  }
  for (const auto& [tensor, shard] : map) {
    if (!tensors_.contains(tensor)) ThrowFile("{} lists '{}' in {}, which does not hold it", kIndexName, tensor, shard);
  }
}

bool LooksLikePickle(std::span<const std::byte> bytes) {
  if (bytes.size() < 4) return false;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  return (at(0) == 'P' && at(1) == 'K' && at(2) == 3 && at(3) == 4) || (at(0) == 0x80 && at(1) >= 2 && at(1) <= 5);
}

const StoredTensor* ShardedSafetensors::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

std::string ReadSmallFile(const fs::path& path, uint64_t most) {
  const MappedFile file(path);
  if (file.bytes().size() > most) {
    ThrowFile("{}: {} bytes, at most {} are read", path.string(), file.bytes().size(), most);
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace octavo
