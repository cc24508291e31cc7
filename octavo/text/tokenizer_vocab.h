// A vocabulary: token text to id and back. Used by every model of the pipeline and by the loaders. Ids may have holes;
// texts are unique. Also the hash that vocabularies and word caches share.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text {

// Ids lie in [0, kMaxVocabulary): several times the largest vocabulary in use, and little memory for a file that lies.
constexpr int32_t kMaxVocabulary = 1 << 22;

// A fast hash of bytes; not for hostile keys where collisions cost more than a few probes of a bounded table.
inline uint64_t HashBytes(const char* data, size_t size) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  uint64_t hash = size * kMultiplier;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  while (size >= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    mix(word);
    data += 8;
    size -= 8;
  }
  if (size >= 4) {
    uint32_t head;
    uint32_t tail;
    std::memcpy(&head, data, 4);
    std::memcpy(&tail, data + size - 4, 4);
    mix(static_cast<uint64_t>(head) << 32 | tail);
  } else if (size > 0) {
    const auto* p = reinterpret_cast<const unsigned char*>(data);
    mix(static_cast<uint64_t>(p[0]) << 16 | static_cast<uint64_t>(p[size / 2]) << 8 | p[size - 1]);
  }
  return hash;
}

class Vocabulary {
 public:
  Vocabulary() = default;
  // Makes room for `count` tokens.
  void Reserve(size_t count, size_t bytes);
  // Gives `token` the id; a text that is there already moves to the new id. Throws a file Error for an id out of range.
  void Add(std::string_view token, int64_t id);

  std::optional<int32_t> Find(std::string_view token) const;
  // The text of an id, or nothing for a hole. The view lives as long as the vocabulary is not changed.
  std::optional<std::string_view> Text(int32_t id) const;

  size_t count() const { return count_; }                               // tokens
  int32_t size() const { return static_cast<int32_t>(texts_.size()); }  // largest id + 1

 private:
  struct Entry {
    uint64_t begin = 0;
    uint32_t length = kHole;
  };
  static constexpr uint32_t kHole = UINT32_MAX;

  size_t Slot(std::string_view token) const;
  std::string_view View(const Entry& entry) const { return std::string_view(bytes_).substr(entry.begin, entry.length); }
  void Grow(size_t slots);

  std::string bytes_;
  std::vector<Entry> texts_;    // by id
  std::vector<int32_t> slots_;  // open addressing: id, or -1
  size_t count_ = 0;
};

}  // namespace octavo::text
