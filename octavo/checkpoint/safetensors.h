// A strict reader of safetensors files. The file is mapped; a tensor is a span of its bytes. Nothing about the file is
// believed before it was checked: sizes, offsets, shapes, names. Does not interpret names, convert or quantize
// (weights/).
//
// Layout: 8 bytes little-endian length of the header; the header, a JSON object of name -> {dtype, shape, data_offsets}
// and the optional "__metadata__" of strings; then the data, which the tensors must cover without overlap or hole.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "octavo/base/check.h"
#include "octavo/base/mapped_file.h"
#include "octavo/numerics/dtype.h"
#include "octavo/numerics/format.h"

namespace octavo {

static_assert(std::endian::native == std::endian::little, "the data of a safetensors file is little-endian");

// One tensor of a file. `bytes` points into the mapping and may be unaligned: copy before use (CopyAs).
struct StoredTensor {
  std::string name;
  std::string_view type;         // as the file spells it: "F32", "F8_E4M3", …
  DType dtype;                   // of one stored element; u8 for small floats
  std::optional<Format> format;  // set for F8_*, F6_* and F4: what a code means
  bool packed = false;           // F6_* and F4 share bytes (see numerics/pack.h)
  std::vector<int64_t> shape;
  int64_t count = 0;  // elements
  std::span<const std::byte> bytes;

  // The elements in a vector of their own, aligned.
  template <typename T>
  std::vector<T> CopyAs() const {
    static_assert(std::is_trivially_copyable_v<T>);
    OCTAVO_CHECK(bytes.size() % sizeof(T) == 0);
    std::vector<T> elements(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(elements.data(), bytes.data(), bytes.size());
    return elements;
  }
};

// How a safetensors file spells a type: "F32", "BF16", "F8_E4M3", … Without a format it is that of plain elements.
// A format that the files have no name for (int4, nf4) is a usage error: store its codes as I8 or U8.
std::string_view SafetensorsType(DType dtype, std::optional<Format> format = std::nullopt);
// Bits of one element of a type; a file error for an unknown name.
int SafetensorsBits(std::string_view type);

// What a file holds.
struct SafetensorsContent {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Checks and reads a whole file that is in memory; `file` names it in errors. The tensors point into `bytes`.
SafetensorsContent ParseSafetensors(std::span<const std::byte> bytes, const std::string& file);

class SafetensorsFile {
 public:
  // Every problem is a file error that names the file and, where there is one, the tensor.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  // In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return content_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return content_.metadata; }

  const StoredTensor* Find(std::string_view name) const;  // nullptr when there is none
  // A missing name is a file error with the nearest names.
  const StoredTensor& At(std::string_view name) const;

 private:
  MappedFile file_;
  SafetensorsContent content_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace octavo
