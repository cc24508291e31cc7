#include "octavo/config/key_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::string Shown(const Yaml& value) {
  return value.kind() == Yaml::Kind::kScalar ? fmt::format("'{}'", value.Text("")) : value.Flow();
}

[[noreturn]] void ThrowExpected(const KeyInfo& key, const Yaml& value) {
  const std::string what = fmt::format("{}={}", key.name, Shown(value));
  throw Error(ErrorCode::kUsage,
              value.line() == 0 ? fmt::format("{} {}: expected {}", what, value.Where(), Expected(key))
                                : fmt::format("{}: {}: expected {}", value.Where(), what, Expected(key)),
              fmt::format("see octavo config explain {}", key.name));
}

// Digits may be grouped: 1_000.
std::string WithoutGroups(std::string text) {
  for (size_t i = text.size(); i-- > 1;) {
    const bool digits = i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
                        std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (text[i] == '_' && digits) text.erase(i, 1);
  }
  return text.starts_with('+') ? text.substr(1) : text;
}

bool ReadNumber(const std::string& text, double& number) {
  if (text == "inf" || text == ".inf") return number = HUGE_VAL, true;
  if (text == "-inf" || text == "-.inf") return number = -HUGE_VAL, true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !std::isnan(number);
}

std::string Whole(const KeyInfo& key, const Yaml& value) {
  const std::string text = WithoutGroups(value.Text(key.name));
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) return fmt::format("{}", whole);
  double number = 0;  // 1e6 and 8.0 are whole as well
  if (!ReadNumber(text, number) || number != std::trunc(number) || std::abs(number) > 9e15) ThrowExpected(key, value);
  return fmt::format("{}", static_cast<int64_t>(number));
}

std::string Number(const KeyInfo& key, const Yaml& value) {
  double number = 0;
  if (!ReadNumber(WithoutGroups(value.Text(key.name)), number)) ThrowExpected(key, value);
  if (std::isinf(number)) return number > 0 ? ".inf" : "-.inf";
  const std::string text = fmt::format("{}", number);  // the shortest that reads back equal
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string Bool(const KeyInfo& key, const Yaml& value) {
  const std::string text = value.Text(key.name);
  if (text == "true" || text == "True" || text == "TRUE") return "true";
  if (text == "false" || text == "False" || text == "FALSE") return "false";
  ThrowExpected(key, value);
}

// "silu,linear" or "['silu', 'linear']"; every item as plain text.
Yaml ListOf(const KeyInfo& key, const Yaml& value) {
  if (value.kind() == Yaml::Kind::kMap) ThrowExpected(key, value);
  if (value.kind() == Yaml::Kind::kList) {
    std::vector<Yaml> items;
    for (const Yaml& item : value.items()) {
      const bool scalar = item.kind() == Yaml::Kind::kScalar;
      items.push_back(scalar ? Yaml::Scalar(item.Text(key.name), false, value.Where()) : item);
    }
    return Yaml::List(std::move(items), value.Where());
  }
  const std::string text = value.is_null() ? "" : value.Text(key.name);
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return Yaml::List({}, value.Where());
  if (text[first] == '[') return ListOf(key, Yaml::Parse(text, value.Where()));
  std::vector<Yaml> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const size_t left = text.find_first_not_of(' ', begin), right = text.find_last_not_of(' ', comma - 1);
    if (left >= comma || right == std::string::npos) ThrowExpected(key, value);
    items.push_back(Yaml::Scalar(text.substr(left, right + 1 - left), false, value.Where()));
    begin = comma + 1;
  }
  return Yaml::List(std::move(items), value.Where());
}

std::string ScalarOf(const KeyInfo& key, const Yaml& value) {
  if (value.kind() != Yaml::Kind::kScalar) ThrowExpected(key, value);
  switch (key.type) {
    case KeyType::kBool:
      return Bool(key, value);
    case KeyType::kWhole:
      return Whole(key, value);
    case KeyType::kNumber:
      return Number(key, value);
    default:
      break;
  }
  std::string text = value.Text(key.name);
  if (!key.choices.empty() && std::find(key.choices.begin(), key.choices.end(), text) == key.choices.end()) {
    ThrowExpected(key, value);
  }
  return text;
}

}  // namespace

Yaml Canonical(const KeyInfo& key, const Yaml& value) {
  if (key.type == KeyType::kAny) return value;
  if (key.type == KeyType::kList) return ListOf(key, value);
  if (key.type == KeyType::kMap) {
    if (value.kind() != Yaml::Kind::kMap) ThrowExpected(key, value);
    return value;
  }
  if (value.is_null()) {
    if (key.nullable) return value;
    if (key.type == KeyType::kText) return Canonical(key, Yaml::Scalar("", true, value.Where()));
    ThrowExpected(key, value);
  }
  return Yaml::Scalar(ScalarOf(key, value), false, value.Where());
}

Yaml ValueFromText(const KeyInfo& key, std::string_view text, std::string_view source) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() && (text[0] == '\'' || text[0] == '"');
  const bool brackets = !text.empty() && (text[0] == '[' || text[0] == '{');
  if (brackets && key.type != KeyType::kText) return Canonical(key, Yaml::Parse(text, source));
  if (quoted) return Canonical(key, Yaml::Scalar(text.substr(1, text.size() - 2), true, source));
  if (text == "None" || text == "null" || text == "~") return Canonical(key, Yaml::Null(source));
  return Canonical(key, Yaml::Scalar(text, false, source));
}

}  // namespace octavo
