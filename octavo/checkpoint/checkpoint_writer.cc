#include "octavo/checkpoint/checkpoint_writer.h"

#include "octavo/base/check.h"
#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/version.h"

namespace octavo {
namespace {

constexpr uint64_t kTensorsOfParameter = 3;

}  // namespace

CheckpointWriter::CheckpointWriter(const std::filesystem::path& folder, std::vector<PlannedParameter> planned,
                                   const WriteCheckpointOptions& options)
    : folder_(folder, options.replace, options.fault), planned_(std::move(planned)) {
  uint64_t size = 0;
  for (const PlannedParameter& parameter : planned_) {
    const auto bytes = static_cast<uint64_t>(parameter.bytes);
    if (files_ == 0 || size + bytes > options.file_bytes) ++files_, size = 0;
    size += bytes;
    file_of_.push_back(files_ - 1);
  }
  manifest_.producer = fmt::format("octavo {}", OCTAVO_VERSION);
}

void CheckpointWriter::EndFile() {
  if (!stream_) return;
  stream_->Close();
  manifest_.files[file_name_] = {stream_->file_bytes(), stream_->header_digest()};
  bytes_ += stream_->file_bytes();
  stream_.reset();
}

void CheckpointWriter::StartFile(size_t file) {
  EndFile();
  file_ = file;
  file_name_ = fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files_);
  uint64_t room = 0;
  for (size_t i = 0; i < planned_.size(); ++i) {
    if (file_of_[i] == file) room += kTensorsOfParameter * SafetensorsStream::HeaderRoom(planned_[i].name);
  }
  stream_.emplace(folder_.Create(file_name_), room, std::map<std::string, std::string>{{"format", "octavo"}});
}

void CheckpointWriter::Add(const std::string& parameter, const std::vector<std::pair<TensorEntry, Tensor>>& tensors) {
  OCTAVO_CHECK(next_ < planned_.size() && planned_[next_].name == parameter && tensors.size() <= kTensorsOfParameter);
  const size_t file = file_of_[next_++];
  if (!stream_ || file != file_) StartFile(file);
  for (const auto& item : tensors) {
    const TensorEntry& entry = item.first;
    const Tensor packed = item.second.Contiguous();
    const std::string digest = stream_->Add(entry, {packed.RawData(), static_cast<size_t>(packed.bytes())});
    if (manifest_.tensors.contains(entry.name)) ThrowUsage("tensor '{}' is there twice", entry.name);
    manifest_.tensors[entry.name] = {file_name_, entry.type, entry.shape, digest};
  }
}

void CheckpointWriter::AddState(const NamedTensors& state) {
  if (state.empty()) return;
  const std::string name = "state-00001-of-00001.safetensors";
  std::vector<TensorEntry> entries;
  for (const auto& item : state) {
    const Shape& shape = item.second.shape();
    entries.push_back({item.first, std::string(SafetensorsType(item.second.dtype())), {shape.begin(), shape.end()}});
  }
  SafetensorsWriter writer(folder_.Create(name), entries, {{"format", "octavo"}});
  for (const auto& item : state) {
    const Tensor packed = item.second.Contiguous();
    writer.Write({packed.RawData(), static_cast<size_t>(packed.bytes())});
  }
  writer.Close();
  manifest_.files[name] = {writer.file_bytes(), writer.header_digest()};
  bytes_ += writer.file_bytes();
  for (size_t i = 0; i < entries.size(); ++i) {
    manifest_.tensors[entries[i].name] = {name, entries[i].type, entries[i].shape, writer.digests()[i]};
  }
}

void CheckpointWriter::AddCarried(const std::string& name, std::string_view text) {
  folder_.WriteFile(name, text);
  manifest_.carried[name] = {text.size(), DigestHex(std::as_bytes(std::span(text)))};
  bytes_ += text.size();
}

void CheckpointWriter::Close() {
  OCTAVO_CHECK(next_ == planned_.size());
  EndFile();
  const std::string text = ManifestText(manifest_);
  folder_.WriteFile("manifest.json", text);
  bytes_ += text.size();
}

}  // namespace octavo
