// Values as text: Python's str() and repr(), and json.dumps() with the options that chat templates use. Who wrote it: a
// string keeps its own marks; a structure that holds any user text is user text as a whole, punctuation included.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/text/template_text.h"
#include "octavo/text/template_value.h"

namespace octavo::text::jinja {

// Both throw Error when the text would pass `kMaxTextBytes`.
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;
Text Str(const Value& value);
Text Repr(const Value& value);

// 'quoted' as Python writes a string literal.
std::string ReprOf(std::string_view text);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // text of one level; none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// What json.dumps would raise.
struct JsonFailure {
  std::string kind;     // TypeError, ValueError
  std::string message;  // Object of type Undefined is not JSON serializable
};
// Text, or the failure.
std::optional<JsonFailure> ToJson(const Value& value, const JsonOptions& options, Text* json);

}  // namespace octavo::text::jinja
