#include "octavo/text/tokenizer_bytechars.h"

#include <vector>

#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<char32_t, 256> MakeTable() {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    table[static_cast<size_t>(byte)] = IsPrintable(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return table;
}

constexpr std::array<char32_t, 256> kTable = MakeTable();

constexpr std::array<int16_t, 324> MakeInverse() {
  std::array<int16_t, 324> inverse{};
  for (int16_t& entry : inverse) entry = -1;
  for (int16_t byte = 0; byte < 256; ++byte) inverse[kTable[static_cast<size_t>(byte)]] = byte;
  return inverse;
}

constexpr std::array<int16_t, 324> kInverse = MakeInverse();

}  // namespace

const std::array<char32_t, 256>& ByteChars256() { return kTable; }

int ByteOfChar(char32_t c) { return c < kInverse.size() ? kInverse[c] : -1; }

std::string BytesToChars(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char byte : bytes) AppendUtf8(kTable[static_cast<unsigned char>(byte)], out);
  return out;
}

std::optional<std::string> CharsToBytes(std::string_view chars) {
  std::string out;
  const char* at = chars.data();
  const char* const end = at + chars.size();
  while (at < end) {
    const int byte = ByteOfChar(NextChar(at));
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

void MapToByteChars(AlignedText& text) {
  std::vector<CharChange> changes;
  changes.reserve(text.text().size());
  for (char byte : text.text()) {
    changes.push_back({kTable[static_cast<unsigned char>(byte)], IsContinuation(byte) ? 1 : 0});
  }
  text.Transform(changes, 0);
}

}  // namespace octavo::text
