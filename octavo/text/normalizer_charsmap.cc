#include "octavo/text/normalizer_charsmap.h"

#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr size_t kMaxReplacement = 256;

// The fields of one unit of the double array.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob, std::string_view where) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof trie_bytes) ThrowFile("{}: character map of {} bytes is too short", where, blob.size());
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  blob.remove_prefix(sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size()) {
    ThrowFile("{}: character map says {} bytes of trie, {} are there", where, trie_bytes, blob.size());
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), blob.data(), trie_bytes);
  replacements_ = blob.substr(trie_bytes);
  if (!IsValidUtf8(replacements_)) ThrowFile("{}: replacements of the character map are not UTF-8", where);
  // Real ones have some ten characters; a long one would let a short text grow without bound.
  for (size_t begin = 0; begin < replacements_.size();) {
    const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    if (end - begin > kMaxReplacement) {
      ThrowFile("{}: a replacement of {} bytes in the character map, at most {} are accepted", where, end - begin,
                kMaxReplacement);
    }
    begin = end + 1;
  }
}

std::optional<std::string_view> Charsmap::Replacement(uint32_t offset) const {
  if (offset >= replacements_.size() || IsContinuation(replacements_[offset])) return std::nullopt;
  const size_t end = replacements_.find('\0', offset);
  return std::string_view(replacements_).substr(offset, end == std::string::npos ? end : end - offset);
}

std::optional<std::string_view> Charsmap::ShortestPrefix(std::string_view chunk) const {
  uint32_t node = Offset(units_[0]);
  for (char c : chunk) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    node ^= byte;
    if (node >= units_.size()) return std::nullopt;
    const uint32_t unit = units_[node];
    if (Label(unit) != byte) return std::nullopt;
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    return Replacement(Value(units_[node]));
  }
  return std::nullopt;
}

std::optional<std::string_view> Charsmap::LongestPrefix(std::string_view text, size_t& length) const {
  std::optional<std::string_view> found;
  uint32_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if (Label(unit) != byte) break;
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) break;
    if (const std::optional<std::string_view> replacement = Replacement(Value(units_[node]))) {
      found = replacement;
      length = i + 1;
    }
  }
  return found;
}

void Charsmap::CheckReachable(std::string_view where) const {
  if (!replacements_.empty() && replacements_.back() != '\0') {
    ThrowFile("{}: replacements of the character map do not end with NUL", where);
  }
  std::vector<bool> seen(units_.size());
  std::vector<uint32_t> open{0};
  seen[0] = true;
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    const uint32_t unit = units_[at];
    const uint32_t children = at ^ Offset(unit);
    if ((children | 0xFF) >= units_.size()) ThrowFile("{}: character map leaves its array at node {}", where, at);
    if (at != 0 && HasLeaf(unit) && Value(units_[children]) >= replacements_.size()) {
      ThrowFile("{}: character map names a replacement outside its text", where);
    }
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const uint32_t child = children ^ byte;
      if (Label(units_[child]) != byte || seen[child]) continue;
      seen[child] = true;
      open.push_back(child);
    }
  }
}

}  // namespace octavo::text
