#include "octavo/data/document_index.h"

#include <algorithm>
#include <utility>

#include "octavo/base/check.h"

namespace octavo::data {

DocumentIndex::DocumentIndex(std::string_view text, std::string separator, bool lines)
    : DocumentIndex(text, std::move(separator), lines, kMostPlaces) {}

DocumentIndex::DocumentIndex(std::string_view text, std::string separator, bool lines, size_t most_places)
    : text_(text), separator_(lines ? "\n" : std::move(separator)), lines_(lines), most_places_(most_places) {
  Place place, before;
  while (Next(place)) {
    if (size_ % stride_ == 0) {
      if (places_.size() == most_places_) {
        for (size_t i = 0; 2 * i < places_.size(); ++i) places_[i] = places_[2 * i];
        places_.resize((places_.size() + 1) / 2);
        stride_ *= 2;
      }
      if (size_ % stride_ == 0) places_.push_back(before);
    }
    ++size_;
    before = place;
  }
}

bool DocumentIndex::IsBlank(size_t begin, size_t end) const {
  return text_.substr(begin, end - begin).find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Where a document that is too long is cut: behind the last line's end in reach, else the last space, else between
// two characters.
size_t DocumentIndex::CutAt(size_t begin, size_t end) const {
  if (lines_ || end - begin <= kMostUnitBytes) return end;
  const std::string_view reach = text_.substr(begin, kMostUnitBytes);
  for (const char mark : {'\n', ' '}) {
    const size_t found = reach.rfind(mark);
    if (found != std::string_view::npos && found > 0) return begin + found + 1;
  }
  size_t cut = begin + kMostUnitBytes;
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text_[cut]) & 0xC0) == 0x80; ++i) --cut;
  return cut;
}

std::optional<DocumentRange> DocumentIndex::Next(Place& place) const {
  while (place.at < text_.size()) {
    const size_t begin = place.at, rest = text_.size() - begin;
    // A separator further off than a unit reaches makes no difference, since the document is cut before it; so a long
    // text is not searched to its end for every unit.
    const size_t reach = lines_ ? rest : std::min(rest, kMostUnitBytes + 1);
    const size_t found =
        separator_.empty() ? std::string_view::npos : text_.substr(begin, reach + separator_.size()).find(separator_);
    const bool separated = found != std::string_view::npos;
    const size_t end = begin + (separated ? found : reach);
    DocumentRange range{begin, CutAt(begin, end), place.first, true};
    range.last = range.end == end && (separated || end == text_.size());
    place = {range.end + (range.last && separated ? separator_.size() : 0), range.last};
    if (range.first && range.last && !separator_.empty()) TrimLineEnds(range);
    if (!(range.first && range.last) || !IsBlank(range.begin, range.end)) return range;
  }
  return std::nullopt;
}

// Line ends beside a separator belong to it.
void DocumentIndex::TrimLineEnds(DocumentRange& range) const {
  const auto is_end = [&](size_t at) { return text_[at] == '\n' || text_[at] == '\r'; };
  while (range.begin < range.end && is_end(range.begin)) ++range.begin;
  while (range.end > range.begin && is_end(range.end - 1)) --range.end;
}

DocumentRange DocumentIndex::At(int64_t index) const {
  OCTAVO_CHECK(index >= 0 && index < size_);
  Place place = places_[static_cast<size_t>(index / stride_)];
  for (int64_t skip = index % stride_; skip > 0; --skip) Next(place);
  return *Next(place);
}

}  // namespace octavo::data
