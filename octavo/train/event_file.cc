#include "octavo/train/event_file.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/train/crc32c.h"

namespace octavo::train {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
std::string LittleEndian(T value) {
  std::string bytes(sizeof(T), '\0');
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string Key(uint32_t field, WireType type) { return Varint(field << 3 | type); }
std::string Text(uint32_t field, std::string_view text) {
  return Key(field, kBytes) + Varint(text.size()) + std::string(text);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string EventHead(double wall_time, int64_t step) {
  std::string event = Key(1, kFixed64) + LittleEndian(wall_time);
  if (step != 0) event += Key(2, kVarint) + Varint(static_cast<uint64_t>(step));
  return event;
}

double WallTime() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "host";
}

}  // namespace

std::string EventRecord(std::string_view event) {
  const std::string length = LittleEndian<uint64_t>(event.size());
  return length + LittleEndian(MaskedCrc32c(length)) + std::string(event) + LittleEndian(MaskedCrc32c(event));
}

std::string VersionEvent(double wall_time) { return EventHead(wall_time, 0) + Text(3, "brain.Event:2"); }

std::string ScalarEvent(double wall_time, int64_t step, const Scalars& scalars) {
  // Summary: repeated value = 1; Value: tag = 1, simple_value = 2.
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += Text(1, Text(1, tag) + Key(2, kFixed32) + LittleEndian(static_cast<float>(value)));
  }
  return EventHead(wall_time, step) + Text(5, summary);
}

std::string RestartEvent(double wall_time, int64_t step) {
  return EventHead(wall_time, step) + Text(7, Key(1, kVarint) + Varint(1));  // SessionLog.status = START
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const double now = WallTime();
  path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<int64_t>(now), HostName(), getpid());
  file_ = std::fopen(path_.c_str(), "ab");
  if (file_ == nullptr) {
    throw Error(ErrorCode::kJob, fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)),
                "enable_tensorboard=false does without it");
  }
  Append(VersionEvent(now));
  if (first_step > 0) Append(RestartEvent(now, first_step));
}

EventFile::~EventFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void EventFile::Add(int64_t step, const Scalars& scalars) { Append(ScalarEvent(WallTime(), step, scalars)); }

void EventFile::Append(const std::string& event) {
  const std::string record = EventRecord(event);
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() || std::fflush(file_) != 0) {
    throw Error(ErrorCode::kJob, fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  }
}

}  // namespace octavo::train
