// The typed access to the keys of a GGUF file.
#include <cstring>

#include "octavo/base/checked.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf.h"

namespace octavo {
namespace {

template <typename T>
T At(std::span<const std::byte> bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// nullopt: not an integer, or one that does not fit.
std::optional<int64_t> IntAt(const GgufValue& value, uint64_t i) {
  switch (value.type) {
    case GgufValueType::kU8:
      return At<uint8_t>(value.bytes, i);
    case GgufValueType::kI8:
      return At<int8_t>(value.bytes, i);
    case GgufValueType::kU16:
      return At<uint16_t>(value.bytes, i);
    case GgufValueType::kI16:
      return At<int16_t>(value.bytes, i);
    case GgufValueType::kU32:
      return At<uint32_t>(value.bytes, i);
    case GgufValueType::kI32:
      return At<int32_t>(value.bytes, i);
    case GgufValueType::kU64:
      return CheckedCast<int64_t>(At<uint64_t>(value.bytes, i));
    case GgufValueType::kI64:
      return At<int64_t>(value.bytes, i);
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberAt(const GgufValue& value, uint64_t i) {
  if (value.type == GgufValueType::kF32) return At<float>(value.bytes, i);
  if (value.type == GgufValueType::kF64) return At<double>(value.bytes, i);
  if (const std::optional<int64_t> whole = IntAt(value, i)) return static_cast<double>(*whole);
  return std::nullopt;
}

[[noreturn]] void FailType(const GgufContent& content, std::string_view key, std::string_view wanted) {
  ThrowFile("{}: key '{}' is not {}", content.file(), key, wanted);
}

}  // namespace

const GgufTensor* GgufContent::FindTensor(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufContent::Find(std::string_view key, bool array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  if (found->second.is_array != array) FailType(*this, key, array ? "an array" : "a single value");
  return &found->second;
}

std::optional<int64_t> GgufContent::Int(std::string_view key) const {
  const GgufValue* value = Find(key, false);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = IntAt(*value, 0);
  if (!number) FailType(*this, key, "a whole number");
  return number;
}

std::optional<double> GgufContent::Number(std::string_view key) const {
  const GgufValue* value = Find(key, false);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = NumberAt(*value, 0);
  if (!number) FailType(*this, key, "a number");
  return number;
}

std::optional<bool> GgufContent::Bool(std::string_view key) const {
  const GgufValue* value = Find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kBool) FailType(*this, key, "a truth value");
  return value->bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufContent::Text(std::string_view key) const {
  const GgufValue* value = Find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kText) FailType(*this, key, "a text");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()) + 8, value->bytes.size() - 8);
}

std::optional<std::vector<int64_t>> GgufContent::Ints(std::string_view key) const {
  const GgufValue* value = Find(key, true);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = IntAt(*value, i);
    if (!number) FailType(*this, key, "an array of whole numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<float>> GgufContent::Numbers(std::string_view key) const {
  const GgufValue* value = Find(key, true);
  if (value == nullptr) return std::nullopt;
  std::vector<float> numbers;
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<double> number = NumberAt(*value, i);
    if (!number) FailType(*this, key, "an array of numbers");
    numbers.push_back(static_cast<float>(*number));
  }
  return numbers;
}

std::optional<std::vector<std::string_view>> GgufContent::Texts(std::string_view key) const {
  const GgufValue* value = Find(key, true);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::kText) FailType(*this, key, "an array of texts");
  std::vector<std::string_view> texts;
  texts.reserve(value->count);
  const char* at = reinterpret_cast<const char*>(value->bytes.data());
  for (uint64_t i = 0; i < value->count; ++i) {  // the walk was checked when the file was read
    uint64_t length;
    std::memcpy(&length, at, sizeof(length));
    texts.emplace_back(at + 8, length);
    at += 8 + length;
  }
  return texts;
}

}  // namespace octavo
