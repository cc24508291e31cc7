#include "octavo/data/token_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "octavo/base/error.h"

namespace octavo::data {
namespace {

constexpr size_t kHeaderBytes = 256 * 4;
constexpr int32_t kMagicU16 = 20240520, kMagicU32 = 20240801;
constexpr int32_t kVersionU16 = 1, kVersionU32 = 7;
constexpr size_t kMostNpyHeader = 64 << 10;

int64_t BytesOf(TokenWidth width) { return width == TokenWidth::kU16 ? 2 : width == TokenWidth::kI64 ? 8 : 4; }

int32_t HeaderWord(std::span<const std::byte> bytes, size_t index) {
  int32_t word = 0;
  if (bytes.size() >= (index + 1) * 4) std::memcpy(&word, bytes.data() + index * 4, 4);
  return word;
}

// Other things that are called .bin, recognized so that nobody trains on them.
void RefuseOtherFormats(std::span<const std::byte> bytes, const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kKnown[] = {
      {"PK\x03\x04", "a zip archive (PyTorch weights?)"},
      {"\x80\x02", "a Python pickle"},
      {"GGUF", "a GGUF model"},
      {"\x1f\x8b", "gzip data; name it .bin.gz"},
      {"\x28\xb5\x2f\xfd", "zstd data; name it .bin.zst"},
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const auto& [magic, what] : kKnown) {
    if (text.starts_with(magic)) ThrowFile("{} is {}, not a file of tokens", name, what);
  }
}

TokenView ReadLlmc(std::span<const std::byte> bytes, const std::string& name) {
  const int32_t magic = HeaderWord(bytes, 0), version = HeaderWord(bytes, 1), count = HeaderWord(bytes, 2);
  const bool wide = magic == kMagicU32;
  if (bytes.size() < kHeaderBytes) {
    ThrowFile("{}: {} bytes, but the header of llm.c alone has {}", name, bytes.size(), kHeaderBytes);
  }
  if (magic != kMagicU16 && magic != kMagicU32) {
    throw Error(ErrorCode::kFile,
                fmt::format("{}: magic number {}, expected {} or {}", name, magic, kMagicU16, kMagicU32),
                "a file of bare uint16 is token_format=nanogpt");
  }
  if (version != (wide ? kVersionU32 : kVersionU16)) {
    ThrowFile("{}: version {} of llm.c's format, expected {}", name, version, wide ? kVersionU32 : kVersionU16);
  }
  const TokenWidth width = wide ? TokenWidth::kU32 : TokenWidth::kU16;
  const uint64_t expected =
      kHeaderBytes + static_cast<uint64_t>(std::max(count, 0)) * static_cast<uint64_t>(BytesOf(width));
  if (count < 0 || expected != bytes.size()) {
    throw Error(ErrorCode::kFile,
                fmt::format("{}: its header says {} tokens, {} bytes in all, but it has {}", name, count, expected,
                            bytes.size()),
                bytes.size() < expected ? "the file is truncated" : "the file was written to after its header");
  }
  return {bytes.data() + kHeaderBytes, count, width};
}

// A value of the header's dictionary, as text: 'descr': '<u2' gives '<u2'.
std::optional<std::string_view> Field(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const bool tuple = rest.starts_with('(');
  const size_t end = tuple ? rest.find(')') : rest.find_first_of(",}");
  if (end == std::string_view::npos) return std::nullopt;
  return rest.substr(0, end + (tuple ? 1 : 0));
}

std::optional<TokenWidth> WidthOf(std::string_view descr) {
  if (descr == "'<u2'") return TokenWidth::kU16;
  if (descr == "'<u4'") return TokenWidth::kU32;
  if (descr == "'<i4'") return TokenWidth::kI32;
  if (descr == "'<i8'") return TokenWidth::kI64;
  return std::nullopt;
}

// The length in "(123,)"; nothing when it is not one-dimensional.
std::optional<int64_t> LengthOf(std::string_view shape) {
  int64_t length = 0;
  if (!shape.starts_with('(')) return std::nullopt;
  const auto [end, error] = std::from_chars(shape.data() + 1, shape.data() + shape.size(), length);
  const std::string_view rest(end, static_cast<size_t>(shape.data() + shape.size() - end));
  if (error != std::errc() || length < 0 || (rest != ",)" && rest != ")")) return std::nullopt;
  return length;
}

// The header's text and where the data begins.
std::pair<std::string_view, size_t> NpyHeader(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with("\x93NUMPY") || text.size() < 12) {
    ThrowFile("{} does not begin like a .npy file", name);
  }
  const int major = static_cast<unsigned char>(text[6]);
  if (major < 1 || major > 3) ThrowFile("{}: version {} of the .npy format, expected 1, 2 or 3", name, major);
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(text[i])); };
  const size_t start = major == 1 ? 10 : 12;
  const size_t length = major == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > kMostNpyHeader || start + length > text.size()) {
    ThrowFile("{}: its header says it has {} bytes, the file has {}", name, length, text.size());
  }
  return {text.substr(start, length), start + length};
}

}  // namespace

