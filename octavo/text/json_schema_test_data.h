// Random schemas, a vocabulary with awkward tokens, a sampler through a constraint's mask and a validator that shares
// no code with the compiler: for the tests of structured output.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/json_schema.h"
#include "octavo/text/unicode.h"

namespace octavo::text {

using Json = nlohmann::ordered_json;

constexpr int32_t kTestEnd = 3;  // ends a text; 0, 1, 2 are special too

// Every byte, and tokens that lie across what a grammar thinks of as borders.
inline std::shared_ptr<const VocabularyBytes> TestVocabulary(size_t cache_bytes = size_t{48} << 20) {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all(4);  // special tokens have no bytes
    for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
    for (const char* text :
         {"{\"",      "\":",        "\": ",       "\": \"", "\",",    "\", \"", "\"}",  "\"]",  "},",   "}}",
          "]}",       "}]",         "[{",         "[[",     "[\"",    "[]",     "{}",   "null", "true", "false",
          "null,",    "null}",      "nul",        "\n  ",   "\n    ", ",\n",    "{\n",  " {",   " \"",  "12",
          "00",       "0.",         ".5",         "1e",     "-1",     "-0",     "e+",   "999",  "name", "value",
          "a\"",      "ab",         "the",        "th",     "\\n",    "\\u00",  "\\\"", "\\\\", "é",    "日本",
          "\xE6\x97", "\xA5\xE6",   "🚀",          "    ",   "  ",     "2024-",  "-02-", "T12:", "Z\"",  "a",
          "\"",       "item\":{\"", "\":null,\"", "\":[",   "0,",     "1]",     "5}"}) {
      all.emplace_back(text);
    }
    return all;
  }();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return VocabularyBytes::Make(views, {kTestEnd}, cache_bytes);
}

class RandomSchema {
 public:
  explicit RandomSchema(uint64_t seed) : engine_(seed) {}

  // With definitions that may refer to each other.
  Json Next() {
    Json root = Schema(3);
    if (!root.is_object() || root.contains("$ref")) root = Json{{"anyOf", Json::array({root, {{"type", "null"}}})}};
    root["$defs"] = {{"node", Node()}, {"leaf", Below(2) == 0 ? String() : Number(true)}};
    return root;
  }

  size_t Below(size_t bound) { return static_cast<size_t>(engine_() % bound); }

 private:
  Json Node() {
    Json next = {{"anyOf", Json::array({{{"$ref", "#/$defs/node"}}, {{"type", "null"}}})}};
    if (Below(2) == 0) next = {{"type", "array"}, {"items", {{"$ref", "#/$defs/node"}}}, {"maxItems", 2}};
    return {{"type", "object"},
            {"title", "Node"},
            {"properties", {{"value", {{"$ref", "#/$defs/leaf"}}}, {"next", next}}},
            {"required", Json::array({"value"})},
            {"additionalProperties", false}};
  }

  Json Schema(int depth) {
    switch (Below(depth > 0 ? 14 : 8)) {
      case 0:
        return String();
      case 1:
        return Number(true);
      case 2:
        return Number(false);
      case 3:
        return {{"type", "boolean"}};
      case 4:
        return {{"enum", Json::array({"red", "gr\"een", 3, nullptr, "日本", Json::array({1, "x"})})}};
      case 5:
        return {{"const", Below(2) == 0 ? Json("fixed") : Json(-12)}};
      case 6:
        return {{"type", Json::array({"string", "null"})}, {"maxLength", Below(9)}};
      case 7:
        return {{"$ref", Below(2) == 0 ? "#/$defs/node" : "#/$defs/leaf"}};
      case 8:
      case 9:
        return {{"anyOf", Json::array({Schema(depth - 1), Schema(depth - 1), {{"type", "null"}}})}};
      case 10:
        return Array(depth);
      default:
        return Object(depth);
    }
  }

  Json String() {
    static const char* kPatterns[] = {
        "^[a-z]{2,5}$", "\\d+-\\d+",    "^(foo|ba[rz])+$",       "[^\"\\\\a-f]{3}", "^\\w+@\\w+$",
        "^$",           "^.{0,4}é$",    "^[A-Z]\\S*\\s?\\d{2}$", "^a?b*c+(d|e)$",   "^(?:x(?<y>y)z)*$",
        "^[\\n\\t ]+$", "\\u00e9|\\x41"};
    static const char* kFormats[] = {"date", "time", "date-time", "uuid", "ipv4", "email", "ipv6", "hostname"};
    Json schema = {{"type", "string"}};
    switch (Below(5)) {
      case 0:
        schema["pattern"] = kPatterns[Below(std::size(kPatterns))];
        break;
      case 1:
        schema["format"] = kFormats[Below(std::size(kFormats))];
        break;
      case 2:
        schema["minLength"] = Below(4);
        [[fallthrough]];
      case 3:
        schema["maxLength"] = 4 + Below(12);
        break;
      default:
        break;
    }
    return schema;
  }

