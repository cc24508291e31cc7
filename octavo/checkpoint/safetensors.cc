#include "octavo/checkpoint/safetensors.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "octavo/base/checked.h"
#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/checkpoint/strict_json.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

// The limit of the reference library, which thereby refuses to write larger ones.
constexpr uint64_t kMostHeaderBytes = 100'000'000;
// Object, tensor, list: three levels are all that the format has.
constexpr int kHeaderDepth = 3;

struct DTypeRow {
  std::string_view name;
  DType dtype;
  int bits;
  std::optional<Format> format;
};

const DTypeRow kDTypes[] = {
    {"BOOL", DType::kBool, 8, {}},
    {"U8", DType::kU8, 8, {}},
    {"I8", DType::kI8, 8, {}},
    {"U16", DType::kU16, 16, {}},
    {"I16", DType::kI16, 16, {}},
    {"F16", DType::kF16, 16, {}},
    {"BF16", DType::kBF16, 16, {}},
    {"U32", DType::kU32, 32, {}},
    {"I32", DType::kI32, 32, {}},
    {"F32", DType::kF32, 32, {}},
    {"U64", DType::kU64, 64, {}},
    {"I64", DType::kI64, 64, {}},
    {"F64", DType::kF64, 64, {}},
    // What safetensors calls F8_E4M3 is the kind without infinities.
    {"F8_E4M3", DType::kU8, 8, Format::kF8E4M3FN},
    {"F8_E5M2", DType::kU8, 8, Format::kF8E5M2},
    {"F8_E4M3FNUZ", DType::kU8, 8, Format::kF8E4M3FNUZ},
    {"F8_E5M2FNUZ", DType::kU8, 8, Format::kF8E5M2FNUZ},
    {"F8_E8M0", DType::kU8, 8, Format::kF8E8M0FNU},
    {"F6_E2M3", DType::kU8, 6, Format::kF6E2M3FN},
    {"F6_E3M2", DType::kU8, 6, Format::kF6E3M2FN},
    {"F4", DType::kU8, 4, Format::kF4E2M1FN},
};

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The header as text and the data after it.
struct Parts {
  std::string_view header;
  std::span<const std::byte> data;
};

Parts Cut(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < 8) ThrowFile("{}: {} bytes are too few for a safetensors file", file, bytes.size());
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMostHeaderBytes) {
    throw Error(ErrorCode::kFile,
                fmt::format("{}: the header claims {} bytes, at most {} are allowed", file, length, kMostHeaderBytes),
                "this is no safetensors file, or it is damaged");
  }
  if (length > bytes.size() - 8) {
    throw Error(
        ErrorCode::kFile,
        fmt::format("{}: the header claims {} bytes, the file has {} after the length", file, length, bytes.size() - 8),
        "the file is cut short; fetch or write it again");
  }
  const std::string_view header = Text(bytes.subspan(8, length));
  if (!header.starts_with('{')) ThrowFile("{}: the header does not begin with '{{'", file);
  return {header, bytes.subspan(8 + length)};
}

// Reads one entry of the header.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name, uint64_t data_size)
      : file_(file), name_(name), data_size_(data_size) {}

  struct Placed {
    StoredTensor tensor;
    uint64_t begin, end;
  };

  Placed Read(const Json& entry) const {
    if (!entry.is_object()) Fail("its entry is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") Fail(fmt::format("unknown field '{}'", key));
    }
    Placed placed;
    placed.tensor.name = name_;
    const DTypeRow& row = ReadDType(Field(entry, "dtype"));
    placed.tensor.type = row.name;
    placed.tensor.dtype = row.dtype;
    placed.tensor.format = row.format;
    placed.tensor.packed = row.bits < 8;
    for (const Json& dimension : List(entry, "shape")) {
      placed.tensor.shape.push_back(Number(dimension, "a dimension of its shape"));
    }
    const Json& offsets = List(entry, "data_offsets");
    if (offsets.size() != 2) Fail(fmt::format("data_offsets has {} numbers, expected 2", offsets.size()));
    placed.begin = static_cast<uint64_t>(Number(offsets[0], "the begin of its data"));
    placed.end = static_cast<uint64_t>(Number(offsets[1], "the end of its data"));
    CheckSize(placed, row.bits);
    return placed;
  }

 private:
  [[noreturn]] void Fail(const std::string& problem) const {
    throw Error(ErrorCode::kFile, fmt::format("{}: tensor '{}': {}", file_, name_, problem));
  }

  const Json& Field(const Json& entry, const char* key) const {
    const auto found = entry.find(key);
    if (found == entry.end()) Fail(fmt::format("no field '{}'", key));
    return *found;
  }

  const Json& List(const Json& entry, const char* key) const {
    const Json& value = Field(entry, key);
    if (!value.is_array()) Fail(fmt::format("{} is not a list", key));
    return value;
  }

  int64_t Number(const Json& value, std::string_view what) const {
    if (!value.is_number_unsigned()) Fail(fmt::format("{} is not a whole number from 0", what));
    const std::optional<int64_t> number = CheckedCast<int64_t>(value.get<uint64_t>());
    if (!number) Fail(fmt::format("{} is {}, which is too large", what, value.get<uint64_t>()));
    return *number;
  }

  const DTypeRow& ReadDType(const Json& value) const {
    if (!value.is_string()) Fail("dtype is not a string");
    const std::string& name = value.get_ref<const std::string&>();
    for (const DTypeRow& row : kDTypes) {
      if (row.name == name) return row;
    }
    std::string known;
    for (const DTypeRow& row : kDTypes) known += fmt::format(" {}", row.name);
    throw Error(ErrorCode::kFile, fmt::format("{}: tensor '{}': unknown dtype '{}'", file_, name_, name),
                "known:" + known);
  }

  void CheckSize(Placed& placed, int bits) const {
    const std::optional<int64_t> count = CheckedProduct(placed.tensor.shape);
    const std::optional<int64_t> total = count ? CheckedMul(*count, int64_t{bits}) : std::nullopt;
    if (!total) Fail(fmt::format("shape [{}] has too many elements", fmt::join(placed.tensor.shape, ", ")));
    if (*total % 8 != 0) Fail(fmt::format("{} elements of {} bits do not fill whole bytes", *count, bits));
    if (placed.begin > placed.end) {
      Fail(fmt::format("its data ends at {}, before its begin {}", placed.end, placed.begin));
    }
    if (placed.end > data_size_) {
      Fail(fmt::format("its data ends at byte {}, the file has {} bytes of data", placed.end, data_size_));
    }
    if (placed.end - placed.begin != static_cast<uint64_t>(*total / 8)) {
      Fail(fmt::format("shape [{}] needs {} bytes, data_offsets give {}", fmt::join(placed.tensor.shape, ", "),
                       *total / 8, placed.end - placed.begin));
    }
    placed.tensor.count = *count;
  }

  const std::string& file_;
  const std::string& name_;
  uint64_t data_size_;
};

