#include "octavo/checkpoint/strict_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

// "line 3 column 17" of a byte position.
std::string PlaceOf(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {} column {}", lines + 1, before.size() - line_start + 1);
}

}  // namespace

bool JsonIsDeeperThan(std::string_view text, int depth) {
  int open = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;  // whatever is escaped cannot end the string
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++open > depth) return true;
    } else if ((c == ']' || c == '}') && open > 0) {
      --open;
    }
  }
  return false;
}

Json ParseStrictJson(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    ThrowFile("{}: {} bytes of JSON, at most {} are read", where, text.size(), limits.bytes);
  }
  if (JsonIsDeeperThan(text, limits.depth)) {
    ThrowFile("{}: JSON nested deeper than {} levels", where, limits.depth);
  }
  // The parser keeps the last of two equal keys in silence; so its keys are watched here, one set per open object.
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) ThrowFile("{}: the key '{}' occurs twice in one object", where, key);
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    throw Error(ErrorCode::kFile, fmt::format("{}: not JSON at {}", where, PlaceOf(text, error.byte)),
                "the file is damaged or cut short");
  } catch (const Json::exception& error) {  // a number that fits no type
    throw Error(ErrorCode::kFile, fmt::format("{}: not JSON: {}", where, error.what()));
  }
}

}  // namespace octavo
