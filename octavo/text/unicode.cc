#include "octavo/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <vector>

namespace octavo::text {
namespace {

struct CategoryRange {
  uint32_t first, last;
  uint8_t category;
};

enum : uint8_t {
  Lu = UTF8PROC_CATEGORY_LU,
  Ll = UTF8PROC_CATEGORY_LL,
  Lm = UTF8PROC_CATEGORY_LM,
  Lo = UTF8PROC_CATEGORY_LO,
  Mn = UTF8PROC_CATEGORY_MN,
  Mc = UTF8PROC_CATEGORY_MC,
  Nd = UTF8PROC_CATEGORY_ND,
  Pd = UTF8PROC_CATEGORY_PD,
  Po = UTF8PROC_CATEGORY_PO,
  Sm = UTF8PROC_CATEGORY_SM,
  So = UTF8PROC_CATEGORY_SO,
};

// Characters that Unicode 15.1 and 16 assigned: utf8proc 2.8 calls them unassigned.
constexpr CategoryRange kAssignedSince15[] = {
    {0x897, 0x897, Mn},     {0x1B4E, 0x1B4F, Po},   {0x1B7F, 0x1B7F, Po},   {0x1C89, 0x1C89, Lu},
    {0x1C8A, 0x1C8A, Ll},   {0x2427, 0x2429, So},   {0x2FFC, 0x2FFF, So},   {0x31E4, 0x31E5, So},
    {0x31EF, 0x31EF, So},   {0xA7CB, 0xA7CC, Lu},   {0xA7CD, 0xA7CD, Ll},   {0xA7DA, 0xA7DA, Lu},
    {0xA7DB, 0xA7DB, Ll},   {0xA7DC, 0xA7DC, Lu},   {0x105C0, 0x105F3, Lo}, {0x10D40, 0x10D49, Nd},
    {0x10D4A, 0x10D4D, Lo}, {0x10D4E, 0x10D4E, Lm}, {0x10D4F, 0x10D4F, Lo}, {0x10D50, 0x10D65, Lu},
    {0x10D69, 0x10D6D, Mn}, {0x10D6E, 0x10D6E, Pd}, {0x10D6F, 0x10D6F, Lm}, {0x10D70, 0x10D85, Ll},
    {0x10D8E, 0x10D8F, Sm}, {0x10EC2, 0x10EC4, Lo}, {0x10EFC, 0x10EFC, Mn}, {0x11380, 0x11389, Lo},
    {0x1138B, 0x1138B, Lo}, {0x1138E, 0x1138E, Lo}, {0x11390, 0x113B5, Lo}, {0x113B7, 0x113B7, Lo},
    {0x113B8, 0x113BA, Mc}, {0x113BB, 0x113C0, Mn}, {0x113C2, 0x113C2, Mc}, {0x113C5, 0x113C5, Mc},
    {0x113C7, 0x113CA, Mc}, {0x113CC, 0x113CD, Mc}, {0x113CE, 0x113CE, Mn}, {0x113CF, 0x113CF, Mc},
    {0x113D0, 0x113D0, Mn}, {0x113D1, 0x113D1, Lo}, {0x113D2, 0x113D2, Mn}, {0x113D3, 0x113D3, Lo},
    {0x113D4, 0x113D5, Po}, {0x113D7, 0x113D8, Po}, {0x113E1, 0x113E2, Mn}, {0x116D0, 0x116E3, Nd},
    {0x11BC0, 0x11BE0, Lo}, {0x11BE1, 0x11BE1, Po}, {0x11BF0, 0x11BF9, Nd}, {0x11F5A, 0x11F5A, Mn},
    {0x13460, 0x143FA, Lo}, {0x16100, 0x1611D, Lo}, {0x1611E, 0x16129, Mn}, {0x1612A, 0x1612C, Mc},
    {0x1612D, 0x1612F, Mn}, {0x16130, 0x16139, Nd}, {0x16D40, 0x16D42, Lm}, {0x16D43, 0x16D6A, Lo},
    {0x16D6B, 0x16D6C, Lm}, {0x16D6D, 0x16D6F, Po}, {0x16D70, 0x16D79, Nd}, {0x18CFF, 0x18CFF, Lo},
    {0x1CC00, 0x1CCEF, So}, {0x1CCF0, 0x1CCF9, Nd}, {0x1CD00, 0x1CEB3, So}, {0x1E5D0, 0x1E5ED, Lo},
    {0x1E5EE, 0x1E5EF, Mn}, {0x1E5F0, 0x1E5F0, Lo}, {0x1E5F1, 0x1E5FA, Nd}, {0x1E5FF, 0x1E5FF, Po},
    {0x1F8B2, 0x1F8BB, So}, {0x1F8C0, 0x1F8C1, So}, {0x1FA89, 0x1FA89, So}, {0x1FA8F, 0x1FA8F, So},
    {0x1FABE, 0x1FABE, So}, {0x1FAC6, 0x1FAC6, So}, {0x1FADC, 0x1FADC, So}, {0x1FADF, 0x1FADF, So},
    {0x1FAE9, 0x1FAE9, So}, {0x1FBCB, 0x1FBEF, So}, {0x2EBF0, 0x2EE5D, Lo},
};

// Characters that gained a decomposition after the version that the reference library normalizes with.
struct Range32 {
  uint32_t first, last;
};
constexpr Range32 kLaterDecompositions[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                            {0x10781, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D},
                                            {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

bool DecomposesLater(char32_t c) {
  if (c < 0x32FF) return false;
  return std::any_of(std::begin(kLaterDecompositions), std::end(kLaterDecompositions),
                     [c](Range32 range) { return c >= range.first && c <= range.last; });
}

bool IsWhiteSpaceProperty(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

uint16_t ClassBits(int category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpperish;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLowerish;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kUpperish | kLowerish;
    case UTF8PROC_CATEGORY_MN:
      return kMark | kNonspacing | kUpperish | kLowerish;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark | kUpperish | kLowerish;
    case UTF8PROC_CATEGORY_ND:
      return kNumber | kDecimal;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
      return kPunctuation | kConnector;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return kControl;
    default:
      return 0;
  }
}

constexpr bool IsHangulSyllable(char32_t c) { return c >= 0xAC00 && c < 0xAC00 + 11172; }

// True unless NFC_Quick_Check is Yes: the character changes under NFC or may compose with the one before it.
bool NfcMayChange(char32_t c, const utf8proc_property_t& property) {
  if (c < 0x300 || IsHangulSyllable(c)) return false;
  if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) return true;  // Hangul vowels and finals
  if (property.comb_index != UINT16_MAX && (property.comb_index & 0x8000) != 0) return true;
  if (property.decomp_seqindex == UINT16_MAX || property.decomp_type != 0) return false;
  // It has a canonical decomposition. Composing the parts in order gives it back, or it changes.
  char32_t parts[kMaxDecomposition];
  const int count = Decompose(c, false, parts);
  if (count == 1) return parts[0] != c;
  char32_t composed = parts[0];
  for (int i = 1; i < count && composed != 0; ++i) composed = Compose(composed, parts[i]);
  return composed != c;
}

uint16_t ComputeClass(char32_t c) {
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  int category = property.category;
  if (category == UTF8PROC_CATEGORY_CN) {
    const auto* range = std::upper_bound(std::begin(kAssignedSince15), std::end(kAssignedSince15), c,
                                         [](char32_t value, const CategoryRange& r) { return value < r.first; });
    if (range != std::begin(kAssignedSince15) && c <= (range - 1)->last) category = (range - 1)->category;
  }
  uint16_t bits = ClassBits(category);
  if (IsWhiteSpaceProperty(c)) bits |= kSpace;
  if (NfcMayChange(c, property)) bits |= kNfcChecked;
  return bits;
}

}  // namespace

const CharClasses& CharClasses::Table() {
  static const CharClasses table;
  return table;
}

CharClasses::CharClasses() {
  blocks_.assign(256, 0);  // block 0: nothing assigned
  constexpr Range32 kPopulated[] = {{0, 0x323FF}, {0xE0000, 0xE01FF}};
  for (Range32 range : kPopulated) {
    for (uint32_t start = range.first; start <= range.last; start += 256) AddBlock(start);
  }
  std::vector<uint16_t> private_use(256, kControl);
  const uint16_t block = Intern(private_use);
  for (uint32_t start = 0xF0000; start < 0x110000; start += 256) block_of_[start >> 8] = block;
  // The last two characters of a plane are noncharacters, not private use.
  private_use[254] = private_use[255] = 0;
  block_of_[0xFFF] = block_of_[0x10FF] = Intern(private_use);
}

void CharClasses::AddBlock(uint32_t start) {
  std::vector<uint16_t> block(256);
  for (uint32_t i = 0; i < 256; ++i) block[i] = ComputeClass(start + i);
  block_of_[start >> 8] = Intern(block);
}

uint16_t CharClasses::Intern(const std::vector<uint16_t>& block) {
  // Long stretches (ideographs, syllables) repeat the previous block, so looking back from the end is short.
  for (size_t at = blocks_.size(); at >= 256; at -= 256) {
    if (std::equal(block.begin(), block.end(), blocks_.begin() + static_cast<ptrdiff_t>(at - 256))) {
      return static_cast<uint16_t>(at / 256 - 1);
    }
  }
  blocks_.insert(blocks_.end(), block.begin(), block.end());
  return static_cast<uint16_t>(blocks_.size() / 256 - 1);
}

bool IsWordChar(char32_t c) {
  const uint16_t bits = ClassOf(c);
  if ((bits & (kLetter | kMark | kDecimal | kConnector)) != 0 || c == 0x200C || c == 0x200D) return true;
  if ((bits & kNumber) != 0) return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_NL;
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

uint8_t CombiningClass(char32_t c) {
  if (c < 0x300) return 0;
  return static_cast<uint8_t>(utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
}

int LowerCase(char32_t c, char32_t out[2]) {
  if (c < 0x80) {
    out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
    return 1;
  }
  if (c == 0x130) {  // capital I with dot: i and a combining dot
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  out[0] = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  return 1;
}

int Decompose(char32_t c, bool compatible, char32_t out[kMaxDecomposition]) {
  const bool has_none =
      !IsHangulSyllable(c) && utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex == UINT16_MAX;
  if (c < 0xA0 || has_none || DecomposesLater(c)) {
    out[0] = c;
    return 1;
  }
  utf8proc_int32_t buffer[kMaxDecomposition];
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, kMaxDecomposition,
                                                         static_cast<utf8proc_option_t>(options), nullptr);
  if (count < 1 || count > kMaxDecomposition) {
    out[0] = c;
    return 1;
  }
  for (int i = 0; i < count; ++i) out[i] = static_cast<char32_t>(buffer[i]);
  return static_cast<int>(count);
}

char32_t Compose(char32_t first, char32_t second) {
  if (second < 0x300) return 0;
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second)};
  const int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(pair, 2, static_cast<utf8proc_option_t>(options));
  if (count != 1 || DecomposesLater(static_cast<char32_t>(pair[0]))) return 0;
  return static_cast<char32_t>(pair[0]);
}

int ValidLength(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const size_t left = text.size();
  if (left == 0) return 0;
  if (p[0] < 0x80) return 1;
  const auto continues = [&](size_t i) { return i < left && (p[i] & 0xC0) == 0x80; };
  if (p[0] >= 0xC2 && p[0] <= 0xDF) return continues(1) ? 2 : 0;
  if (p[0] >= 0xE0 && p[0] <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)) return 0;
    return 3;
  }
  if (p[0] >= 0xF0 && p[0] <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | c >> 12));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | c >> 18));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