int64_t TokenView::At(int64_t index) const {
  const std::byte* at = data_ + index * BytesOf(width_);
  switch (width_) {
    case TokenWidth::kU16: {
      uint16_t value;
      return std::memcpy(&value, at, 2), value;
    }
    case TokenWidth::kU32: {
      uint32_t value;
      return std::memcpy(&value, at, 4), value;
    }
    case TokenWidth::kI32: {
      int32_t value;
      return std::memcpy(&value, at, 4), value;
    }
    default: {
      int64_t value;
      return std::memcpy(&value, at, 8), value;
    }
  }
}

TokenView ReadTokenBin(std::span<const std::byte> bytes, std::string_view format, const std::string& name) {
  RefuseOtherFormats(bytes, name);
  const int32_t magic = HeaderWord(bytes, 0);
  if (format == "llmc" || (format == "auto" && (magic == kMagicU16 || magic == kMagicU32)))
    return ReadLlmc(bytes, name);
  if (bytes.size() % 2 != 0) {
    throw Error(ErrorCode::kFile,
                fmt::format("{}: {} bytes, an odd number, cannot be uint16 tokens", name, bytes.size()),
                "the file is truncated, or not a file of tokens");
  }
  return {bytes.data(), static_cast<int64_t>(bytes.size() / 2), TokenWidth::kU16};
}

TokenView ReadTokenNpy(std::span<const std::byte> bytes, const std::string& name) {
  const auto [header, begin] = NpyHeader(bytes, name);
  const std::optional<std::string_view> descr = Field(header, "descr"), shape = Field(header, "shape");
  if (!descr || !shape) ThrowFile("{}: no 'descr' or 'shape' in its header", name);
  const std::optional<TokenWidth> width = WidthOf(*descr);
  if (!width) {
    throw Error(ErrorCode::kFile,
                fmt::format("{}: dtype {}, expected '<u2', '<u4', '<i4' or '<i8'", name, descr->substr(0, 32)),
                "save tokens with numpy: tokens.astype('uint16')");
  }
  const std::optional<int64_t> length = LengthOf(*shape);
  if (!length) {
    throw Error(ErrorCode::kFile, fmt::format("{}: shape {}, expected one dimension", name, shape->substr(0, 32)),
                "save tokens.reshape(-1)");
  }
  const uint64_t available = (bytes.size() - begin) / static_cast<uint64_t>(BytesOf(*width));
  if (static_cast<uint64_t>(*length) > available ||
      bytes.size() - begin != static_cast<uint64_t>(*length) * static_cast<uint64_t>(BytesOf(*width))) {
    ThrowFile("{}: its header says {} tokens, the file has room for {}", name, *length, available);
  }
  return {bytes.data() + begin, *length, *width};
}

}  // namespace octavo::data
