#include "octavo/weights/hf_config_reader.h"

#include "octavo/base/error.h"

namespace octavo::weights {

using Json = nlohmann::json;

namespace {

constexpr int64_t kMostSize = int64_t{1} << 31;

// The value of a foreign file in an error text, short.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "…" : text;
}

}  // namespace

void HfConfigReader::Fail(const std::string& problem) const {
  throw Error(ErrorCode::kFile, fmt::format("{}: {}", where_, problem));
}

const Json* HfConfigReader::Find(const char* key) {
  const auto found = json_.find(key);
  if (found == json_.end()) return nullptr;
  read_.insert(key);
  return found->is_null() ? nullptr : &*found;
}

const Json* HfConfigReader::First(std::initializer_list<const char*> keys, const char** found) {
  const Json* first = nullptr;
  for (const char* key : keys) {
    const Json* value = Find(key);
    if (value == nullptr || first != nullptr) continue;
    first = value;
    *found = key;
  }
  return first;
}

std::optional<int64_t> HfConfigReader::FindInt(std::initializer_list<const char*> keys) {
  const char* key = "";
  const Json* value = First(keys, &key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
    Fail(fmt::format("{} is {}, expected a whole number", key, Shown(*value)));
  }
  return value->get<int64_t>();
}

std::optional<double> HfConfigReader::FindNumber(std::initializer_list<const char*> keys) {
  const char* key = "";
  const Json* value = First(keys, &key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) Fail(fmt::format("{} is {}, expected a number", key, Shown(*value)));
  return value->get<double>();
}

std::optional<bool> HfConfigReader::FindBool(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) Fail(fmt::format("{} is {}, expected true or false", key, Shown(*value)));
  return value->get<bool>();
}

std::optional<std::string> HfConfigReader::FindText(std::initializer_list<const char*> keys) {
  const char* key = "";
  const Json* value = First(keys, &key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) Fail(fmt::format("{} is {}, expected a text", key, Shown(*value)));
  return value->get<std::string>();
}

int64_t HfConfigReader::Size(std::initializer_list<const char*> keys) {
  const std::optional<int64_t> size = FindInt(keys);
  if (!size) Fail(fmt::format("no key '{}'", *keys.begin()));
  if (*size < 1 || *size > kMostSize) Fail(fmt::format("{} is {}, expected 1 to {}", *keys.begin(), *size, kMostSize));
  return *size;
}

int64_t HfConfigReader::SizeOr(std::initializer_list<const char*> keys, int64_t otherwise) {
  const std::optional<int64_t> size = FindInt(keys);
  if (!size) return otherwise;
  if (*size < 1 || *size > kMostSize) Fail(fmt::format("{} is {}, expected 1 to {}", *keys.begin(), *size, kMostSize));
  return *size;
}

void HfConfigReader::Expect(const char* key, const Json& only) {
  const Json* value = Find(key);
  if (value == nullptr || *value == only) return;
  throw Error(ErrorCode::kFile, fmt::format("{}: {}={} is not supported", where_, key, Shown(*value)),
              fmt::format("expected {}: the value changes the mathematics of the model", Shown(only)));
}

void HfConfigReader::Ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) read_.insert(key);
}

std::vector<std::string> HfConfigReader::Unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items()) {
    if (!read_.contains(key) && !value.is_null()) keys.push_back(key);
  }
  return keys;
}

}  // namespace octavo::weights