namespace {

// Bytes at the front that are ASCII, eight at a time.
size_t AsciiPrefix(std::string_view text) {
  size_t at = 0;
  while (at + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// Length of the longest prefix of a well-formed character at the front of ill-formed text, at least 1.
size_t MaximalSubpart(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char lead = p[0];
  const size_t wanted = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 1;
  size_t length = 1;
  while (length < wanted && length < text.size()) {
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (length == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (p[length] < low || p[length] > high) break;
    ++length;
  }
  return length;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  while (true) {
    text.remove_prefix(AsciiPrefix(text));
    if (text.empty()) return true;
    // Runs of non-ASCII are common in most scripts: stay here while they last.
    while (!text.empty() && static_cast<unsigned char>(text[0]) >= 0x80) {
      const int length = ValidLength(text);
      if (length == 0) return false;
      text.remove_prefix(static_cast<size_t>(length));
    }
  }
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t good = AsciiPrefix(text);
    while (good < text.size()) {
      const int length = ValidLength(text.substr(good));
      if (length == 0) break;
      good += static_cast<size_t>(length);
    }
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    out.append("\xEF\xBF\xBD");
    text.remove_prefix(MaximalSubpart(text));
  }
  return out;
}

size_t CountChars(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !IsContinuation(byte); }));
}

}  // namespace octavo::text
