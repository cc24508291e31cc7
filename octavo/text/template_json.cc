#include "octavo/text/template_json.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

// Receives the parser's events; nothing recurses. Returning false stops the parser.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(Marks marks, const JsonLimits& limits) : marks_(marks), limits_(limits) {}

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return Add(value <= INT64_MAX ? Value::Int(static_cast<int64_t>(value)) : Value::BigInt(std::to_string(value)));
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    // An integer too long for 64 bits arrives here; its digits are exact.
    if (digits.find_first_of(".eE") == string_t::npos) return Add(Value::BigInt(digits));
    return Add(Value::Float(value));
  }
  bool string(string_t& value) override { return Add(Value::String(std::string_view(value), marks_)); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool key(string_t& value) override {
    Level& level = open_.back();
    if (!limits_.duplicate_keys && level.dict->Find(std::string_view(value)) != nullptr)
      return Fail(fmt::format("the key \"{}\" comes twice in one object", value.substr(0, 60)));
    if (++values_ > limits_.values) return FailValues();
    level.key = Value::String(std::string_view(value), marks_);
    return true;
  }
  bool end_object() override {
    Value made = Value::Dict(std::move(open_.back().dict));
    open_.pop_back();
    return Add(std::move(made));
  }
  bool end_array() override {
    Value made = Value::List(std::move(open_.back().items));
    open_.pop_back();
    return Add(std::move(made));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(fmt::format("not valid JSON at byte {}", position));
  }

  const std::string& error() const { return error_; }
  Value result() { return std::move(result_); }

 private:
  struct Level {
    std::shared_ptr<DictObject> dict;  // none: an array
    std::vector<Value> items;
    Value key;
  };

  bool Fail(std::string message) {
    error_ = std::move(message);
    return false;
  }
  bool Open(bool object) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      return Fail(fmt::format("nested deeper than {} levels", limits_.depth));
    if (++containers_ > limits_.containers)
      return Fail(fmt::format("more than {} objects and lists", limits_.containers));
    open_.emplace_back();
    if (object) open_.back().dict = std::make_shared<DictObject>();
    return true;
  }
  bool FailValues() { return Fail(fmt::format("more than {} values", limits_.values)); }
  bool Add(Value value) {
    if (++values_ > limits_.values) return FailValues();
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().dict) {
      open_.back().dict->Set(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  Marks marks_;
  const JsonLimits& limits_;
  std::vector<Level> open_;
  size_t values_ = 0, containers_ = 0;
  Value result_;
  std::string error_;
};

Value Convert(const nlohmann::ordered_json& json, Marks marks, const JsonLimits& limits, int depth) {
  if (depth > limits.depth) ThrowUsage("JSON for a chat template is nested deeper than {} levels", limits.depth);
  const auto text = [&](const std::string& bytes) {
    if (!IsValidUtf8(bytes)) ThrowUsage("JSON for a chat template holds text that is not valid UTF-8");
    return Value::String(std::string_view(bytes), marks);
  };
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case nlohmann::json::value_t::number_unsigned: {
      const uint64_t value = json.get<uint64_t>();
      return value <= INT64_MAX ? Value::Int(static_cast<int64_t>(value)) : Value::BigInt(std::to_string(value));
    }
    case nlohmann::json::value_t::number_float:
      return Value::Float(json.get<double>());
    case nlohmann::json::value_t::string:
      return text(json.get_ref<const std::string&>());
    case nlohmann::json::value_t::array: {
      std::vector<Value> items;
      for (const nlohmann::ordered_json& item : json) items.push_back(Convert(item, marks, limits, depth + 1));
      return Value::List(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      auto dict = std::make_shared<DictObject>();
      for (const auto& [key, item] : json.items()) dict->Set(text(key), Convert(item, marks, limits, depth + 1));
      return Value::Dict(std::move(dict));
    }
    default:
      return Value::None();
  }
}

}  // namespace

Value ParseJson(std::string_view json, Marks marks, const JsonLimits& limits) {
  if (json.size() > limits.bytes) ThrowUsage("JSON of {} bytes; at most {} are allowed", json.size(), limits.bytes);
  Builder builder(marks, limits);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder)) ThrowUsage("JSON: {}", builder.error());
  return builder.result();
}

Value FromJson(const nlohmann::ordered_json& json, Marks marks, const JsonLimits& limits) {
  return Convert(json, marks, limits, 0);
}

}  // namespace octavo::text::jinja
