// A text under normalization that remembers, for each of its bytes, which bytes of the original it stands for.
// Normalizers and pre-tokenizers rewrite and cut it; the offsets of tokens come from it. With tracking off only the
// text is kept, which is what encoding without offsets uses. Semantics of alignment follow the Hugging Face library,
// whose offsets are the reference.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/unicode_normalize.h"

namespace octavo::text {

// Half-open range of bytes or characters.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Span&) const = default;
};

class AlignedText {
 public:
  // All of `text`, valid UTF-8, aligned with itself.
  AlignedText(std::string_view text, bool tracked);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  bool tracked() const { return tracked_; }

  // Where the piece starts in the original.
  uint32_t original_begin() const { return base_; }

  // The bytes of the original that [begin, end) of the text stands for. An empty range gives itself, like the
  // reference.
  Span Original(uint32_t begin, uint32_t end) const;

  // The ranges of the text whose every byte stands for bytes of one of `ranges` of the original. Tracked texts only.
  std::vector<Span> RangesOf(std::span<const Span> ranges) const;

  // The piece [begin, end).
  AlignedText Slice(size_t begin, size_t end) const;

  // Replaces the whole text: `removed` characters vanish at the front, then each change applies in order.
  void Transform(std::span<const CharChange> changes, size_t removed);

  // Replaces the whole of a text that is not tracked.
  void SetUntracked(std::string text);

  // Replaces each match by `content`. Matches ascend and do not overlap.
  void Replace(std::span<const Span> matches, std::string_view content);

  // Puts `prefix` before a text that is not empty, aligned with its first character.
  void Prepend(std::string_view prefix);

  // Keeps the characters for which keep(c) holds.
  template <typename Keep>
  void Filter(Keep keep);

  // Replaces each character by map(c).
  template <typename Map>
  void Map1(Map map);

 private:
  AlignedText() = default;

  std::string text_;
  std::vector<Span> alignment_;  // one per byte of text_, in bytes of the original; empty when not tracked
  uint32_t base_ = 0;
  bool tracked_ = true;
};

// Appends the characters of valid UTF-8 as changes that keep everything.
template <typename Visit>
void ForEachChar(std::string_view text, Visit visit);

}  // namespace octavo::text

#include "octavo/text/aligned_text_inl.h"
