// Writes GGUF files, version 3: keys and the table of tensors first, then the data of one tensor after the other, so
// that a model need not be in memory. Used by the converter. The bytes go to a sink, for example a FilePublisher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/ggml_types.h"
#include "octavo/checkpoint/gguf.h"

namespace octavo {

class GgufWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  explicit GgufWriter(Sink sink) : sink_(std::move(sink)) {}

  // Keys, in the order they are added. The same key twice is a usage error.
  void Text(std::string_view key, std::string_view value);
  void U32(std::string_view key, uint32_t value);
  void F32(std::string_view key, float value);
  void Bool(std::string_view key, bool value);
  void Texts(std::string_view key, std::span<const std::string> values);
  void U8s(std::string_view key, std::span<const uint8_t> values);
  void I32s(std::string_view key, std::span<const int32_t> values);
  void F32s(std::string_view key, std::span<const float> values);

  // Announces a tensor, slowest axis first. A name or shape that the format cannot hold is a usage error.
  void Tensor(std::string_view name, GgmlType type, std::span<const int64_t> shape);

  // Writes everything announced; nothing can be added after it.
  void WriteHeader();
  // The blocks of the next tensor, in the order they were announced, whole or in pieces.
  void Write(std::span<const std::byte> blocks);
  // All tensors must have been written.
  void Finish();

 private:
  struct Row {
    std::string name;
    GgmlType type;
    std::vector<int64_t> shape;
    uint64_t offset, size;
  };
  void Key(std::string_view key, GgufValueType type);
  void Array(std::string_view key, GgufValueType type, uint64_t count);
  void Pad(uint64_t position);

  Sink sink_;
  std::vector<std::string> keys_;
  std::string values_;  // the keys with their values, as they go into the file
  std::vector<Row> rows_;
  uint64_t data_end_ = 0;  // of the rows so far, padded
  bool header_written_ = false;
  size_t row_ = 0;        // that is being written
  uint64_t written_ = 0;  // bytes of it
};

}  // namespace octavo
