#include "octavo/text/gguf_vocab_file.h"

#include <cstring>
#include <set>
#include <type_traits>

#include "octavo/base/error.h"
#include "octavo/text/tokenizer_vocab.h"

namespace octavo::text {
namespace {

enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxString = uint64_t{1} << 30;
constexpr uint64_t kMaxMerges = uint64_t{1} << 23;

class Reader {
 public:
  Reader(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  template <typename T>
  T Number() {
    T value;
    std::memcpy(&value, Take(sizeof value, "a number").data(), sizeof value);
    return value;
  }

  std::string_view Text() {
    const auto length = Number<uint64_t>();
    if (length > kMaxString) Fail("a string of {} bytes", length);
    return Take(length, "a string");
  }

  std::string_view Take(uint64_t count, std::string_view what) {
    if (count > bytes_.size() - at_) Fail("{} of {} bytes goes past the end", what, count);
    const std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }

  // An integer or a truth value of any width.
  int64_t Integer(uint32_t type) {
    switch (type) {
      case kU8:
      case kBool:
        return Number<uint8_t>();
      case kI8:
        return Number<int8_t>();
      case kU16:
        return Number<uint16_t>();
      case kI16:
        return Number<int16_t>();
      case kU32:
        return Number<uint32_t>();
      case kI32:
        return Number<int32_t>();
      case kU64: {
        const auto value = Number<uint64_t>();
        return value > static_cast<uint64_t>(INT64_MAX) ? -1 : static_cast<int64_t>(value);
      }
      case kI64:
        return Number<int64_t>();
      default:
        Fail("type {} where an integer is expected", type);
    }
  }

  static uint64_t SizeOf(uint32_t type) {
    switch (type) {
      case kU8:
      case kI8:
      case kBool:
        return 1;
      case kU16:
      case kI16:
        return 2;
      case kU32:
      case kI32:
      case kF32:
        return 4;
      case kU64:
      case kI64:
      case kF64:
        return 8;
      default:
        return 0;
    }
  }

  void Skip(uint32_t type) {
    if (type == kString) {
      Text();
    } else if (type == kArray) {
      const auto element = Number<uint32_t>();
      const auto count = Number<uint64_t>();
      if (element == kString) {
        for (uint64_t i = 0; i < count; ++i) Text();
      } else if (const uint64_t size = SizeOf(element); size != 0 && count <= bytes_.size() / size) {
        Take(count * size, "an array");
      } else {
        Fail("an array of {} values of type {}", count, element);
      }
    } else if (const uint64_t size = SizeOf(type)) {
      Take(size, "a value");
    } else {
      Fail("a value of type {}", type);
    }
  }

  // The number of elements of an array of `wanted`, at most `most`.
  uint64_t BeginArray(uint32_t type, uint32_t wanted, uint64_t most, std::string_view key) {
    if (type != kArray) Fail("{} is no array", key);
    const auto element = Number<uint32_t>();
    const auto count = Number<uint64_t>();
    const uint64_t least = wanted == kString ? 8 : SizeOf(wanted);
    if (element != wanted && !(wanted == kI32 && element == kU32)) Fail("{} has elements of type {}", key, element);
    if (count > most || count > (bytes_.size() - at_) / least) Fail("{} claims {} elements", key, count);
    return count;
  }

  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    ThrowFile("{}: damaged GGUF file near byte {}: {}", name_, at_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string_view bytes_;
  std::string_view name_;
  size_t at_ = 0;
};

void ReadStrings(Reader& reader, uint32_t type, uint64_t most, std::string_view key, std::vector<std::string>& out) {
  const uint64_t count = reader.BeginArray(type, kString, most, key);
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.emplace_back(reader.Text());
}

template <typename T>
void ReadNumbers(Reader& reader, uint32_t type, std::string_view key, std::vector<T>& out) {
  const uint64_t count = reader.BeginArray(type, std::is_same_v<T, float> ? kF32 : kI32, kMaxVocabulary, key);
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.push_back(reader.Number<T>());
}

std::string ReadString(Reader& reader, uint32_t type, std::string_view key) {
  if (type != kString) reader.Fail("{} is no string", key);
  return std::string(reader.Text());
}

// The character map is written as an array of bytes.
std::string ReadBytes(Reader& reader, uint32_t type, std::string_view key) {
  if (type != kArray) reader.Fail("{} is no array", key);
  const auto element = reader.Number<uint32_t>();
  if (element != kU8 && element != kI8) reader.Fail("{} has elements of type {}", key, element);
  const auto count = reader.Number<uint64_t>();
  return std::string(reader.Take(count, key));
}

// One key. False: it says nothing about the tokenizer.
bool ReadKey(std::string_view key, uint32_t type, Reader& reader, GgufVocabulary& out) {
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  if (key == "tokenizer.chat_template") {
    out.chat_template = ReadString(reader, type, key);
    return true;
  }
  if (!key.starts_with(kPrefix)) return false;
  const std::string_view rest = key.substr(kPrefix.size());
  if (rest == "model") {
    out.model = ReadString(reader, type, key);
  } else if (rest == "pre") {
    out.pre = ReadString(reader, type, key);
  } else if (rest == "tokens") {
    ReadStrings(reader, type, kMaxVocabulary, key, out.tokens);
  } else if (rest == "scores") {
    ReadNumbers(reader, type, key, out.scores);
  } else if (rest == "token_type") {
    ReadNumbers(reader, type, key, out.types);
  } else if (rest == "merges") {
    ReadStrings(reader, type, kMaxMerges, key, out.merges);
  } else if (rest == "precompiled_charsmap") {
    out.charsmap = ReadBytes(reader, type, key);
  } else if (rest == "bos_token_id") {
    out.bos_id = reader.Integer(type);
  } else if (rest == "eos_token_id") {
    out.eos_id = reader.Integer(type);
  } else if (rest == "unknown_token_id") {
    out.unknown_id = reader.Integer(type);
  } else if (rest == "padding_token_id") {
    out.pad_id = reader.Integer(type);
  } else if (rest == "add_bos_token") {
    out.add_bos = reader.Integer(type) != 0;
  } else if (rest == "add_eos_token") {
    out.add_eos = reader.Integer(type) != 0;
  } else if (rest == "add_space_prefix") {
    out.add_space_prefix = reader.Integer(type) != 0;
  } else if (rest == "remove_extra_whitespaces") {
    out.remove_extra_spaces = reader.Integer(type) != 0;
  } else {
    return false;
  }
  return true;
}

}  // namespace

GgufVocabulary ReadGgufVocabulary(std::string_view bytes, std::string_view name) {
  Reader reader(bytes, name);
  if (reader.Take(4, "the magic") != "GGUF") ThrowFile("{}: not a GGUF file", name);
  if (const auto version = reader.Number<uint32_t>(); version != 2 && version != 3) {
    ThrowFile("{}: GGUF version {} is not known, expected 2 or 3", name, version);
  }
  reader.Number<uint64_t>();  // tensors
  const auto keys = reader.Number<uint64_t>();
  if (keys > kMaxKeys) reader.Fail("{} keys", keys);
  GgufVocabulary vocabulary;
  std::set<std::string_view> seen;
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string_view key = reader.Text();
    if (!seen.insert(key).second) reader.Fail("the key '{}' comes twice", key.substr(0, 60));
    const auto type = reader.Number<uint32_t>();
    if (!ReadKey(key, type, reader, vocabulary)) reader.Skip(type);
  }
  const std::string& model = vocabulary.model;
  if (model.empty() || model == "none" || model == "no_vocab") {  // the last two: what files without one say
    throw Error(ErrorCode::kFile, fmt::format("{}: no tokenizer in the GGUF file (tokenizer.ggml.model)", name),
                "tokenizer_path=…");
  }
  return vocabulary;
}

}  // namespace octavo::text
