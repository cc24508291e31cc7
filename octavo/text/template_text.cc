#include "octavo/text/template_text.h"

#include <algorithm>

namespace octavo::text::jinja {

void Text::Append(std::string_view bytes, Marks marks) {
  if (bytes.empty()) return;
  if (marks != tail_) {
    if (!bytes_.empty()) breaks_.push_back({bytes_.size(), tail_});
    tail_ = marks;
  }
  bytes_.append(bytes);
}

void Text::Append(const Text& other) { Append(other, 0, other.size()); }

void Text::Append(const Text& other, size_t begin, size_t end) {
  if (&other == this) {
    const Text copy = other;
    Append(copy, begin, end);
    return;
  }
  const std::string_view bytes = other.bytes_;
  if (other.breaks_.empty()) {
    Append(bytes.substr(begin, end - begin), other.tail_);
    return;
  }
  for (size_t run = other.FindRun(begin); begin < end; ++run) {
    const bool last = run == other.breaks_.size();
    const size_t stop = last ? end : std::min(end, other.breaks_[run].end);
    Append(bytes.substr(begin, stop - begin), last ? other.tail_ : other.breaks_[run].marks);
    begin = stop;
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text result;
  result.Append(*this, begin, end);
  return result;
}

size_t Text::FindRun(size_t position) const {
  const auto found = std::upper_bound(breaks_.begin(), breaks_.end(), position,
                                      [](size_t value, const Break& entry) { return value < entry.end; });
  return static_cast<size_t>(found - breaks_.begin());
}

Marks Text::MarksAt(size_t position) const {
  const size_t run = FindRun(position);
  return run == breaks_.size() ? tail_ : breaks_[run].marks;
}

Marks Text::AllMarks() const {
  if (bytes_.empty()) return kFromTemplate;
  Marks all = tail_;
  for (const Break& entry : breaks_) all |= entry.marks;
  return all;
}

void Text::AddMarks(Marks marks) {
  tail_ |= marks;
  for (Break& entry : breaks_) entry.marks |= marks;
}

std::vector<Text::Run> Text::Runs() const {
  std::vector<Run> runs;
  const auto add = [&runs](size_t begin, size_t end, Marks marks) {
    if (begin == end) return;
    if (!runs.empty() && runs.back().marks == marks)
      runs.back().end = end;  // AddMarks may have made neighbours equal
    else
      runs.push_back({begin, end, marks});
  };
  size_t begin = 0;
  for (const Break& entry : breaks_) {
    add(begin, entry.end, entry.marks);
    begin = entry.end;
  }
  add(begin, bytes_.size(), tail_);
  return runs;
}

}  // namespace octavo::text::jinja
