#include "octavo/checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "octavo/base/checked.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

// The limits of llama.cpp where it has one. The numbers of keys and tensors bound what a header can make us allocate.
constexpr uint64_t kMostKeys = 1 << 14, kMostTensors = 1 << 16;
constexpr uint64_t kMostNameBytes = 64, kMostKeyBytes = 65535, kMostTextBytes = uint64_t{1} << 30;
constexpr uint32_t kMostAxes = 4;
constexpr uint64_t kMostAlignment = 1 << 20;

// Bytes of one element; 0: not of a fixed size.
uint64_t SizeOf(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kText:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

// Reads the header from its first byte on. Every read says what it was for when the file ends before it.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  template <typename T>
  T Read(std::string_view what) {
    T value;
    std::memcpy(&value, Take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view Text(uint64_t most, std::string_view what) {
    const auto length = Read<uint64_t>(what);
    if (length > most) Fail(fmt::format("{} claims {} bytes, at most {} are read", what, length, most));
    const std::span<const std::byte> bytes = Take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::span<const std::byte> Take(uint64_t size, std::string_view what) {
    if (size > left()) {
      throw Error(ErrorCode::kFile,
                  fmt::format("{}: {} needs {} bytes at byte {}, the file has {} left", file_, what, size, at_, left()),
                  "the file is cut short; fetch or write it again");
    }
    const auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }

  std::span<const std::byte> Since(uint64_t begin) const { return bytes_.subspan(begin, at_ - begin); }

  [[noreturn]] void Fail(const std::string& problem) const {
    throw Error(ErrorCode::kFile, fmt::format("{}: {}", file_, problem));
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t at_ = 0;
};

uint32_t ReadVersion(Cursor& cursor, const std::string& file) {
  const auto magic = cursor.Take(4, "the magic number");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    ThrowFile("{}: begins with bytes other than 'GGUF'; this is no GGUF file", file);
  }
  const auto version = cursor.Read<uint32_t>("the version");
  if (version == 2 || version == 3) return version;
  if (__builtin_bswap32(version) == 2 || __builtin_bswap32(version) == 3) {
    ThrowFile("{}: a GGUF file for big-endian machines, which is not read", file);
  }
  throw Error(ErrorCode::kFile, fmt::format("{}: GGUF version {} is not read", file, version), "known: 2 3");
}

GgufValueType ReadType(Cursor& cursor, std::string_view key) {
  const auto type = cursor.Read<uint32_t>("the type of a key");
  if (type > static_cast<uint32_t>(GgufValueType::kF64)) {
    cursor.Fail(fmt::format("key '{}' has the unknown type {}", key, type));
  }
  return static_cast<GgufValueType>(type);
}

// Walks over `value.count` elements and takes their bytes.
void ReadElements(Cursor& cursor, std::string_view key, GgufValue& value) {
  const uint64_t begin = cursor.at();
  const std::string what = fmt::format("key '{}'", key);
  if (const uint64_t size = SizeOf(value.type)) {
    const std::optional<uint64_t> bytes = CheckedMul(value.count, size);
    if (!bytes) cursor.Fail(fmt::format("{} claims {} elements", what, value.count));
    cursor.Take(*bytes, what);
  } else {
    // Each text has a length of 8 bytes at least: a count that cannot be is refused before the walk.
    if (value.count > cursor.left() / 8) cursor.Fail(fmt::format("{} claims {} texts", what, value.count));
    for (uint64_t i = 0; i < value.count; ++i) cursor.Text(kMostTextBytes, what);
  }
  value.bytes = cursor.Since(begin);
  if (value.type != GgufValueType::kBool) return;
  for (const std::byte one : value.bytes) {
    if (one > std::byte{1}) cursor.Fail(fmt::format("{} is {}, not a truth value", what, static_cast<int>(one)));
  }
}

GgufValue ReadValue(Cursor& cursor, std::string_view key) {
  GgufValue value;
  value.type = ReadType(cursor, key);
  if (value.type == GgufValueType::kArray) {
    value.is_array = true;
    value.type = ReadType(cursor, key);
    if (value.type == GgufValueType::kArray) cursor.Fail(fmt::format("key '{}' is an array of arrays", key));
    value.count = cursor.Read<uint64_t>(fmt::format("the count of key '{}'", key));
  }
  ReadElements(cursor, key, value);
  return value;
}

// A row of the tensor table; where its data begins is relative to the data.
struct Placed {
  GgufTensor tensor;
  uint64_t offset, size;
};

Placed ReadTensor(Cursor& cursor, uint64_t alignment) {
  Placed placed;
  placed.tensor.name = cursor.Text(kMostNameBytes, "the name of a tensor");
  const auto fail = [&](const std::string& problem) {
    cursor.Fail(fmt::format("tensor '{}': {}", placed.tensor.name, problem));
  };
  const auto axes = cursor.Read<uint32_t>("the axes of a tensor");
  if (axes < 1 || axes > kMostAxes) fail(fmt::format("{} axes, expected 1 to {}", axes, kMostAxes));
  for (uint32_t i = 0; i < axes; ++i) {
    const auto length = cursor.Read<uint64_t>("the shape of a tensor");
    const std::optional<int64_t> axis = CheckedCast<int64_t>(length);
    if (!axis || *axis == 0) fail(fmt::format("an axis of {} elements", length));
    placed.tensor.shape.insert(placed.tensor.shape.begin(), *axis);
  }
  const auto type = cursor.Read<uint32_t>("the type of a tensor");
  const GgmlTypeInfo* info = FindGgmlType(type);
  if (info == nullptr) fail(fmt::format("unknown type {}", type));
  placed.tensor.type = info->type;
  const std::optional<int64_t> count = CheckedProduct(placed.tensor.shape);
  if (!count) fail(fmt::format("shape [{}] has too many elements", fmt::join(placed.tensor.shape, ", ")));
  if (placed.tensor.shape.back() % info->block != 0) {
    fail(fmt::format("rows of {} elements are not whole blocks of {} ({})", placed.tensor.shape.back(), info->block,
                     info->name));
  }
  const std::optional<int64_t> size = CheckedMul(*count / info->block, int64_t{info->bytes});
  if (!size) fail(fmt::format("shape [{}] has too many elements", fmt::join(placed.tensor.shape, ", ")));
  placed.tensor.count = *count;
  placed.size = static_cast<uint64_t>(*size);
  placed.offset = cursor.Read<uint64_t>("the offset of a tensor");
  if (placed.offset % alignment != 0) {
    fail(fmt::format("its data begins at {}, which is no multiple of the alignment {}", placed.offset, alignment));
  }
  return placed;
}

// The first multiple of `alignment` at or after `offset`; nullopt when there is none.
std::optional<uint64_t> AlignUp(uint64_t offset, uint64_t alignment) {
  const std::optional<uint64_t> end = CheckedAdd(offset, alignment - 1);
  if (!end) return std::nullopt;
  return *end / alignment * alignment;
}

// Insists that the tensors cover the data in some order, apart from the padding, and gives each its bytes.
void Place(std::vector<Placed>& placed, std::span<const std::byte> data, uint64_t alignment, const std::string& file) {
  std::vector<Placed*> order;
  for (Placed& one : placed) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const Placed* a, const Placed* b) { return a->offset < b->offset; });
  uint64_t end = 0;  // of the tensor before
  std::string before = "the header";
  for (Placed* one : order) {
    if (one->offset < end) {
      ThrowFile("{}: the data of tensor '{}' begins at {} and overlaps that of {}, which ends at {}", file,
                one->tensor.name, one->offset, before, end);
    }
    const std::optional<uint64_t> begin = AlignUp(end, alignment);
    if (!begin || one->offset > *begin) {
      ThrowFile("{}: bytes {} to {} of the data, between {} and tensor '{}', belong to no tensor", file, end,
                one->offset, before, one->tensor.name);
    }
    if (one->offset > data.size() || one->size > data.size() - one->offset) {
      ThrowFile("{}: the data of tensor '{}' needs {} bytes at {}, the file has {} bytes of data", file,
                one->tensor.name, one->size, one->offset, data.size());
    }
    one->tensor.bytes = data.subspan(one->offset, one->size);
    end = one->offset + one->size;
    before = fmt::format("tensor '{}'", one->tensor.name);
  }
  if (data.size() - end >= alignment) {
    ThrowFile("{}: bytes {} to {} at the end belong to no tensor", file, end, data.size());
  }
}

uint64_t ReadAlignment(const GgufContent& content) {
  const int64_t alignment = content.Int("general.alignment").value_or(32);
  if (alignment < 8 || alignment > static_cast<int64_t>(kMostAlignment) ||
      !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    ThrowFile("{}: general.alignment is {}, expected a power of two from 8 to {}", content.file(), alignment,
              kMostAlignment);
  }
  return static_cast<uint64_t>(alignment);
}

}  // namespace

