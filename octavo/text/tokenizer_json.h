// A parsed JSON file of a tokenizer, read within limits: depth at most 128, no key twice in an object, valid UTF-8, at
// most 256 MiB. Used by the loaders of tokenizer.json and of the small files beside it. Not a general JSON library:
// nothing is ever written from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::text {

class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Members = std::vector<std::pair<std::string, JsonValue>>;  // in the file's order

  enum class Type : uint8_t { kNull, kBool, kInt, kDouble, kString, kArray, kObject };

  JsonValue() = default;
  explicit JsonValue(bool value) : type_(Type::kBool), int_(value) {}
  explicit JsonValue(int64_t value) : type_(Type::kInt), int_(value) {}
  explicit JsonValue(double value) : type_(Type::kDouble), double_(value) {}
  explicit JsonValue(std::string value) : type_(Type::kString), string_(std::move(value)) {}
  static JsonValue EmptyArray();
  static JsonValue EmptyObject();

  Type type() const { return type_; }
  bool IsNull() const { return type_ == Type::kNull; }
  bool IsString() const { return type_ == Type::kString; }
  bool IsArray() const { return type_ == Type::kArray; }
  bool IsObject() const { return type_ == Type::kObject; }
  bool IsBool() const { return type_ == Type::kBool; }

  // Each throws a file Error that names `where` unless the value has the type.
  const std::string& String(std::string_view where) const;
  const Array& Items(std::string_view where) const;
  const Members& Object(std::string_view where) const;
  bool Bool(std::string_view where) const;
  double Number(std::string_view where) const;
  int64_t Int(std::string_view where, int64_t least, int64_t most) const;

  // The member `key` of an object; null for a missing one or a JSON null.
  const JsonValue* Find(std::string_view key) const;
  // The same, or a file Error.
  const JsonValue& At(std::string_view key, std::string_view where) const;
  // A member with a default for a missing or null one.
  bool BoolOr(std::string_view key, bool otherwise, std::string_view where) const;
  std::string StringOr(std::string_view key, std::string_view otherwise, std::string_view where) const;

  // Null unless the value is an array, an object.
  Array* MutableItems() { return items_.get(); }
  Members* MutableMembers() { return members_.get(); }

 private:
  Type type_ = Type::kNull;
  int64_t int_ = 0;
  double double_ = 0;
  std::string string_;
  std::unique_ptr<Array> items_;
  std::unique_ptr<Members> members_;
};

// Throws a file Error that begins with `name` for text that is not JSON or is outside the limits.
JsonValue ParseJson(std::string_view text, std::string_view name);

// The whole of a file of at most `most` bytes. Throws a file Error.
std::string ReadWholeFile(const std::string& path, size_t most);

}  // namespace octavo::text
