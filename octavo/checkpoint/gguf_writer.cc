#include "octavo/checkpoint/gguf_writer.h"

#include <algorithm>

#include "octavo/base/check.h"
#include "octavo/base/checked.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr uint64_t kAlignment = 32;  // what readers assume when the file does not say

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& bytes, std::string_view text) {
  Append(bytes, static_cast<uint64_t>(text.size()));
  bytes += text;
}

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

void GgufWriter::Key(std::string_view key, GgufValueType type) {
  OCTAVO_CHECK(!header_written_);
  if (key.empty()) ThrowUsage("GGUF: a key needs a name");
  if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) ThrowUsage("GGUF: the key '{}' is given twice", key);
  keys_.emplace_back(key);
  AppendText(values_, key);
  Append(values_, static_cast<uint32_t>(type));
}

void GgufWriter::Array(std::string_view key, GgufValueType type, uint64_t count) {
  Key(key, GgufValueType::kArray);
  Append(values_, static_cast<uint32_t>(type));
  Append(values_, count);
}

void GgufWriter::Text(std::string_view key, std::string_view value) {
  Key(key, GgufValueType::kText);
  AppendText(values_, value);
}

void GgufWriter::U32(std::string_view key, uint32_t value) {
  Key(key, GgufValueType::kU32);
  Append(values_, value);
}

void GgufWriter::F32(std::string_view key, float value) {
  Key(key, GgufValueType::kF32);
  Append(values_, value);
}

void GgufWriter::Bool(std::string_view key, bool value) {
  Key(key, GgufValueType::kBool);
  Append(values_, static_cast<uint8_t>(value));
}

void GgufWriter::Texts(std::string_view key, std::span<const std::string> values) {
  Array(key, GgufValueType::kText, values.size());
  for (const std::string& value : values) AppendText(values_, value);
}

void GgufWriter::U8s(std::string_view key, std::span<const uint8_t> values) {
  Array(key, GgufValueType::kU8, values.size());
  values_.append(reinterpret_cast<const char*>(values.data()), values.size());
}

void GgufWriter::I32s(std::string_view key, std::span<const int32_t> values) {
  Array(key, GgufValueType::kI32, values.size());
  for (const int32_t value : values) Append(values_, value);
}

void GgufWriter::F32s(std::string_view key, std::span<const float> values) {
  Array(key, GgufValueType::kF32, values.size());
  for (const float value : values) Append(values_, value);
}

void GgufWriter::Tensor(std::string_view name, GgmlType type, std::span<const int64_t> shape) {
  OCTAVO_CHECK(!header_written_);
  const GgmlTypeInfo& info = Info(type);
  if (name.empty() || name.size() > 63) ThrowUsage("GGUF: the tensor name '{}' is not 1 to 63 bytes long", name);
  for (const Row& row : rows_) {
    if (row.name == name) ThrowUsage("GGUF: two tensors named '{}'", name);
  }
  const std::optional<int64_t> count = CheckedProduct(shape);
  if (shape.empty() || shape.size() > 4 || !count || *count == 0) {
    ThrowUsage("GGUF: tensor '{}' of shape [{}]; expected 1 to 4 axes, none empty", name, fmt::join(shape, ", "));
  }
  if (shape.back() % info.block != 0) {
    ThrowUsage("GGUF: tensor '{}' has rows of {} elements, which are not whole blocks of {} ({})", name, shape.back(),
               info.block, info.name);
  }
  const auto size = static_cast<uint64_t>(*count / info.block * info.bytes);
  rows_.push_back({std::string(name), type, {shape.begin(), shape.end()}, data_end_, size});
  data_end_ = (data_end_ + size + kAlignment - 1) / kAlignment * kAlignment;
}

void GgufWriter::WriteHeader() {
  OCTAVO_CHECK(!header_written_);
  header_written_ = true;
  std::string header = "GGUF";
  Append(header, uint32_t{3});
  Append(header, static_cast<uint64_t>(rows_.size()));
  Append(header, static_cast<uint64_t>(keys_.size()));
  header += values_;
  for (const Row& row : rows_) {
    AppendText(header, row.name);
    Append(header, static_cast<uint32_t>(row.shape.size()));
    for (size_t i = row.shape.size(); i-- > 0;) Append(header, static_cast<uint64_t>(row.shape[i]));
    Append(header, static_cast<uint32_t>(row.type));
    Append(header, row.offset);
  }
  sink_(AsBytes(header));
  Pad(header.size());
}

void GgufWriter::Pad(uint64_t position) {
  const std::string zeros((kAlignment - position % kAlignment) % kAlignment, '\0');
  if (!zeros.empty()) sink_(AsBytes(zeros));
}

void GgufWriter::Write(std::span<const std::byte> blocks) {
  OCTAVO_CHECK(header_written_ && row_ < rows_.size());
  const Row& row = rows_[row_];
  OCTAVO_CHECK(blocks.size() <= row.size - written_);
  sink_(blocks);
  written_ += blocks.size();
  if (written_ < row.size) return;
  Pad(row.size);
  ++row_;
  written_ = 0;
}

void GgufWriter::Finish() { OCTAVO_CHECK(header_written_ && row_ == rows_.size()); }

}  // namespace octavo