GgufContent ParseGguf(std::span<const std::byte> bytes, const std::string& file) {
  GgufContent content;
  content.file_ = file;
  Cursor cursor(bytes, content.file_);
  content.version_ = ReadVersion(cursor, file);
  const auto tensors = cursor.Read<uint64_t>("the number of tensors");
  const auto keys = cursor.Read<uint64_t>("the number of keys");
  if (tensors > kMostTensors) cursor.Fail(fmt::format("claims {} tensors, at most {} are read", tensors, kMostTensors));
  if (keys > kMostKeys) cursor.Fail(fmt::format("claims {} keys, at most {} are read", keys, kMostKeys));
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string_view key = cursor.Text(kMostKeyBytes, "the name of a key");
    if (key.empty()) cursor.Fail("a key without a name");
    if (!content.values_.emplace(key, ReadValue(cursor, key)).second) {
      cursor.Fail(fmt::format("the key '{}' occurs twice", key));
    }
  }
  content.alignment_ = ReadAlignment(content);
  std::vector<Placed> placed;
  for (uint64_t i = 0; i < tensors; ++i) {
    placed.push_back(ReadTensor(cursor, content.alignment_));
    const std::string_view name = placed.back().tensor.name;
    if (name.empty()) cursor.Fail("a tensor without a name");
    if (!content.index_.emplace(name, i).second) cursor.Fail(fmt::format("two tensors named '{}'", name));
  }
  if (tensors > 0) {
    const std::optional<uint64_t> begin = AlignUp(cursor.at(), content.alignment_);
    if (!begin || *begin > bytes.size()) ThrowFile("{}: ends before the data of its tensors", file);
    Place(placed, bytes.subspan(*begin), content.alignment_, file);
  }
  for (Placed& one : placed) content.tensors_.push_back(std::move(one.tensor));
  return content;
}

}  // namespace octavo
