// A strict reader of GGUF files, versions 2 and 3. The file is mapped; names, texts and tensors are views of its bytes.
// Nothing about the file is believed before it was checked: counts, lengths, types, offsets, alignment. Does not know
// what keys and tensors mean (weights/gguf.h) nor turns blocks into numbers (ggml_types.h).
//
// Layout: "GGUF", u32 version, u64 tensors, u64 keys; the keys: name, u32 type, value; the table: name, u32 axes, u64
// lengths (fastest first), u32 type, u64 offset; padding to the alignment; the data, where each tensor begins at the
// first aligned byte after the one before it. A text is u64 length and bytes. All little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/mapped_file.h"
#include "octavo/checkpoint/ggml_types.h"

namespace octavo {

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kText = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A checked value, or an array of them: where it is, not a copy.
struct GgufValue {
  GgufValueType type;  // of one element
  bool is_array = false;
  uint64_t count = 1;                // of elements
  std::span<const std::byte> bytes;  // texts with their lengths before them
};

struct GgufTensor {
  std::string_view name;
  GgmlType type;
  std::vector<int64_t> shape;  // slowest axis first, as everywhere in the product: [rows, columns]
  int64_t count = 0;           // elements
  std::span<const std::byte> bytes;
};

// What a file holds. The views point into the bytes that it was read from.
class GgufContent {
 public:
  const std::string& file() const { return file_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::map<std::string_view, GgufValue>& values() const { return values_; }

  const GgufTensor* FindTensor(std::string_view name) const;  // nullptr when there is none
  bool Has(std::string_view key) const { return values_.contains(key); }

  // nullopt when the key is missing; a file error that names it when it is of another type. Integers come from any
  // integer type that holds them, numbers from any number.
  std::optional<int64_t> Int(std::string_view key) const;
  std::optional<double> Number(std::string_view key) const;
  std::optional<bool> Bool(std::string_view key) const;
  std::optional<std::string_view> Text(std::string_view key) const;
  std::optional<std::vector<int64_t>> Ints(std::string_view key) const;
  std::optional<std::vector<float>> Numbers(std::string_view key) const;
  std::optional<std::vector<std::string_view>> Texts(std::string_view key) const;

 private:
  friend GgufContent ParseGguf(std::span<const std::byte> bytes, const std::string& file);
  const GgufValue* Find(std::string_view key, bool array) const;

  std::string file_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<GgufTensor> tensors_;  // in the order of the table
  std::map<std::string_view, GgufValue> values_;
  std::map<std::string_view, size_t> index_;  // of tensors by name
};

// Checks and reads a whole file that is in memory; `file` names it in errors.
GgufContent ParseGguf(std::span<const std::byte> bytes, const std::string& file);

class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path)
      : file_(path), content_(ParseGguf(file_.bytes(), path.string())) {}
  const std::filesystem::path& path() const { return file_.path(); }
  const GgufContent& content() const { return content_; }

 private:
  MappedFile file_;
  GgufContent content_;
};

}  // namespace octavo
