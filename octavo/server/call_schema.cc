#include "octavo/server/call_schema.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo::server {
namespace {

using text::jinja::DictObject;
using text::jinja::Kind;
using text::jinja::Value;

Value Text(std::string_view value) { return Value::String(value, text::jinja::kFromUser); }

Value Object(std::initializer_list<std::pair<std::string_view, Value>> entries) {
  auto made = std::make_shared<DictObject>();
  for (const auto& entry : entries) made->Set(entry.first, entry.second);
  return Value::Dict(made);
}

bool IsAny(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The schema with its references moved to where it will stand. `names`: an object of schemas by name, in which no key
// is a word of the language.
Value Rebase(const Value& schema, std::string_view base, bool names = false) {
  if (schema.is(Kind::kList)) {
    std::vector<Value> items;
    for (const Value& item : schema.items()) items.push_back(Rebase(item, base));
    return Value::List(std::move(items));
  }
  if (!schema.is(Kind::kDict)) return schema;
  auto made = std::make_shared<DictObject>();
  for (const auto& [key, value] : schema.dict().entries()) {
    const std::string_view word = names ? std::string_view() : key.str();
    if (IsAny(word, {"enum", "const", "default", "example", "examples"})) {
      made->Set(key, value);
    } else if (word == "$ref" && value.is_string() && (value.str() == "#" || value.str().starts_with("#/"))) {
      made->Set(key, Text(fmt::format("{}{}", base, value.str().substr(1))));
    } else {
      made->Set(key, Rebase(value, base, IsAny(word, {"properties", "$defs", "definitions"})));
    }
  }
  return Value::Dict(made);
}

std::string PlaceOf(size_t form) { return fmt::format("/anyOf/{}/properties/arguments", form); }

}  // namespace

std::string CallSchema(const std::vector<CallableTool>& tools) {
  std::vector<Value> forms;
  for (const CallableTool& tool : tools) {
    const std::string base = "#" + PlaceOf(forms.size());
    const bool takes_nothing = !tool.parameters.is(Kind::kDict) || tool.parameters.dict().size() == 0;
    const Value arguments =
        takes_nothing
            ? Object(
                  {{"type", Text("object")}, {"properties", Object({})}, {"additionalProperties", Value::Bool(false)}})
            : Rebase(tool.parameters, base);
    forms.push_back(
        Object({{"type", Text("object")},
                {"properties", Object({{"name", Object({{"const", Text(tool.name)}})}, {"arguments", arguments}})},
                {"required", Value::List({Text("name"), Text("arguments")})},
                {"additionalProperties", Value::Bool(false)}}));
  }
  return ToJsonText(Object({{"anyOf", Value::List(std::move(forms))}}));
}

std::string InRequest(const std::vector<CallableTool>& tools, std::string message) {
  for (size_t form = 0; form < tools.size(); ++form) {
    const std::string place = PlaceOf(form);
    for (size_t at = 0; (at = message.find(place, at)) != std::string::npos; at += tools[form].place.size()) {
      message.replace(at, place.size(), tools[form].place);
    }
  }
  return message;
}

}  // namespace octavo::server
