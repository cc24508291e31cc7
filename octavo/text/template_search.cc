#include "octavo/text/template_search.h"

#include <string.h>

#include <cstdint>
#include <vector>

namespace octavo::text::jinja {

size_t FindPart(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // The C library's memmem is linear for long parts, and bounded by 256 times the text for short ones.
  const void* const found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLastPart(std::string_view text, std::string_view part) {
  constexpr size_t kShort = 64;
  if (part.size() <= kShort) return text.rfind(part);
  if (part.size() > text.size()) return std::string_view::npos;
  // Knuth, Morris and Pratt from the right: fallback[i] is the longest proper border of the last i bytes of `part`.
  const size_t size = part.size();
  const auto at = [&](size_t i) { return part[size - 1 - i]; };
  std::vector<uint32_t> fallback(size + 1, 0);
  for (size_t i = 1, border = 0; i < size; ++i) {
    while (border > 0 && at(i) != at(border)) border = fallback[border];
    if (at(i) == at(border)) ++border;
    fallback[i + 1] = static_cast<uint32_t>(border);
  }
  size_t matched = 0;
  for (size_t i = text.size(); i-- > 0;) {
    while (matched > 0 && text[i] != at(matched)) matched = fallback[matched];
    if (text[i] == at(matched)) ++matched;
    if (matched == size) return i;
  }
  return std::string_view::npos;
}

}  // namespace octavo::text::jinja
