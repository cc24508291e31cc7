// Typed reading of a JSON object that a client sent: every value is checked for its type and range where it is read,
// the error names the field and both numbers, and fields that nobody read are known afterwards. Used by the routes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/template_value.h"

namespace octavo::server {

using JsonValue = text::jinja::Value;

// The body of a request: an object, strictly read (bounded, no key twice, nothing after it). Throws ApiError.
JsonValue ParseBody(std::string_view body);

// The value as JSON text.
std::string ToJsonText(const JsonValue& value);

class Fields {
 public:
  // `path` begins the names in errors: "stream_options". Throws ApiError if the value is no object.
  explicit Fields(JsonValue object, std::string path = "");

  // The value of a field, which then counts as read; null without one, or when it is null.
  const JsonValue* Find(std::string_view name);
  bool Has(std::string_view name) { return Find(name) != nullptr; }

  int64_t Int(std::string_view name, int64_t otherwise, int64_t least, int64_t most);
  double Number(std::string_view name, double otherwise, double least, double most);
  bool Bool(std::string_view name, bool otherwise);
  std::optional<std::string> Text(std::string_view name);
  // A list of token ids in [0, most].
  std::vector<int32_t> Ids(std::string_view name, int64_t most, size_t most_items);

  // Names that were sent and not read.
  std::vector<std::string> Unread() const;
  // "stream_options.include_usage".
  std::string NameOf(std::string_view name) const;

 private:
  JsonValue object_;
  std::string path_;
  std::set<std::string, std::less<>> read_;
};

// ApiErrors of status 400 that name the field.
[[noreturn]] void ThrowInvalid(std::string_view param, std::string_view message);
[[noreturn]] void ThrowUnsupported(std::string_view param, std::string_view message);

// A whole number of a JSON value; nothing for anything else.
std::optional<int64_t> AsInt(const JsonValue& value);

}  // namespace octavo::server
