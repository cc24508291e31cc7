#include "octavo/text/json_schema_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "octavo/text/json_schema_compile.h"

namespace octavo::text {
namespace {

constexpr std::string_view kAnnotations[] = {
    "$comment", "$defs",       "$id",        "$schema",     "contentEncoding", "contentMediaType",
    "default",  "definitions", "deprecated", "description", "discriminator",   "example",
    "examples", "readOnly",    "title",      "writeOnly"};

// A word and the type it is about.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"properties", "object"},
                                                                    {"required", "object"},
                                                                    {"additionalProperties", "object"},
                                                                    {"minProperties", "object"},
                                                                    {"maxProperties", "object"},
                                                                    {"propertyNames", "object"},
                                                                    {"items", "array"},
                                                                    {"prefixItems", "array"},
                                                                    {"additionalItems", "array"},
                                                                    {"minItems", "array"},
                                                                    {"maxItems", "array"},
                                                                    {"minLength", "string"},
                                                                    {"maxLength", "string"},
                                                                    {"pattern", "string"},
                                                                    {"format", "string"},
                                                                    {"minimum", "number"},
                                                                    {"maximum", "number"},
                                                                    {"exclusiveMinimum", "number"},
                                                                    {"exclusiveMaximum", "number"},
                                                                    {"type", ""},
                                                                    {"enum", ""},
                                                                    {"const", ""},
                                                                    {"anyOf", ""},
                                                                    {"oneOf", ""},
                                                                    {"allOf", ""},
                                                                    {"$ref", ""}};

constexpr std::string_view kTypes[] = {"array", "boolean", "integer", "null", "number", "object", "string"};

std::string_view TypeOf(const JsonValue& value) {
  switch (value.type()) {
    case JsonValue::Type::kNull:
      return "null";
    case JsonValue::Type::kBool:
      return "boolean";
    case JsonValue::Type::kInt:
      return "integer";
    case JsonValue::Type::kDouble:
      return "number";
    case JsonValue::Type::kString:
      return "string";
    case JsonValue::Type::kArray:
      return "array";
    case JsonValue::Type::kObject:
      return "object";
  }
  return "";
}

bool HasType(const JsonValue& value, const std::set<std::string>& types) {
  const std::string type(TypeOf(value));
  if (types.empty() || types.contains(type)) return true;
  if (type == "integer") return types.contains("number");
  if (type != "number" || !types.contains("integer")) return false;
  const double number = value.Number("enum");
  return number == static_cast<double>(static_cast<int64_t>(std::clamp(number, -1e15, 1e15)));
}

}  // namespace

SchemaError::SchemaError(const std::string& where, const std::string& reason)
    : Error(ErrorCode::kUsage, where.empty() ? "schema: " + reason : fmt::format("schema at {}: {}", where, reason)) {}

const JsonValue* Member(const JsonValue& schema, std::string_view name) {
  if (!schema.IsObject()) return nullptr;
  for (const auto& [key, value] : schema.Object("schema")) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool IsAnnotation(std::string_view word) {
  return word.starts_with("x-") ||
         std::find(std::begin(kAnnotations), std::end(kAnnotations), word) != std::end(kAnnotations);
}

void CheckWords(const JsonValue& schema) {
  for (const auto& member : schema.Object("schema")) {
    const std::string& name = member.first;
    if (IsAnnotation(name)) continue;
    const bool known =
        std::any_of(std::begin(kWords), std::end(kWords), [&](const auto& word) { return word.first == name; });
    // false asks for nothing.
    if (known || (name == "uniqueItems" && member.second.IsBool() && !member.second.Bool(name))) continue;
    ThrowUsage("the keyword '{}' cannot be enforced", std::string_view(name).substr(0, 60));
  }
}

void CheckAlone(const JsonValue& schema, std::string_view word) {
  for (const auto& [name, value] : schema.Object("schema")) {
    if (name != word && !IsAnnotation(name)) ThrowUsage("'{}' beside {} is not supported", name, word);
  }
}

std::set<std::string> TypesOf(const JsonValue& schema) {
  std::set<std::string> types;
  const auto add = [&](const JsonValue& value) {
    if (!value.IsString()) ThrowUsage("type is not a string or a list of strings");
    const std::string& type = value.String("type");
    if (std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes)) {
      throw Error(ErrorCode::kUsage, fmt::format("the type '{}' is unknown", type.substr(0, 60)));
    }
    types.insert(type);
  };
  if (const JsonValue* type = Member(schema, "type")) {
    if (!type->IsArray()) {
      add(*type);
    } else {
      for (const JsonValue& item : type->Items("type")) add(item);
      if (types.empty()) ThrowUsage("type is an empty list");
    }
    return types;
  }
  if (Member(schema, "enum") != nullptr || Member(schema, "const") != nullptr) return types;
  for (const auto& [word, type] : kWords) {
    if (!type.empty() && Member(schema, word) != nullptr) types.emplace(type);
  }
  return types;
}

std::set<std::string> LiteralsOf(const JsonValue& schema, const std::set<std::string>& types) {
  for (const auto& [name, value] : schema.Object("schema")) {
    if (name != "enum" && name != "const" && name != "type" && !IsAnnotation(name)) {
      ThrowUsage("'{}' beside enum or const is not supported", std::string_view(name).substr(0, 60));
    }
  }
  const JsonValue* list = Member(schema, "enum");
  const JsonValue* one = Member(schema, "const");
  if (list != nullptr && !list->IsArray()) ThrowUsage("enum is not a list");
  std::set<std::string> texts;
  if (list != nullptr) {
    for (const JsonValue& value : list->Items("enum")) {
      if (HasType(value, types)) texts.insert(JsonText(value));
    }
  }
  if (one != nullptr) {
    const std::string text = JsonText(*one);
    const bool fits = HasType(*one, types) && (list == nullptr || texts.contains(text));
    texts.clear();
    if (fits) texts.insert(text);
  }
  if (texts.empty()) ThrowUsage("no value of enum or const has its type");
  return texts;
}

