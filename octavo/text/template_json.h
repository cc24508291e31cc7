// JSON into template values: messages, tools, documents and variables as requests and files bring them. Keeps the order
// of keys, integers of any length, and marks all text as the user's unless told otherwise. Bounded in size, number
// of values and depth.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "octavo/text/template_value.h"

namespace octavo::text::jinja {

struct JsonLimits {
  size_t bytes = size_t{16} << 20;
  int depth = 64;
  // A value costs many times the two bytes in which it can be written. Keys count as values.
  size_t values = size_t{1} << 20;
  size_t containers = size_t{1} << 17;  // objects and lists
  bool duplicate_keys = false;          // false: a key that comes twice is an error; true: the last one counts
};

// Throws Error that says where the text stops being JSON or passes a limit.
Value ParseJson(std::string_view json, Marks marks = kFromUser, const JsonLimits& limits = {});

// For callers that parsed already. Only an ordered_json still has the order of the keys.
Value FromJson(const nlohmann::ordered_json& json, Marks marks = kFromUser, const JsonLimits& limits = {});

}  // namespace octavo::text::jinja
