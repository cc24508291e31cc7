#include "octavo/text/template_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "octavo/text/template_case_table.h"

namespace octavo::text::jinja {
namespace {

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

const SpecialCase* FindSpecialCase(char32_t c) {
  const auto found = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                      [](const SpecialCase& entry, char32_t value) { return entry.from < value; });
  return found != std::end(kSpecialCases) && found->from == c ? found : nullptr;
}

void AppendAll(const char32_t (&chars)[3], std::string* out) {
  for (char32_t c : chars)
    if (c != 0) AppendChar(c, out);
}

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Apostrophes, accents and the like, which the final sigma rule looks through (Case_Ignorable, main classes).
bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

// A sigma is final when a cased letter stands before it and none behind it.
bool IsFinalSigma(std::string_view text, size_t position) {
  size_t before = position;
  bool cased_before = false;
  while (before > 0) {
    const char32_t c = PreviousChar(text, &before);
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  size_t after = position;
  NextChar(text, &after);
  while (after < text.size()) {
    const char32_t c = NextChar(text, &after);
    if (IsCaseIgnorable(c)) continue;
    return !IsCased(c);
  }
  return true;
}

}  // namespace

bool IsAscii(std::string_view bytes) {
  unsigned char all = 0;
  for (char byte : bytes) all |= static_cast<unsigned char>(byte);
  return all < 0x80;
}

bool IsValidUtf8(std::string_view bytes) {
  if (IsAscii(bytes)) return true;
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
  size_t position = 0;
  while (position < bytes.size()) {
    utf8proc_int32_t c;
    const utf8proc_ssize_t taken =
        utf8proc_iterate(data + position, static_cast<utf8proc_ssize_t>(bytes.size() - position), &c);
    if (taken <= 0) return false;
    position += static_cast<size_t>(taken);
  }
  return true;
}

size_t CountChars(std::string_view bytes) {
  size_t count = 0;
  for (char byte : bytes) count += !IsContinuation(byte);
  return count;
}

size_t ByteOffset(std::string_view bytes, size_t index) {
  size_t position = 0;
  for (; position < bytes.size(); ++position) {
    if (IsContinuation(bytes[position])) continue;
    if (index == 0) return position;
    --index;
  }
  return position;
}

char32_t NextChar(std::string_view bytes, size_t* position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[*position + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    *position += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t c = ((lead & 0x1Fu) << 6) | (byte(1) & 0x3Fu);
    *position += 2;
    return c;
  }
  if (lead < 0xF0) {
    const char32_t c = ((lead & 0x0Fu) << 12) | ((byte(1) & 0x3Fu) << 6) | (byte(2) & 0x3Fu);
    *position += 3;
    return c;
  }
  const char32_t c = ((lead & 0x07u) << 18) | ((byte(1) & 0x3Fu) << 12) | ((byte(2) & 0x3Fu) << 6) | (byte(3) & 0x3Fu);
  *position += 4;
  return c;
}

char32_t PreviousChar(std::string_view bytes, size_t* position) {
  size_t start = *position - 1;
  while (start > 0 && IsContinuation(bytes[start])) --start;
  *position = start;
  size_t again = start;
  return NextChar(bytes, &again);
}

void AppendChar(char32_t c, std::string* bytes) {
  if (c < 0x80) {
    bytes->push_back(static_cast<char>(c));
    return;
  }
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  bytes->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(size));
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsLower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) || Category(c) == UTF8PROC_CATEGORY_LL;
}

bool IsUpper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return Category(c) == UTF8PROC_CATEGORY_LU || (utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) && !IsTitle(c));
}

bool IsTitle(char32_t c) { return c >= 0x80 && Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsCased(char32_t c) { return IsLower(c) || IsUpper(c) || IsTitle(c); }

bool IsAlpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT ||
         category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t c) {
  // Superscripts, subscripts and circled digits are digits without being decimals.
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || (c >= 0x2776 && c <= 0x277E);
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return IsDecimal(c);
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsIdentifierStart(char32_t c) { return c == '_' || IsAlpha(c) || Category(c) == UTF8PROC_CATEGORY_NL; }

bool IsIdentifierPart(char32_t c) {
  if (c < 0x80) return c == '_' || IsAlpha(c) || IsDecimal(c);
  const utf8proc_category_t category = Category(c);
  return IsIdentifierStart(c) || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_MN ||
         category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_PC || c == 0xB7;
}

bool IsWordChar(char32_t c) { return c == '_' || IsAlpha(c) || IsNumeric(c); }

void AppendUpper(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (const SpecialCase* special = FindSpecialCase(c)) {
    AppendAll(special->upper, out);
  } else {
    AppendChar(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, std::string* out) {
  if (c < 0x80) {
    AppendUpper(c, out);
  } else if (const SpecialCase* special = FindSpecialCase(c)) {
    AppendAll(special->title, out);
  } else {
    AppendChar(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendFolded(char32_t c, std::string* out) {
  utf8proc_int32_t folded[4];
  int boundclass = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 4, UTF8PROC_CASEFOLD, &boundclass);
  for (utf8proc_ssize_t i = 0; i < count && i < 4; ++i) AppendChar(static_cast<char32_t>(folded[i]), out);
}

void AppendLower(char32_t c, std::string_view text, size_t position, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    AppendChar('i', out);
    AppendChar(0x307, out);
  } else if (c == 0x3A3) {
    AppendChar(IsFinalSigma(text, position) ? 0x3C2 : 0x3C3, out);
  } else {
    AppendChar(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

}  // namespace octavo::text::jinja
