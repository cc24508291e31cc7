#include "octavo/text/tokenizer_json.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "octavo/base/error.h"

namespace octavo::text {
namespace {

constexpr size_t kMaxDepth = 128;
constexpr size_t kMaxJson = size_t{256} << 20;

// Builds the value as the parser reports it. Returning false stops the parser.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Put(JsonValue()); }
  bool boolean(bool value) override { return Put(JsonValue(value)); }
  bool number_integer(int64_t value) override { return Put(JsonValue(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return Put(JsonValue(static_cast<double>(value)));
    return Put(JsonValue(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string&) override { return Put(JsonValue(value)); }
  bool string(std::string& value) override { return Put(JsonValue(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(JsonValue::EmptyObject()); }
  bool start_array(size_t) override { return Open(JsonValue::EmptyArray()); }
  bool key(std::string& value) override {
    open_.back().value.MutableMembers()->emplace_back(std::move(value), JsonValue());
    return true;
  }
  bool end_array() override { return Close(); }
  bool end_object() override {
    const JsonValue::Members& members = *open_.back().value.MutableMembers();
    if (members.size() > 1) {
      std::unordered_set<std::string_view> seen;
      seen.reserve(members.size());
      for (const auto& [name, value] : members) {
        if (!seen.insert(name).second) {
          problem = fmt::format("the key '{}' occurs twice in one object", name.substr(0, 100));
          return false;
        }
      }
    }
    return Close();
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    problem = fmt::format("not valid JSON near byte {}", position);
    return false;
  }

  JsonValue root;
  std::string problem;

 private:
  struct Frame {
    JsonValue value;
  };

  bool Put(JsonValue value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (JsonValue::Array* items = open_.back().value.MutableItems()) {
      items->push_back(std::move(value));
    } else {
      open_.back().value.MutableMembers()->back().second = std::move(value);
    }
    return true;
  }

  bool Open(JsonValue value) {
    if (open_.size() >= kMaxDepth) {
      problem = fmt::format("nested deeper than {}", kMaxDepth);
      return false;
    }
    open_.push_back({std::move(value)});
    return true;
  }

  bool Close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    return Put(std::move(value));
  }

  std::vector<Frame> open_;
};

}  // namespace

JsonValue JsonValue::EmptyArray() {
  JsonValue value;
  value.type_ = Type::kArray;
  value.items_ = std::make_unique<Array>();
  return value;
}

JsonValue JsonValue::EmptyObject() {
  JsonValue value;
  value.type_ = Type::kObject;
  value.members_ = std::make_unique<Members>();
  return value;
}

const std::string& JsonValue::String(std::string_view where) const {
  if (type_ != Type::kString) ThrowFile("{}: expected a string", where);
  return string_;
}

const JsonValue::Array& JsonValue::Items(std::string_view where) const {
  if (type_ != Type::kArray) ThrowFile("{}: expected an array", where);
  return *items_;
}

const JsonValue::Members& JsonValue::Object(std::string_view where) const {
  if (type_ != Type::kObject) ThrowFile("{}: expected an object", where);
  return *members_;
}

bool JsonValue::Bool(std::string_view where) const {
  if (type_ != Type::kBool) ThrowFile("{}: expected true or false", where);
  return int_ != 0;
}

double JsonValue::Number(std::string_view where) const {
  if (type_ == Type::kInt) return static_cast<double>(int_);
  if (type_ != Type::kDouble || !std::isfinite(double_)) ThrowFile("{}: expected a finite number", where);
  return double_;
}

int64_t JsonValue::Int(std::string_view where, int64_t least, int64_t most) const {
  if (type_ != Type::kInt) ThrowFile("{}: expected an integer from {} to {}", where, least, most);
  if (int_ < least || int_ > most)
    ThrowFile("{}: expected an integer from {} to {}, found {}", where, least, most, int_);
  return int_;
}

const JsonValue* JsonValue::Find(std::string_view key) const {
  if (type_ != Type::kObject) return nullptr;
  for (const auto& [name, value] : *members_) {
    if (name == key) return value.IsNull() ? nullptr : &value;
  }
  return nullptr;
}

const JsonValue& JsonValue::At(std::string_view key, std::string_view where) const {
  if (!IsObject()) ThrowFile("{}: expected an object with '{}'", where, key);
  const JsonValue* value = Find(key);
  if (value == nullptr) ThrowFile("{}: '{}' is missing", where, key);
  return *value;
}

bool JsonValue::BoolOr(std::string_view key, bool otherwise, std::string_view where) const {
  const JsonValue* value = Find(key);
  return value == nullptr ? otherwise : value->Bool(fmt::format("{}.{}", where, key));
}

std::string JsonValue::StringOr(std::string_view key, std::string_view otherwise, std::string_view where) const {
  const JsonValue* value = Find(key);
  return value == nullptr ? std::string(otherwise) : value->String(fmt::format("{}.{}", where, key));
}

JsonValue ParseJson(std::string_view text, std::string_view name) {
  if (text.size() > kMaxJson) ThrowFile("{}: {} bytes of JSON, at most {} are accepted", name, text.size(), kMaxJson);
  Builder builder;
  const bool good = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!good) ThrowFile("{}: {}", name, builder.problem.empty() ? "not valid JSON" : builder.problem);
  return std::move(builder.root);
}

std::string ReadWholeFile(const std::string& path, size_t most) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) ThrowFile("cannot open {}", path);
  std::string text;
  char buffer[1 << 16];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    if (text.size() + got > most) ThrowFile("{}: more than {} bytes", path, most);
    text.append(buffer, got);
  }
  if (std::ferror(file.get()) != 0) ThrowFile("cannot read {}", path);
  return text;
}

}  // namespace octavo::text