  Json Number(bool integer) {
    Json schema = {{"type", integer ? "integer" : "number"}};
    const auto bound = [&] {
      const double whole = static_cast<double>(Below(2001)) - 1000;
      return integer ? Json(static_cast<int64_t>(whole)) : Json(whole / 8);
    };
    Json low = bound();
    Json high = bound();
    if (high < low) std::swap(low, high);
    if (integer && Below(4) == 0) high = low;
    if (Below(3) > 0) schema["minimum"] = low;
    if (Below(3) > 0) schema["maximum"] = high;
    if (low < high && Below(4) == 0 && !integer) schema["exclusiveMinimum"] = low, schema["exclusiveMaximum"] = high;
    return schema;
  }

  Json Object(int depth) {
    static const char* kNames[] = {"name", "value", "a", "aa", "item", "quo\"te", "日本", "", "x y"};
    Json properties = Json::object();
    Json required = Json::array();
    for (size_t count = Below(5); count > 0; --count) {
      const char* name = kNames[Below(std::size(kNames))];
      if (properties.contains(name)) continue;
      properties[name] = Schema(depth - 1);
      if (Below(2) == 0) required.push_back(name);
    }
    Json schema = {{"type", "object"}, {"properties", properties}, {"required", required}};
    const size_t kind = Below(4);
    if (kind == 0) schema["additionalProperties"] = false;
    if (kind == 1) schema["additionalProperties"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}};
    if (kind == 2) schema["additionalProperties"] = true;
    if (properties.empty() && kind == 1) schema["minProperties"] = Below(2), schema["maxProperties"] = 3;
    return schema;
  }

  Json Array(int depth) {
    Json schema = {{"type", "array"}, {"items", Schema(depth - 1)}};
    if (Below(2) == 0) schema["minItems"] = Below(3);
    if (Below(2) == 0) schema["maxItems"] = 3 + Below(3);
    if (Below(3) == 0) schema["prefixItems"] = Json::array({Schema(depth - 1), Schema(depth - 1)});
    return schema;
  }

  std::mt19937_64 engine_;
};

struct Sample {
  std::string text;
  bool complete = false;  // ended by itself
  size_t tokens = 0;
};

// Any token of the mask with equal chance; after `soft` tokens those that close something, so that most texts end.
inline Sample SampleText(const TokenConstraint& start, const VocabularyBytes& vocabulary, uint64_t seed,
                         size_t soft = 25, size_t most = 400) {
  std::mt19937_64 engine(seed);
  const auto constraint = start.Clone();
  std::vector<uint32_t> mask((static_cast<size_t>(vocabulary.size()) + 31) / 32);
  Sample sample;
  while (sample.tokens < most) {
    constraint->Fill(mask);
    std::vector<int32_t> allowed;
    std::vector<int32_t> closing;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) continue;
      allowed.push_back(id);
      const std::string_view bytes = vocabulary.bytes(id);
      if (id == kTestEnd || bytes == "}" || bytes == "]" || bytes == "\"" || bytes == "null") closing.push_back(id);
    }
    if (allowed.empty()) return sample;
    const std::vector<int32_t>& from =
        sample.tokens >= soft && !closing.empty() && engine() % 8 != 0 ? closing : allowed;
    const int32_t token = from[engine() % from.size()];
    if (!constraint->Accept(token)) return sample;
    ++sample.tokens;
    if (token == kTestEnd) {
      sample.complete = true;
      return sample;
    }
    sample.text += vocabulary.bytes(token);
  }
  return sample;
}

inline std::wstring Wide(const std::string& text) {
  std::wstring wide;
  for (const char* p = text.data(); p < text.data() + text.size();) wide.push_back(static_cast<wchar_t>(NextChar(p)));
  return wide;
}

