// Files of token ids: .bin of llm.c (a header of 256 int32, then uint16 or uint32) and of nanoGPT (bare uint16), and
// one-dimensional .npy. Views the mapped bytes; copies nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace octavo::data {

enum class TokenWidth : uint8_t { kU16, kU32, kI32, kI64 };

// Ids in a file's bytes, which must outlive it.
class TokenView {
 public:
  TokenView(const std::byte* data, int64_t size, TokenWidth width) : data_(data), size_(size), width_(width) {}

  int64_t size() const { return size_; }
  TokenWidth width() const { return width_; }
  int64_t At(int64_t index) const;

 private:
  const std::byte* data_;
  int64_t size_;
  TokenWidth width_;
};

// `format`: llmc, nanogpt, or auto, which takes a file with llm.c's magic number as llmc and every other as nanogpt.
// Throws a file Error that begins with `name`: wrong magic or version, a count that is not the file's, half a token.
TokenView ReadTokenBin(std::span<const std::byte> bytes, std::string_view format, const std::string& name);

// Throws a file Error for anything but a little-endian vector of uint16, uint32, int32 or int64.
TokenView ReadTokenNpy(std::span<const std::byte> bytes, const std::string& name);

}  // namespace octavo::data