std::set<std::string> RequiredOf(const JsonValue& schema) {
  std::set<std::string> names;
  const JsonValue* required = Member(schema, "required");
  if (required == nullptr) return names;
  if (!required->IsArray()) ThrowUsage("required is not a list of names");
  for (const JsonValue& name : required->Items("required")) {
    if (!name.IsString()) ThrowUsage("required is not a list of names");
    names.insert(name.String("required"));
  }
  return names;
}

const JsonValue* FindPointer(const JsonValue& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  reference.remove_prefix(1);
  const JsonValue* at = &root;
  while (!reference.empty()) {
    if (reference[0] != '/') return nullptr;
    reference.remove_prefix(1);
    const std::string_view part = reference.substr(0, reference.find('/'));
    reference.remove_prefix(part.size());
    std::string name;
    for (size_t i = 0; i < part.size(); ++i) {
      unsigned value = 0;
      if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
        name.push_back(part[++i] == '0' ? '~' : '/');
      } else if (part[i] == '%' && i + 2 < part.size() &&
                 std::from_chars(part.data() + i + 1, part.data() + i + 3, value, 16).ptr == part.data() + i + 3) {
        name.push_back(static_cast<char>(value));
        i += 2;
      } else {
        name.push_back(part[i]);
      }
    }
    if (at->IsArray()) {
      size_t index = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
      if (error != std::errc() || end != name.data() + name.size() || index >= at->Items("$ref").size()) return nullptr;
      at = &at->Items("$ref")[index];
    } else {
      at = Member(*at, name);
      if (at == nullptr) return nullptr;
    }
  }
  return at;
}

std::string PointerPart(std::string_view name) {
  std::string part;
  for (char c : name.substr(0, 100)) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else {
      part.push_back(c);
    }
  }
  return part;
}

std::string_view FormatPattern(std::string_view format) {
  // Days that every year has, and 29 February of the years that 4 but not 100 divides.
#define OCTAVO_DATE                                                                                           \
  "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))" \
  "|\\d\\d(0[48]|[2468][048]|[13579][26])-02-29)"
#define OCTAVO_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define OCTAVO_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define OCTAVO_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
  static constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"date", "^" OCTAVO_DATE "$"},
      {"time", "^" OCTAVO_TIME "$"},
      {"date-time", "^" OCTAVO_DATE "T" OCTAVO_TIME "$"},
      {"duration",
       "^P(\\d{1,6}W|\\d{1,6}D(T\\d{1,6}H(\\d{1,2}M(\\d{1,2}S)?)?)?|T(\\d{1,6}H(\\d{1,2}M(\\d{1,2}S)?)?|\\d{1,6}M(\\d{"
       "1,2}S)?"
       "|\\d{1,6}S))$"},
      {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
      {"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@(" OCTAVO_LABEL "\\.)+[A-Za-z]{2,20}$"},
      {"hostname", "^" OCTAVO_LABEL "(\\." OCTAVO_LABEL "){0,4}$"},
      {"ipv4", "^" OCTAVO_BYTE "(\\." OCTAVO_BYTE "){3}$"},
      {"ipv6", "^([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
      {"uri",
       "^[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9/._~:@!$&'()*+,;=-]+(\\?[A-Za-z0-9/._~:@!$&'()*+,;=?-]*)?(#[A-Za-z0-9/"
       "._~:@!$&'()*+,;=?-]*)?$"},
  };
#undef OCTAVO_DATE
#undef OCTAVO_TIME
#undef OCTAVO_BYTE
#undef OCTAVO_LABEL
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  ThrowUsage(
      "the format '{}' cannot be enforced; known: date time date-time duration uuid email hostname ipv4 ipv6 uri",
      format.substr(0, 60));
}

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    constexpr std::pair<char, std::string_view> kShort[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                                            {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
    const auto* found = std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& s) { return s.first == c; });
    if (found != std::end(kShort)) {
      out += found->second;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  return out + '"';
}

std::string JsonText(const JsonValue& value) {
  switch (value.type()) {
    case JsonValue::Type::kNull:
      return "null";
    case JsonValue::Type::kBool:
      return value.Bool("enum") ? "true" : "false";
    case JsonValue::Type::kInt:
      return std::to_string(value.Int("enum", INT64_MIN, INT64_MAX));
    case JsonValue::Type::kDouble:
      return fmt::format("{}", value.Number("enum"));
    case JsonValue::Type::kString:
      return JsonText(std::string_view(value.String("enum")));
    case JsonValue::Type::kArray: {
      std::string out = "[";
      for (const JsonValue& item : value.Items("enum")) out += (out.size() > 1 ? "," : "") + JsonText(item);
      return out + "]";
    }
    case JsonValue::Type::kObject: {
      std::string out = "{";
      for (const auto& [name, item] : value.Object("enum")) {
        out += (out.size() > 1 ? "," : "") + JsonText(std::string_view(name)) + ":" + JsonText(item);
      }
      return out + "}";
    }
  }
  return "";
}

}  // namespace octavo::text
