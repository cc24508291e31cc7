// JSON that comes from files, parsed without mercy: a limit on size and depth before the parser sees it, duplicate
// keys, bad UTF-8 and anything after the value refused. Errors are file errors that name the place. Used by readers of
// safetensors, indexes and reference data.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace octavo {

struct JsonLimits {
  size_t bytes = size_t{1} << 30;
  int depth = 64;
};

// `where` names the text in errors: a path, or "x.safetensors: header".
nlohmann::json ParseStrictJson(std::string_view text, std::string_view where, const JsonLimits& limits = {});

// Whether [ and { nest deeper than `depth` outside of strings. One pass, no recursion; also counts on broken text.
bool JsonIsDeeperThan(std::string_view text, int depth);

}  // namespace octavo
