// JSON into template values: messages, tools, documents and variables as requests and files bring them. Keeps the order
// of keys, integers of any length, and marks all text as the user's unless told otherwise. Bounded in size and depth.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "octavo/text/template_value.h"

namespace octavo::text::jinja {

struct JsonLimits {
  size_t bytes = size_t{16} << 20;
  int depth = 64;
  bool duplicate_keys = false;  // false: a key that comes twice is an error; true: the last one counts
};

// Throws Error that says where the text stops being JSON or passes a limit.
Value ParseJson(std::string_view json, Marks marks = kFromUser, const JsonLimits& limits = {});

// For callers that parsed already. Only an ordered_json still has the order of the keys.
Value FromJson(const nlohmann::ordered_json& json, Marks marks = kFromUser, const JsonLimits& limits = {});

}  // namespace octavo::text::jinja
