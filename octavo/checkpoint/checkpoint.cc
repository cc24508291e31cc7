#include "octavo/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/base/nearest.h"
#include "octavo/checkpoint/safetensors_writer.h"
#include "octavo/version.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifestName = "manifest.json";

// The tensors of one group, cut into files. Wide types first, so that all are aligned; then by name.
std::vector<NamedTensors> CutIntoFiles(const NamedTensors& tensors, uint64_t file_bytes) {
  NamedTensors sorted = tensors;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const int64_t wide_a = SizeOf(a.second.dtype()), wide_b = SizeOf(b.second.dtype());
    return wide_a != wide_b ? wide_a > wide_b : a.first < b.first;
  });
  std::vector<NamedTensors> files;
  uint64_t size = 0;
  for (auto& item : sorted) {
    const auto bytes = static_cast<uint64_t>(item.second.bytes());
    if (files.empty() || size + bytes > file_bytes) {
      files.emplace_back();
      size = 0;
    }
    size += bytes;
    files.back().push_back(std::move(item));
  }
  return files;
}

void WriteGroup(FolderPublisher& folder, const std::string& group, const NamedTensors& tensors, uint64_t file_bytes,
                Manifest& manifest) {
  const std::vector<NamedTensors> files = CutIntoFiles(tensors, file_bytes);
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("{}-{:05}-of-{:05}.safetensors", group, i + 1, files.size());
    std::vector<TensorEntry> entries;
    for (const auto& [tensor_name, tensor] : files[i]) {
      const Shape& shape = tensor.shape();
      entries.push_back({tensor_name, std::string(SafetensorsType(tensor.dtype())), {shape.begin(), shape.end()}});
    }
    SafetensorsWriter writer(folder.Create(name), entries, {{"format", "octavo"}});
    for (const auto& item : files[i]) {
      const Tensor packed = item.second.Contiguous();
      writer.Write({packed.RawData(), static_cast<size_t>(packed.bytes())});
    }
    writer.Close();
    manifest.files[name] = {writer.file_bytes(), writer.header_digest()};
    for (size_t t = 0; t < entries.size(); ++t) {
      if (manifest.tensors.contains(entries[t].name)) ThrowUsage("tensor '{}' is there twice", entries[t].name);
      manifest.tensors[entries[t].name] = {name, entries[t].type, entries[t].shape, writer.digests()[t]};
    }
  }
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The digest of the length and the header, which say where everything lies.
std::string HeaderDigest(std::span<const std::byte> file) {
  uint64_t length = 0;
  if (file.size() >= 8) std::memcpy(&length, file.data(), 8);
  return DigestHex(file.first(std::min<uint64_t>(file.size(), 8 + std::min<uint64_t>(length, file.size()))));
}

}  // namespace

WrittenCheckpoint WriteCheckpoint(const fs::path& folder, const CheckpointContent& content,
                                  const WriteCheckpointOptions& options) {
  Manifest manifest;
  manifest.kind = content.kind;
  manifest.step = content.step;
  manifest.producer = fmt::format("octavo {}", OCTAVO_VERSION);
  manifest.config = content.config;
  manifest.recipe = content.recipe;
  manifest.data_state = content.data_state;
  manifest.recipe_name = content.recipe_name;
  manifest.recipe_mixed = content.recipe_mixed;
  manifest.recipe_options = content.recipe_options;
  FolderPublisher publisher(folder, options.replace, options.fault);
  WriteGroup(publisher, "model", content.parameters, options.file_bytes, manifest);
  WriteGroup(publisher, "optimizer", content.optimizer, options.file_bytes, manifest);
  WriteGroup(publisher, "state", content.state, options.file_bytes, manifest);
  const std::string text = ManifestText(manifest);
  publisher.WriteFile(kManifestName, text);
  publisher.Publish();
  WrittenCheckpoint written{text.size(), manifest.Bits()};
  for (const auto& item : manifest.files) written.bytes += item.second.bytes;
  return written;
}

bool IsCheckpoint(const fs::path& folder) {
  return fs::is_regular_file(folder / kManifestName) && !fs::exists(folder / "config.json");
}

