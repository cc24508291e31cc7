// SentencePiece's precompiled character map: a double-array trie from byte strings to offsets into a blob of
// replacements. Used by the Precompiled normalizer and by the check of .model files before their library sees them.
// Every step is bounds checked: the blob comes from a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text {

class Charsmap {
 public:
  // Throws a file Error for a blob whose sizes or text do not fit. `where` names it in the message.
  Charsmap(std::string_view blob, std::string_view where);

  // The replacement of the shortest prefix of `chunk` that the map knows.
  std::optional<std::string_view> ShortestPrefix(std::string_view chunk) const;

  // The replacement of the longest one, and its length in bytes.
  std::optional<std::string_view> LongestPrefix(std::string_view text, size_t& length) const;

  // Throws a file Error unless every node that can be reached stays inside the arrays: what a reader without bounds
  // checks needs.
  void CheckReachable(std::string_view where) const;

 private:
  std::optional<std::string_view> Replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace octavo::text
