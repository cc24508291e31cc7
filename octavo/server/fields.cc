#include "octavo/server/fields.h"

#include <cmath>

#include "octavo/server/api_error.h"
#include "octavo/text/template_json.h"
#include "octavo/text/template_repr.h"

namespace octavo::server {

using text::jinja::Kind;

void ThrowInvalid(std::string_view param, std::string_view message) {
  throw ApiError(400, "invalid_value", std::string(param), fmt::format("{}: {}", param, message));
}

void ThrowUnsupported(std::string_view param, std::string_view message) {
  throw ApiError(400, "unsupported_value", std::string(param), fmt::format("{}: {}", param, message));
}

JsonValue ParseBody(std::string_view body) {
  try {
    JsonValue value = text::jinja::ParseJson(body);
    if (!value.is(Kind::kDict)) throw ApiError(400, "", "", "the body must be a JSON object");
    return value;
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw ApiError(400, "", "", error.message());
  }
}

std::string ToJsonText(const JsonValue& value) {
  text::jinja::Text json;
  if (const auto failure = text::jinja::ToJson(value, {}, &json)) throw ApiError(400, "", "", failure->message);
  return json.bytes();
}

std::optional<int64_t> AsInt(const JsonValue& value) {
  if (value.is(Kind::kInt)) return value.integer();
  return std::nullopt;
}

Fields::Fields(JsonValue object, std::string path) : object_(std::move(object)), path_(std::move(path)) {
  if (!object_.is(Kind::kDict)) ThrowInvalid(path_, "expected an object");
}

std::string Fields::NameOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const JsonValue* Fields::Find(std::string_view name) {
  read_.emplace(name);
  const JsonValue* value = object_.dict().Find(name);
  return value == nullptr || value->none() ? nullptr : value;
}

int64_t Fields::Int(std::string_view name, int64_t otherwise, int64_t least, int64_t most) {
  const JsonValue* value = Find(name);
  if (value == nullptr) return otherwise;
  const std::optional<int64_t> found = AsInt(*value);
  if (!found) ThrowInvalid(NameOf(name), fmt::format("expected a whole number from {} to {}", least, most));
  if (*found < least || *found > most) {
    ThrowInvalid(NameOf(name), fmt::format("expected a whole number from {} to {}, found {}", least, most, *found));
  }
  return *found;
}

double Fields::Number(std::string_view name, double otherwise, double least, double most) {
  const JsonValue* value = Find(name);
  if (value == nullptr) return otherwise;
  if (!value->is(Kind::kInt) && !value->is(Kind::kFloat)) {
    ThrowInvalid(NameOf(name), fmt::format("expected a number from {} to {}", least, most));
  }
  const double found = value->real();
  if (!(found >= least && found <= most)) {
    ThrowInvalid(NameOf(name), fmt::format("expected a number from {} to {}, found {}", least, most, found));
  }
  return found;
}

bool Fields::Bool(std::string_view name, bool otherwise) {
  const JsonValue* value = Find(name);
  if (value == nullptr) return otherwise;
  if (!value->is(Kind::kBool)) ThrowInvalid(NameOf(name), "expected true or false");
  return value->boolean();
}

std::optional<std::string> Fields::Text(std::string_view name) {
  const JsonValue* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) ThrowInvalid(NameOf(name), "expected a string");
  return std::string(value->str());
}

std::vector<int32_t> Fields::Ids(std::string_view name, int64_t most, size_t most_items) {
  std::vector<int32_t> ids;
  const JsonValue* value = Find(name);
  if (value == nullptr) return ids;
  if (!value->is(Kind::kList)) ThrowInvalid(NameOf(name), "expected a list of token ids");
  if (value->items().size() > most_items) {
    ThrowInvalid(NameOf(name), fmt::format("{} ids, at most {} are taken", value->items().size(), most_items));
  }
  for (const JsonValue& item : value->items()) {
    const std::optional<int64_t> id = AsInt(item);
    if (!id || *id < 0 || *id > most) {
      ThrowInvalid(NameOf(name), fmt::format("a token id is a whole number from 0 to {}", most));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

std::vector<std::string> Fields::Unread() const {
  std::vector<std::string> names;
  for (const auto& entry : object_.dict().entries()) {
    const std::string_view name = entry.first.str();
    if (!read_.contains(name)) names.emplace_back(NameOf(name));
  }
  return names;
}

}  // namespace octavo::server
