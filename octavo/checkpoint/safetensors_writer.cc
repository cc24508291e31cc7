#include "octavo/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "octavo/base/check.h"
#include "octavo/base/checked.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo {
namespace {

constexpr size_t kMostHeaderBytes = 100'000'000;

std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string HeaderOf(const std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) header += fmt::format("\"__metadata__\":{}", nlohmann::json(metadata).dump());
  std::set<std::string> names;
  uint64_t at = 0;
  for (const TensorEntry& entry : entries) {
    if (!names.insert(entry.name).second || entry.name == "__metadata__") {
      ThrowUsage("tensor '{}' cannot be written: the name is taken", entry.name);
    }
    const uint64_t end = at + entry.bytes();
    header +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", header.size() > 1 ? "," : "",
                    Quoted(entry.name), entry.type, fmt::join(entry.shape, ","), at, end);
    at = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMostHeaderBytes) {
    ThrowUsage("{} tensors need a header of {} bytes, the format allows {}", entries.size(), header.size(),
               kMostHeaderBytes);
  }
  return header;
}

}  // namespace

uint64_t TensorEntry::bytes() const {
  const std::optional<int64_t> count = CheckedProduct(shape);
  const std::optional<int64_t> bits = count ? CheckedMul(*count, int64_t{SafetensorsBits(type)}) : std::nullopt;
  if (!bits || *bits % 8 != 0) {
    ThrowUsage("tensor '{}' of {} [{}] does not fill whole bytes", name, type, fmt::join(shape, ", "));
  }
  return static_cast<uint64_t>(*bits / 8);
}

SafetensorsWriter::SafetensorsWriter(FileWriter file, std::vector<TensorEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : file_(std::move(file)), entries_(std::move(entries)) {
  const std::string header = HeaderOf(entries_, metadata);
  const uint64_t length = header.size();
  const auto length_bytes = std::as_bytes(std::span(&length, 1));
  file_.Write(length_bytes);
  file_.Write(header);
  Digest digest;
  digest.Update(length_bytes);
  digest.Update(std::as_bytes(std::span(header)));
  header_digest_ = digest.Hex();
  if (!entries_.empty()) left_ = entries_[0].bytes();
  FinishTensors();
}

// Closes the tensors that have all their bytes; several when some are empty.
void SafetensorsWriter::FinishTensors() {
  while (digests_.size() < entries_.size() && left_ == 0) {
    digests_.push_back(digest_.Hex());
    digest_ = Digest();
    if (digests_.size() < entries_.size()) left_ = entries_[digests_.size()].bytes();
  }
}

void SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    OCTAVO_CHECK(digests_.size() < entries_.size());
    const std::span<const std::byte> now = bytes.first(std::min<uint64_t>(bytes.size(), left_));
    file_.Write(now);
    digest_.Update(now);
    left_ -= now.size();
    bytes = bytes.subspan(now.size());
    FinishTensors();
  }
}

void SafetensorsWriter::Close() {
  OCTAVO_CHECK(digests_.size() == entries_.size());
  file_bytes_ = file_.size();
  file_.Close();
}

}  // namespace octavo
