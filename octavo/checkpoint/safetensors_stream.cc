#include "octavo/checkpoint/safetensors_stream.h"

#include <nlohmann/json.hpp>

#include "octavo/base/check.h"
#include "octavo/base/digest.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr uint64_t kMostHeaderBytes = 100'000'000;

}  // namespace

SafetensorsStream::SafetensorsStream(FileWriter file, uint64_t room, const std::map<std::string, std::string>& metadata)
    : file_(std::move(file)), header_(fmt::format("{{\"__metadata__\":{}", nlohmann::json(metadata).dump())) {
  room_ = (room + header_.size() + 1 + 7) / 8 * 8;
  if (room_ > kMostHeaderBytes) ThrowUsage("a header of {} bytes; the format allows {}", room_, kMostHeaderBytes);
  file_.Write(std::string(8 + room_, ' '));
}

std::string SafetensorsStream::Add(const TensorEntry& entry, std::span<const std::byte> bytes) {
  OCTAVO_CHECK(names_.insert(entry.name).second && entry.bytes() == bytes.size());
  header_ +=
      fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", nlohmann::json(entry.name).dump(),
                  entry.type, fmt::join(entry.shape, ","), at_, at_ + bytes.size());
  at_ += bytes.size();
  file_.Write(bytes);
  return DigestHex(bytes);
}

void SafetensorsStream::Close() {
  header_ += '}';
  OCTAVO_CHECK(header_.size() <= room_);
  header_.resize(room_, ' ');
  const uint64_t length = room_;
  std::string text(reinterpret_cast<const char*>(&length), sizeof(length));
  text += header_;
  const auto bytes = std::as_bytes(std::span(text));
  file_.Overwrite(0, bytes);
  header_digest_ = DigestHex(bytes);
  file_bytes_ = file_.size();
  file_.Close();
}

}  // namespace octavo
