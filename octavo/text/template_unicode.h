// Characters for the template engine: UTF-8 walking, and the classes and case mappings that Python's str methods use.
// Every function that takes text expects valid UTF-8; IsValidUtf8 is the door.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace octavo::text::jinja {

bool IsValidUtf8(std::string_view bytes);
bool IsAscii(std::string_view bytes);
size_t CountChars(std::string_view bytes);
// Byte offset of character `index`; the size of `bytes` when there are fewer characters.
size_t ByteOffset(std::string_view bytes, size_t index);
// The character at byte `position`, which moves behind it.
char32_t NextChar(std::string_view bytes, size_t* position);
// The character that ends at byte `*position`, which moves to its first byte.
char32_t PreviousChar(std::string_view bytes, size_t* position);
void AppendChar(char32_t c, std::string* bytes);

bool IsSpace(char32_t c);      // str.isspace, str.strip
bool IsLineBreak(char32_t c);  // str.splitlines
bool IsLower(char32_t c);
bool IsUpper(char32_t c);
bool IsTitle(char32_t c);
bool IsCased(char32_t c);
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsPrintable(char32_t c);  // what repr() leaves as it is
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);
bool IsWordChar(char32_t c);  // \w of regular expressions

// Full case mappings; `out` gets one to three characters.
void AppendUpper(char32_t c, std::string* out);
void AppendTitle(char32_t c, std::string* out);
void AppendFolded(char32_t c, std::string* out);
// `text` and `position` (of c's first byte) decide about the final sigma.
void AppendLower(char32_t c, std::string_view text, size_t position, std::string* out);

}  // namespace octavo::text::jinja
