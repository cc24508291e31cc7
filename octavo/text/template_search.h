// Substring search in linear time, whatever the texts: the searches of the standard library are quadratic on runs of
// equal characters. Used by every string operation of the template engine that looks for a part.
#pragma once

#include <cstddef>
#include <string_view>

namespace octavo::text::jinja {

// Byte offset of the first occurrence at or behind `from`, npos when there is none.
size_t FindPart(std::string_view text, std::string_view part, size_t from = 0);
// Byte offset of the last occurrence.
size_t FindLastPart(std::string_view text, std::string_view part);

}  // namespace octavo::text::jinja
