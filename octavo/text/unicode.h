// UTF-8 and the properties of characters that tokenizers ask for: classes, case, decomposition, composition. Used by
// the normalizers, the pre-tokenizers and the hand-written scanners. Unicode 16, which is what the reference library's
// regex engine has: the tables of utf8proc (Unicode 15) plus the characters assigned since. Normalization forms live in
// unicode_normalize.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text {

// Bits of a character's class. A character may have several.
enum CharClass : uint16_t {
  kLetter = 1 << 0,       // L
  kNumber = 1 << 1,       // N
  kSpace = 1 << 2,        // White_Space
  kMark = 1 << 3,         // M
  kPunctuation = 1 << 4,  // P
  kSymbol = 1 << 5,       // S
  kUpperish = 1 << 6,     // Lu Lt Lm Lo M: may start a word in the o200k pattern
  kLowerish = 1 << 7,     // Ll Lm Lo M: may continue it
  kConnector = 1 << 8,    // Pc
  kDecimal = 1 << 9,      // Nd
  kNonspacing = 1 << 10,  // Mn
  kControl = 1 << 11,     // Cc Cf Co
  kNfcChecked = 1 << 12,  // not NFC_Quick_Check=Yes: text that holds one must be normalized to know
};

// The classes of all characters in two stages: a block number for each 256 characters, and the distinct blocks.
class CharClasses {
 public:
  // The one table, a constant made at the first call.
  static const CharClasses& Table();

  uint16_t operator()(char32_t c) const {
    return c < 0x110000 ? blocks_[block_of_[c >> 8] * 256u + (c & 0xFF)] : uint16_t{0};
  }

 private:
  CharClasses();
  void AddBlock(uint32_t start);
  uint16_t Intern(const std::vector<uint16_t>& block);

  std::array<uint16_t, 0x1100> block_of_{};
  std::vector<uint16_t> blocks_;
};

inline uint16_t ClassOf(char32_t c) { return CharClasses::Table()(c); }
inline bool IsSpace(char32_t c) { return (ClassOf(c) & kSpace) != 0; }

// \w of the reference library's regular expressions: Alphabetic, marks, decimal numbers, connectors, joiners.
bool IsWordChar(char32_t c);

// Canonical combining class.
uint8_t CombiningClass(char32_t c);

// Full lower-case mapping of one character without context, at most two characters; returns how many.
int LowerCase(char32_t c, char32_t out[2]);

// Full decomposition of one character (canonical, or compatible when `compatible`), at most 18 characters; returns how
// many. A character without one gives itself.
constexpr int kMaxDecomposition = 18;
int Decompose(char32_t c, bool compatible, char32_t out[kMaxDecomposition]);

// The primary composite of two characters, or 0.
char32_t Compose(char32_t first, char32_t second);

// Length in bytes of the well-formed character at `text[0]`, or 0 where the bytes are not UTF-8.
int ValidLength(std::string_view text);

// Decodes one character of *valid* UTF-8 at `text` and advances past it.
inline char32_t NextChar(const char*& text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text);
  if (p[0] < 0x80) {
    text += 1;
    return p[0];
  }
  if (p[0] < 0xE0) {
    text += 2;
    return static_cast<char32_t>((p[0] & 0x1F) << 6 | (p[1] & 0x3F));
  }
  if (p[0] < 0xF0) {
    text += 3;
    return static_cast<char32_t>((p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F));
  }
  text += 4;
  return static_cast<char32_t>((p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | (p[3] & 0x3F));
}

// Bytes of the UTF-8 form of `c`, and of the character that starts with `lead` in valid UTF-8.
inline int Utf8Length(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }
inline int LeadLength(unsigned char lead) { return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }
inline bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

void AppendUtf8(char32_t c, std::string& out);

bool IsValidUtf8(std::string_view text);

// `text` with every maximal ill-formed piece replaced by U+FFFD, as decoders of the web and Python do it.
std::string ReplaceInvalidUtf8(std::string_view text);

// Number of characters of valid UTF-8.
size_t CountChars(std::string_view text);

}  // namespace octavo::text