std::map<std::string, std::string> ReadMetadata(const Json& value, const std::string& file) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) ThrowFile("{}: __metadata__ is not an object", file);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) ThrowFile("{}: __metadata__ '{}' is not a string", file, key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// Sorts by position and insists that the tensors cover the data from the first byte to the last, each byte once.
void CheckCover(std::vector<EntryReader::Placed>& placed, uint64_t data_size, const std::string& file) {
  std::sort(placed.begin(), placed.end(), [](const EntryReader::Placed& a, const EntryReader::Placed& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  uint64_t at = 0;
  std::string before = "the header";
  for (const EntryReader::Placed& one : placed) {
    if (one.begin < at) {
      ThrowFile("{}: the data of tensor '{}' begins at {} and overlaps that of {}, which ends at {}", file,
                one.tensor.name, one.begin, before, at);
    }
    if (one.begin > at) {
      ThrowFile("{}: bytes {} to {}, between {} and tensor '{}', belong to no tensor", file, at, one.begin, before,
                one.tensor.name);
    }
    at = one.end;
    before = fmt::format("tensor '{}'", one.tensor.name);
  }
  if (at != data_size) ThrowFile("{}: bytes {} to {} at the end belong to no tensor", file, at, data_size);
}

}  // namespace

std::string_view SafetensorsType(DType dtype, std::optional<Format> format) {
  for (const DTypeRow& row : kDTypes) {
    if (format ? row.format == format : !row.format && row.dtype == dtype) return row.name;
  }
  ThrowUsage("safetensors files have no type for {}", Info(*format).name);
}

int SafetensorsBits(std::string_view type) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == type) return row.bits;
  }
  ThrowFile("unknown safetensors type '{}'", type);
}

SafetensorsContent ParseSafetensors(std::span<const std::byte> bytes, const std::string& file) {
  const Parts parts = Cut(bytes, file);
  const Json header = ParseStrictJson(parts.header, file + ": header",
                                      {.bytes = static_cast<size_t>(kMostHeaderBytes), .depth = kHeaderDepth});
  SafetensorsContent content;
  std::vector<EntryReader::Placed> placed;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      content.metadata = ReadMetadata(entry, file);
      continue;
    }
    placed.push_back(EntryReader(file, name, parts.data.size()).Read(entry));
  }
  CheckCover(placed, parts.data.size(), file);
  for (EntryReader::Placed& one : placed) {
    one.tensor.bytes = parts.data.subspan(one.begin, one.end - one.begin);
    content.tensors.push_back(std::move(one.tensor));
  }
  return content;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), content_(ParseSafetensors(file_.bytes(), path.string())) {
  for (size_t i = 0; i < tensors().size(); ++i) index_.emplace(tensors()[i].name, i);
}

const StoredTensor* SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors()[found->second];
}

const StoredTensor& SafetensorsFile::At(std::string_view name) const {
  if (const StoredTensor* tensor = Find(name)) return *tensor;
  std::vector<std::string_view> known;
  for (const StoredTensor& tensor : tensors()) known.push_back(tensor.name);
  throw Error(ErrorCode::kFile, fmt::format("{}: no tensor '{}'", path().string(), name),
              fmt::format("nearest: {}", fmt::join(NearestNames(name, known, 3), ", ")));
}

}  // namespace octavo