// Empty when the document satisfies the schema, or the reason.
class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  std::string Check(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : "false";
    if (schema.contains("$ref")) {
      const auto pointer = schema["$ref"].get<std::string>().substr(1);
      return Check(root_.at(nlohmann::json_pointer<std::string>(pointer)), value);
    }
    if (schema.contains("anyOf")) {
      for (const Json& choice : schema["anyOf"]) {
        if (Check(choice, value).empty()) return "";
      }
      return "anyOf";
    }
    if (schema.contains("enum")) {
      bool found = false;
      for (const Json& one : schema["enum"]) found = found || one == value;
      if (!found) return "enum";
    }
    if (schema.contains("const") && schema["const"] != value) return "const";
    if (schema.contains("type")) {
      bool found = false;
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      for (const Json& type : types) found = found || HasType(value, type);
      if (!found) return "type";
    }
    if (value.is_string()) return CheckString(schema, value);
    if (value.is_number()) return CheckNumber(schema, value);
    if (value.is_array()) return CheckArray(schema, value);
    if (value.is_object()) return CheckObject(schema, value);
    return "";
  }

 private:
  static bool HasType(const Json& value, const std::string& type) {
    return type == "string"    ? value.is_string()
           : type == "integer" ? value.is_number_integer()
           : type == "number"  ? value.is_number()
           : type == "boolean" ? value.is_boolean()
           : type == "null"    ? value.is_null()
           : type == "array"   ? value.is_array()
                               : value.is_object();
  }

  static std::string CheckString(const Json& schema, const Json& value) {
    const std::wstring text = Wide(value.get<std::string>());
    if (schema.contains("minLength") && text.size() < schema["minLength"].get<size_t>()) return "minLength";
    if (schema.contains("maxLength") && text.size() > schema["maxLength"].get<size_t>()) return "maxLength";
    if (schema.contains("pattern")) {
      std::string pattern = schema["pattern"];
      if (const size_t name = pattern.find("?<y>"); name != std::string::npos) pattern.erase(name, 4);
      if (!std::regex_search(text, std::wregex(Wide(pattern)))) return "pattern";
    }
    if (schema.contains("format")) return CheckFormat(schema["format"], value);
    return "";
  }

  static std::string CheckFormat(const std::string& format, const std::string& text) {
    int year, month, day, hour, minute, second, end = 0;
    if (format.starts_with("date")) {
      if (std::sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &end) != 3 || end != 10) return format;
      constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
      const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
      if (month < 1 || month > 12 || day < 1 || day > kDays[month - 1] + (leap && month == 2 ? 1 : 0)) return format;
      if (format == "date") return text.size() == 10 ? "" : format;
      if (text[10] != 'T') return format;
      return CheckFormat("time", text.substr(11));
    }
    if (format == "time") {
      if (std::sscanf(text.c_str(), "%2d:%2d:%2d%n", &hour, &minute, &second, &end) != 3 || end != 8) return format;
      if (hour > 23 || minute > 59 || second > 59) return format;
      return text.ends_with('Z') || text.find_first_of("+-", 8) == text.size() - 6 ? "" : format;
    }
    if (format == "ipv4") {
      int part[4];
      if (std::sscanf(text.c_str(), "%d.%d.%d.%d%n", &part[0], &part[1], &part[2], &part[3], &end) != 4) return format;
      for (int p : part) {
        if (p < 0 || p > 255) return format;
      }
      return static_cast<size_t>(end) == text.size() ? "" : format;
    }
    if (format == "uuid") return text.size() == 36 && text[8] == '-' && text[23] == '-' ? "" : format;
    if (format == "ipv6") return std::count(text.begin(), text.end(), ':') == 7 ? "" : format;
    if (format == "email") return std::count(text.begin(), text.end(), '@') == 1 ? "" : format;
    return text.empty() ? format : "";
  }

  static std::string CheckNumber(const Json& schema, const Json& value) {
    const auto number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return "minimum";
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return "maximum";
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>()) return "exclMin";
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>()) return "exclMax";
    return "";
  }

  std::string CheckArray(const Json& schema, const Json& value) const {
    if (schema.contains("minItems") && value.size() < schema["minItems"].get<size_t>()) return "minItems";
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) return "maxItems";
    const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    for (size_t i = 0; i < value.size(); ++i) {
      const Json& item = i < prefix ? schema["prefixItems"][i] : schema.contains("items") ? schema["items"] : kTrue();
      if (std::string reason = Check(item, value[i]); !reason.empty()) return "items: " + reason;
    }
    return "";
  }

  std::string CheckObject(const Json& schema, const Json& value) const {
    if (schema.contains("required")) {
      for (const Json& name : schema["required"]) {
        if (!value.contains(name.get<std::string>())) return "required " + name.get<std::string>();
      }
    }
    if (schema.contains("minProperties") && value.size() < schema["minProperties"].get<size_t>())
      return "minProperties";
    if (schema.contains("maxProperties") && value.size() > schema["maxProperties"].get<size_t>())
      return "maxProperties";
    for (const auto& [name, member] : value.items()) {
      const bool known = schema.contains("properties") && schema["properties"].contains(name);
      const Json& rule = known                                     ? schema["properties"][name]
                         : schema.contains("additionalProperties") ? schema["additionalProperties"]
                                                                   : kTrue();
      if (std::string reason = Check(rule, member); !reason.empty()) return name + ": " + reason;
    }
    return "";
  }

  static const Json& kTrue() {
    static const Json always(true);
    return always;
  }

  const Json& root_;
};

}  // namespace octavo::text
