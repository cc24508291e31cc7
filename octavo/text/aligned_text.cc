#include "octavo/text/aligned_text.h"

#include <algorithm>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

// A tokenizer that blows its text up, step after step, ends in an error instead of all memory.
void CheckGrowth(size_t before, size_t after) {
  constexpr size_t kAlwaysFine = size_t{64} << 20;
  constexpr size_t kNeverFine = size_t{1} << 31;
  if (after <= kAlwaysFine || (after <= before * 4 && after < kNeverFine)) return;
  throw Error(ErrorCode::kUsage, fmt::format("normalization makes {} bytes of text out of {}", after, before),
              "the normalizer of the tokenizer is broken, or the text is too long");
}

}  // namespace

AlignedText::AlignedText(std::string_view text, bool tracked) : text_(text), tracked_(tracked) {
  if (!tracked) return;
  alignment_.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto length = static_cast<size_t>(LeadLength(static_cast<unsigned char>(text[at])));
    const Span span{static_cast<uint32_t>(at), static_cast<uint32_t>(at + length)};
    alignment_.insert(alignment_.end(), length, span);
    at += length;
  }
}

Span AlignedText::Original(uint32_t begin, uint32_t end) const {
  if (begin >= end || end > alignment_.size()) return {base_ + begin, base_ + end};
  return {alignment_[begin].begin, alignment_[end - 1].end};
}

std::vector<Span> AlignedText::RangesOf(std::span<const Span> ranges) const {
  std::vector<Span> found;
  const Span* open = nullptr;  // the range of the original that the last one found lies in
  for (uint32_t at = 0; at < alignment_.size(); ++at) {
    const Span byte = alignment_[at];
    const auto after = std::upper_bound(ranges.begin(), ranges.end(), byte.begin,
                                        [](uint32_t value, const Span& range) { return value < range.begin; });
    if (after == ranges.begin() || byte.end > (after - 1)->end) continue;
    const Span* range = &*(after - 1);
    if (!found.empty() && found.back().end == at && range == open) {
      ++found.back().end;
    } else {
      found.push_back({at, at + 1});
    }
    open = range;
  }
  return found;
}

AlignedText AlignedText::Slice(size_t begin, size_t end) const {
  OCTAVO_CHECK(begin <= end && end <= text_.size());
  AlignedText piece;
  piece.tracked_ = tracked_;
  piece.text_ = text_.substr(begin, end - begin);
  if (tracked_) {
    const auto first = alignment_.begin();
    piece.alignment_.assign(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end));
    piece.base_ = begin < end ? alignment_[begin].begin : base_ + static_cast<uint32_t>(begin);
  } else {
    // Only whether a piece starts the original is asked then.
    piece.base_ = base_ + static_cast<uint32_t>(begin);
  }
  return piece;
}

void AlignedText::Transform(std::span<const CharChange> changes, size_t removed) {
  std::string text;
  text.reserve(text_.size() + 8);
  std::vector<Span> alignment;
  if (tracked_) alignment.reserve(text_.size() + 8);
  size_t at = 0;  // in the old text
  const auto step = [&] {
    if (at < text_.size()) at += static_cast<size_t>(LeadLength(static_cast<unsigned char>(text_[at])));
  };
  for (size_t i = 0; i < removed; ++i) step();
  CheckGrowth(text_.size(), changes.size());
  for (const CharChange& change : changes) {
    AppendUtf8(change.c, text);
    if (tracked_) {
      Span span{base_, base_};
      if (change.change > 0) {
        if (at > 0) span = alignment_[at - 1];
      } else if (!alignment_.empty()) {
        span = alignment_[std::min(at, alignment_.size() - 1)];
      }
      alignment.insert(alignment.end(), static_cast<size_t>(Utf8Length(change.c)), span);
    }
    if (change.change > 0) continue;
    for (int i = 0; i <= -change.change; ++i) step();
  }
  text_ = std::move(text);
  alignment_ = std::move(alignment);
}

void AlignedText::SetUntracked(std::string text) {
  OCTAVO_CHECK(!tracked_);
  text_ = std::move(text);
}

void AlignedText::Replace(std::span<const Span> matches, std::string_view content) {
  if (matches.empty()) return;
  CheckGrowth(text_.size(), text_.size() + matches.size() * content.size());
  std::string text;
  text.reserve(text_.size() + matches.size() * content.size());
  std::vector<Span> alignment;
  if (tracked_) alignment.reserve(text.capacity());
  size_t at = 0;
  const auto copy = [&](size_t begin, size_t end) {
    text.append(text_, begin, end - begin);
    if (!tracked_) return;
    const auto first = alignment_.begin();
    alignment.insert(alignment.end(), first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end));
  };
  for (const Span& match : matches) {
    copy(at, match.begin);
    text.append(content);
    if (tracked_) {
      // New text counts as inserted after the last byte that it replaces.
      const Span span = match.end > 0 ? alignment_[match.end - 1] : Span{base_, base_};
      alignment.insert(alignment.end(), content.size(), span);
    }
    at = match.end;
  }
  copy(at, text_.size());
  text_ = std::move(text);
  alignment_ = std::move(alignment);
}

void AlignedText::Prepend(std::string_view prefix) {
  if (text_.empty() || prefix.empty()) return;
  const auto first = static_cast<size_t>(LeadLength(static_cast<unsigned char>(text_[0])));
  text_.insert(0, prefix);
  if (!tracked_) return;
  // The first inserted character replaces the old first one, the others follow it: all stand for it.
  const Span span = alignment_[first - 1];
  std::fill(alignment_.begin(), alignment_.begin() + static_cast<ptrdiff_t>(first), span);
  alignment_.insert(alignment_.begin(), prefix.size(), span);
}

}  // namespace octavo::text
