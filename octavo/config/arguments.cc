#include "octavo/config/arguments.h"

#include <algorithm>
#include <optional>

#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr std::string_view kWhere = "on the command line";

bool IsKeyText(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string Normalized(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

bool IsBoolWord(std::string_view word) {
  return word == "true" || word == "false" || word == "True" || word == "False" || word == "TRUE" || word == "FALSE";
}

struct Parts {
  std::string key;
  std::optional<std::string> value;
};

// The key and, after '=', the value of a word; nothing when the word is no setting.
std::optional<Parts> Split(std::string_view word) {
  const bool dashed = word.starts_with("--");
  if (dashed) word.remove_prefix(2);
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  if (!IsKeyText(name) || name[0] == '-' || (!dashed && equals == std::string_view::npos)) return std::nullopt;
  Parts parts{Normalized(name), std::nullopt};
  if (equals != std::string_view::npos) parts.value = word.substr(equals + 1);
  return parts;
}

// True when a bare --key takes the next word as its value.
bool TakesNext(const KeyInfo& key, std::span<const std::string> rest) {
  if (key.type == KeyType::kBool) return !rest.empty() && IsBoolWord(rest[0]);
  return true;
}

}  // namespace

int SettingLength(const KeyTable& table, std::span<const std::string> words) {
  const std::optional<Parts> parts = Split(words[0]);
  if (!parts) return 0;
  if (parts->value) return 1;
  return TakesNext(table.At(parts->key, kWhere), words.subspan(1)) && words.size() > 1 ? 2 : 1;
}

SettingsWords ReadSettingsWords(const KeyTable& table, std::span<const std::string> words) {
  SettingsWords result;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::optional<Parts> parts = Split(words[i]);
    if (!parts) {
      if (i == 0 && words[i].ends_with(".yml")) {
        result.config = words[i];
        continue;
      }
      throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a setting", words[i]),
                  "expected key=value, --key=value or --key value; a config file (.yml) comes first");
    }
    const KeyInfo& key = table.At(parts->key, kWhere);
    std::string value = parts->value.value_or("true");
    if (!parts->value && TakesNext(key, words.subspan(i + 1))) {
      if (i + 1 == words.size()) {
        throw Error(ErrorCode::kUsage, fmt::format("--{} needs a value", key.name),
                    fmt::format("expected {}", Expected(key)));
      }
      value = words[++i];
    }
    for (const Assignment& earlier : result.assignments) {
      if (earlier.key != key.name) continue;
      throw Error(ErrorCode::kUsage, fmt::format("key '{}' is given twice on the command line", key.name),
                  fmt::format("{}={} and {}={}: keep one", key.name, earlier.value, key.name, value));
    }
    result.assignments.push_back({key.name, value});
  }
  return result;
}

}  // namespace octavo
