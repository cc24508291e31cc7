// The member templates of AlignedText. Included by aligned_text.h only.
#pragma once

#include "octavo/text/aligned_text.h"
#include "octavo/text/unicode.h"

namespace octavo::text {

template <typename Visit>
void ForEachChar(std::string_view text, Visit visit) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) visit(NextChar(at));
}

template <typename Keep>
void AlignedText::Filter(Keep keep) {
  std::vector<CharChange> changes;
  size_t removed_at_start = 0;
  bool any = false;
  ForEachChar(text_, [&](char32_t c) {
    if (keep(c)) {
      changes.push_back({c, 0});
    } else {
      any = true;
      if (changes.empty()) {
        ++removed_at_start;
      } else {
        --changes.back().change;
      }
    }
  });
  if (any) Transform(changes, removed_at_start);
}

template <typename Map>
void AlignedText::Map1(Map map) {
  std::vector<CharChange> changes;
  bool any = false;
  ForEachChar(text_, [&](char32_t c) {
    const char32_t mapped = map(c);
    any = any || mapped != c;
    changes.push_back({mapped, 0});
  });
  if (any) Transform(changes, 0);
}

}  // namespace octavo::text