Checkpoint::Checkpoint(fs::path folder) : folder_(std::move(folder)) {
  if (!fs::is_regular_file(folder_ / kManifestName)) {
    throw Error(ErrorCode::kFile, fmt::format("{} is not a checkpoint", folder_.string()),
                "expected a folder with manifest.json and safetensors files");
  }
  const MappedFile text(folder_ / kManifestName);
  manifest_ = ParseManifest(TextOf(text.bytes()), (folder_ / kManifestName).string());
  size_t found = 0;
  for (const auto& [name, listed] : manifest_.files) {
    const fs::path path = folder_ / name;
    if (!fs::is_regular_file(path)) ThrowFile("{} is missing; manifest.json lists it", path.string());
    const MappedFile file(path);
    if (file.bytes().size() != listed.bytes) {
      ThrowFile("{} has {} bytes, manifest.json says {}", path.string(), file.bytes().size(), listed.bytes);
    }
    if (HeaderDigest(file.bytes()) != listed.header_digest) {
      ThrowFile("{}: the header does not match its checksum", path.string());
    }
    files_[name] = std::make_unique<SafetensorsFile>(path);
    found += files_[name]->tensors().size();
  }
  for (const auto& [name, tensor] : manifest_.tensors) Find(name, tensor);
  if (found != manifest_.tensors.size()) {
    ThrowFile("{}: its files hold {} tensors, manifest.json lists {}", folder_.string(), found,
              manifest_.tensors.size());
  }
}

const StoredTensor& Checkpoint::Find(const std::string& name, const ManifestTensor& tensor) const {
  const StoredTensor& stored = files_.at(tensor.file)->At(name);
  if (stored.type != tensor.type || stored.shape != tensor.shape) {
    ThrowFile("{}: tensor '{}' is {} [{}], manifest.json says {} [{}]", (folder_ / tensor.file).string(), name,
              stored.type, fmt::join(stored.shape, ", "), tensor.type, fmt::join(tensor.shape, ", "));
  }
  return stored;
}

void Checkpoint::CheckDigest(const std::string& name, const ManifestTensor& tensor,
                             std::span<const std::byte> bytes) const {
  const std::string found = DigestHex(bytes);
  if (found == tensor.digest) return;
  throw Error(ErrorCode::kFile,
              fmt::format("{}: tensor '{}' bytes [0, {}) do not match its checksum; written {}…, read {}…",
                          (folder_ / tensor.file).string(), name, bytes.size(), tensor.digest.substr(0, 8),
                          found.substr(0, 8)));
}

Tensor Checkpoint::Load(std::string_view name) const {
  const auto listed = manifest_.tensors.find(std::string(name));
  if (listed == manifest_.tensors.end()) {
    std::vector<std::string_view> known;
    for (const auto& item : manifest_.tensors) known.push_back(item.first);
    throw Error(ErrorCode::kFile, fmt::format("{}: no tensor '{}'", folder_.string(), name),
                fmt::format("nearest: {}", fmt::join(NearestNames(name, known, 3), ", ")));
  }
  const StoredTensor& stored = Find(listed->first, listed->second);
  if (stored.packed) ThrowFile("{}: tensor '{}' has elements that share bytes", folder_.string(), name);
  // The copy is what is checked and used: the file may change under a mapping.
  Tensor tensor = Tensor::Empty(Shape(stored.shape), stored.dtype);
  if (!stored.bytes.empty()) std::memcpy(tensor.MutableRawData(), stored.bytes.data(), stored.bytes.size());
  ReleaseMapped(stored.bytes);
  CheckDigest(listed->first, listed->second, {tensor.RawData(), stored.bytes.size()});
  return tensor;
}

std::map<std::string, Tensor> Checkpoint::LoadAll(std::string_view prefix) const {
  std::map<std::string, Tensor> tensors;
  for (const auto& item : manifest_.tensors) {
    if (item.first.starts_with(prefix)) tensors[item.first] = Load(item.first);
  }
  return tensors;
}

void Checkpoint::Verify() const {
  for (const auto& [name, tensor] : manifest_.tensors) {
    const std::span<const std::byte> bytes = Find(name, tensor).bytes;
    CheckDigest(name, tensor, bytes);
    ReleaseMapped(bytes);
  }
  for (const auto& item : manifest_.carried) LoadCarried(item.first);
}

std::string Checkpoint::LoadCarried(const std::string& name) const {
  const fs::path path = folder_ / name;
  const auto listed = manifest_.carried.find(name);
  if (listed == manifest_.carried.end()) ThrowFile("{}: manifest.json does not list it", path.string());
  if (!fs::is_regular_file(path)) ThrowFile("{} is missing; manifest.json lists it", path.string());
  const MappedFile file(path);
  if (file.bytes().size() != listed->second.bytes) {
    ThrowFile("{} has {} bytes, manifest.json says {}", path.string(), file.bytes().size(), listed->second.bytes);
  }
  const std::string text(TextOf(file.bytes()));
  if (DigestHex(std::as_bytes(std::span(text))) != listed->second.digest) {
    ThrowFile("{} does not match its checksum", path.string());
  }
  return text;
}

}  // namespace octavo
