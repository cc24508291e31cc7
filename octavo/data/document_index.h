// Where the documents of a text are. Built by one pass over the bytes; document i is then found without reading what is
// before it. Memory is bounded: a large file keeps the place of every 2nd, 4th, … document and steps from there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::data {

// A stretch of bytes. A document longer than kMostUnitBytes is several of them; the flags say whether the document
// begins and ends here.
struct DocumentRange {
  size_t begin = 0, end = 0;
  bool first = true, last = true;
};

// Longer documents of plain text are cut at a line's end, so that tokenizing one needs little memory and shuffling has
// something to shuffle.
inline constexpr size_t kMostUnitBytes = 16 << 10;

class DocumentIndex {
 public:
  // Documents of plain text stand between separators; an empty separator makes the whole text one document. `lines`:
  // every line is a document and is never cut (JSON lines). Blank documents do not count.
  DocumentIndex(std::string_view text, std::string separator, bool lines);

  int64_t size() const { return size_; }
  DocumentRange At(int64_t index) const;

  // At most so many places are kept; fewer only for tests.
  static constexpr size_t kMostPlaces = size_t{1} << 20;
  DocumentIndex(std::string_view text, std::string separator, bool lines, size_t most_places);

 private:
  struct Place {
    size_t at = 0;
    bool first = true;
  };

  // The next document at or after `place`, which moves behind it; nothing at the end.
  std::optional<DocumentRange> Next(Place& place) const;
  size_t CutAt(size_t begin, size_t end) const;
  void TrimLineEnds(DocumentRange& range) const;
  bool IsBlank(size_t begin, size_t end) const;

  std::string_view text_;
  std::string separator_;
  bool lines_;
  size_t most_places_;
  std::vector<Place> places_;
  int64_t size_ = 0, stride_ = 1;
};

}  // namespace octavo::data
