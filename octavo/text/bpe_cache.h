// A bounded cache from words to their tokens: one cache line a word, one place for each hash, the newer word wins. Used
// by bpe.cc; it never grows and never gives a wrong answer, because the whole word is compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "octavo/text/tokenizer_vocab.h"

namespace octavo::text {

class WordCache {
 public:
  static constexpr size_t kMaxWord = 22;  // bytes
  static constexpr size_t kMaxTokens = 8;
  static constexpr size_t kSlots = size_t{1} << 16;  // 4 MiB

  struct alignas(64) Line {
    uint64_t hash = 0;
    uint8_t length = 0;  // 0: empty
    uint8_t count = 0;
    char word[kMaxWord];
    int32_t ids[kMaxTokens];
  };

  // The line of a word with this hash. Lines exist from the first call on.
  Line& At(uint64_t hash) {
    if (lines_.empty()) lines_.resize(kSlots);
    return lines_[(hash ^ hash >> 17) & (kSlots - 1)];
  }

  static bool Holds(const Line& line, uint64_t hash, std::string_view word) {
    return line.hash == hash && line.length == word.size() && std::memcmp(line.word, word.data(), word.size()) == 0;
  }

  static void Fill(Line& line, uint64_t hash, std::string_view word, const int32_t* ids, size_t count) {
    line.hash = hash;
    line.length = static_cast<uint8_t>(word.size());
    line.count = static_cast<uint8_t>(count);
    std::copy(word.begin(), word.end(), line.word);
    std::copy_n(ids, count, line.ids);  // a word of unknown characters may have no ids, and `ids` be null
  }

 private:
  std::vector<Line> lines_;
};
static_assert(sizeof(WordCache::Line) == 64);

}  // namespace octavo::text
