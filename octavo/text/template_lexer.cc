#include "octavo/text/template_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "octavo/text/template_error.h"
#include "octavo/text/template_number.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}
  std::vector<TokenInfo> Run();

 private:
  [[noreturn]] void Fail(const std::string& message, size_t position) const;
  char At(size_t position) const { return position < source_.size() ? source_[position] : '\0'; }
  bool StartsWith(size_t position, std::string_view text) const {
    return source_.substr(position, text.size()) == text;
  }
  size_t SkipSpace(size_t position) const;
  int LineAt(size_t position);
  void Emit(Token type, size_t position, std::string text = "");

  void LexRoot();
  void EmitData(size_t begin, size_t end, char sign, bool variable);
  std::optional<size_t> MatchRaw() const;
  void LexRaw(size_t tag, size_t begin);
  void LexComment(size_t tag);
  void LexTag(bool variable);
  bool LexTagEnd(bool variable);
  void LexName();
  void LexString();
  bool LexNumber();
  void LexOperator();
  size_t MatchInteger() const;
  size_t MatchFloat() const;
  size_t DigitGroups(size_t position) const;
  void Balance(std::string_view op);

  std::string_view source_;
  size_t position_ = 0;
  bool line_starting_ = true;  // the last token ended with a newline
  std::vector<char> brackets_;
  std::vector<TokenInfo> tokens_;
  size_t counted_ = 0;  // newlines before this byte are in line_
  int line_ = 1;
};

void Lexer::Fail(const std::string& message, size_t position) const {
  const auto line = 1 + std::count(source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(position), '\n');
  throw TemplateError(ErrorCode::kFile, "TemplateSyntaxError", message, static_cast<int>(line), "",
                      Excerpt(source_, position));
}

int Lexer::LineAt(size_t position) {
  for (; counted_ < position; ++counted_) line_ += source_[counted_] == '\n';
  return line_;
}

void Lexer::Emit(Token type, size_t position, std::string text) {
  TokenInfo token;
  token.type = type;
  token.line = LineAt(position);
  token.position = position;
  token.text = std::move(text);
  tokens_.push_back(std::move(token));
}

size_t Lexer::SkipSpace(size_t position) const {
  while (position < source_.size()) {
    size_t next = position;
    if (!IsSpace(NextChar(source_, &next))) break;
    position = next;
  }
  return position;
}

std::vector<TokenInfo> Lexer::Run() {
  while (position_ < source_.size()) LexRoot();
  Emit(Token::kEnd, source_.size());
  return std::move(tokens_);
}

void Lexer::LexRoot() {
  size_t tag = position_;
  while (true) {
    tag = source_.find('{', tag);
    if (tag == std::string_view::npos) {
      Emit(Token::kData, position_, std::string(source_.substr(position_)));
      position_ = source_.size();
      return;
    }
    const char next = At(tag + 1);
    if (next == '{' || next == '%' || next == '#') break;
    ++tag;
  }
  const char kind = At(tag + 1);
  const char sign = At(tag + 2) == '-' || At(tag + 2) == '+' ? At(tag + 2) : '\0';
  EmitData(position_, tag, sign, kind == '{');
  position_ = tag + (sign != '\0' ? 3 : 2);
  if (kind == '#') {
    LexComment(tag);
  } else if (kind == '{') {
    Emit(Token::kVariableBegin, tag);
    LexTag(true);
  } else if (const std::optional<size_t> body = MatchRaw()) {
    LexRaw(tag, *body);
  } else {
    Emit(Token::kBlockBegin, tag);
    LexTag(false);
  }
}

// Text before a tag: '-' strips all blanks at its end, lstrip_blocks strips those between a newline and a block.
void Lexer::EmitData(size_t begin, size_t end, char sign, bool variable) {
  if (sign == '-') {
    while (end > begin) {
      size_t previous = end;
      if (!IsSpace(PreviousChar(source_, &previous))) break;
      end = previous;
    }
  } else if (sign != '+' && !variable) {
    const size_t newline = source_.substr(begin, end - begin).rfind('\n');
    if (newline != std::string_view::npos || line_starting_) {
      const size_t line = newline == std::string_view::npos ? begin : begin + newline + 1;
      if (SkipSpace(line) >= end) end = line;
    }
  }
  if (end > begin) Emit(Token::kData, begin, std::string(source_.substr(begin, end - begin)));
}

// The byte after {% raw %}, if the tag whose inside starts here is one.
std::optional<size_t> Lexer::MatchRaw() const {
  size_t at = SkipSpace(position_);
  if (!StartsWith(at, "raw")) return std::nullopt;
  at = SkipSpace(at + 3);
  if (StartsWith(at, "-%}")) return SkipSpace(at + 3);
  if (StartsWith(at, "%}")) return at + 2;
  return std::nullopt;
}

void Lexer::LexRaw(size_t tag, size_t begin) {
  line_starting_ = At(begin - 1) == '\n';
  for (size_t open = source_.find("{%", begin); open != std::string_view::npos; open = source_.find("{%", open + 2)) {
    const char sign = At(open + 2) == '-' || At(open + 2) == '+' ? At(open + 2) : '\0';
    size_t at = SkipSpace(open + (sign != '\0' ? 3 : 2));
    if (!StartsWith(at, "endraw")) continue;
    at = SkipSpace(at + 6);
    size_t end;
    if (StartsWith(at, "+%}"))
      end = at + 3;
    else if (StartsWith(at, "-%}"))
      end = SkipSpace(at + 3);
    else if (StartsWith(at, "%}"))
      end = at + 2 + (At(at + 2) == '\n' ? 1 : 0);
    else
      continue;
    EmitData(begin, open, sign, false);
    line_starting_ = At(end - 1) == '\n';
    position_ = end;
    return;
  }
  if (begin < source_.size()) Fail("Missing end of raw directive", tag);
  position_ = begin;  // nothing follows: Jinja lets it pass
}

void Lexer::LexComment(size_t tag) {
  const size_t end = source_.find("#}", position_);
  if (end == std::string_view::npos) {
    if (position_ < source_.size()) Fail("Missing end of comment tag", tag);
    return;  // nothing follows: Jinja lets it pass
  }
  const char sign = end > position_ ? source_[end - 1] : '\0';
  position_ = end + 2;
  if (sign == '-')
    position_ = SkipSpace(position_);
  else if (sign != '+' && At(position_) == '\n')
    ++position_;
  line_starting_ = At(position_ - 1) == '\n';
}

void Lexer::LexTag(bool variable) {
  while (true) {
    position_ = SkipSpace(position_);
    if (position_ >= source_.size()) return;  // the parser says what is missing
    if (brackets_.empty() && LexTagEnd(variable)) return;
    const char c = source_[position_];
    if (LexNumber()) continue;
    size_t next = position_;
    const char32_t full = NextChar(source_, &next);
    if (IsIdentifierPart(full) || IsWordChar(full)) {
      LexName();
    } else if (c == '"' || c == '\'') {
      LexString();
    } else {
      LexOperator();
    }
  }
}

bool Lexer::LexTagEnd(bool variable) {
  const size_t begin = position_;
  const std::string_view close = variable ? "}}" : "%}";
  if (At(begin) == '-' && StartsWith(begin + 1, close)) {
    position_ = SkipSpace(begin + 3);
  } else if (!variable && At(begin) == '+' && StartsWith(begin + 1, close)) {
    position_ = begin + 3;
  } else if (StartsWith(begin, close)) {
    position_ = begin + 2;
    if (!variable && At(position_) == '\n') ++position_;  // trim_blocks
  } else {
    return false;
  }
  Emit(variable ? Token::kVariableEnd : Token::kBlockEnd, begin);
  line_starting_ = At(position_ - 1) == '\n';
  return true;
}

void Lexer::LexName() {
  const size_t begin = position_;
  bool valid = true;
  while (position_ < source_.size()) {
    size_t next = position_;
    const char32_t c = NextChar(source_, &next);
    if (!IsIdentifierPart(c) && !IsWordChar(c)) break;
    valid &= position_ == begin ? IsIdentifierStart(c) : IsIdentifierPart(c);
    position_ = next;
  }
  if (!valid) Fail("Invalid character in identifier", begin);
  Emit(Token::kName, begin, std::string(source_.substr(begin, position_ - begin)));
}

// Digits in groups: 1_000. The byte after them, or `position` when there are none.
size_t Lexer::DigitGroups(size_t position) const {
  if (!IsAsciiDigit(At(position))) return position;
  while (IsAsciiDigit(At(position)) || (At(position) == '_' && IsAsciiDigit(At(position + 1)))) ++position;
  return position;
}

size_t Lexer::MatchFloat() const {
  if (position_ > 0 && At(position_ - 1) == '.') return position_;  // t.0.5 is two subscripts
  const size_t whole = DigitGroups(position_);
  if (whole == position_) return position_;
  size_t end = whole;
  if (At(end) == '.' && IsAsciiDigit(At(end + 1))) end = DigitGroups(end + 1);
  if ((At(end) | 0x20) == 'e') {
    const size_t sign = At(end + 1) == '+' || At(end + 1) == '-' ? 1 : 0;
    const size_t exponent = DigitGroups(end + 1 + sign);
    if (exponent > end + 1 + sign) return exponent;
  }
  return end == whole ? position_ : end;
}

size_t Lexer::MatchInteger() const {
  const auto digits = [this](size_t at, auto&& accepts) {
    const size_t begin = at;
    while (accepts(At(at)) || (At(at) == '_' && accepts(At(at + 1)))) ++at;
    return at == begin ? position_ : at;
  };
  const char base = static_cast<char>(At(position_ + 1) | 0x20);
  if (At(position_) == '0') {
    size_t end = position_;
    if (base == 'b') end = digits(position_ + 2, [](char c) { return c == '0' || c == '1'; });
    if (base == 'o') end = digits(position_ + 2, [](char c) { return c >= '0' && c <= '7'; });
    if (base == 'x')
      end = digits(position_ + 2, [](char c) { return IsAsciiDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
    return end > position_ ? end : digits(position_, [](char c) { return c == '0'; });
  }
  return DigitGroups(position_);
}

bool Lexer::LexNumber() {
  if (!IsAsciiDigit(At(position_))) return false;
  const size_t begin = position_;
  if (const size_t end = MatchFloat(); end > begin) {
    Emit(Token::kFloat, begin);
    if (!ParseFloat(source_.substr(begin, end - begin), &tokens_.back().real)) Fail("invalid number", begin);
    position_ = end;
    return true;
  }
  const size_t end = MatchInteger();
  Emit(Token::kInteger, begin);
  if (ParseInt(source_.substr(begin, end - begin), 0, &tokens_.back().integer) != IntParse::kOk)
    Fail("integer literal does not fit in 64 bits", begin);
  position_ = end;
  return true;
}

// Python's escapes. Returns the character after the escape whose backslash is at `position`.
class Unescaper {
 public:
  Unescaper(std::string_view text) : text_(text) {}

  // The decoded text, or what is wrong with it.
  std::optional<std::string> Run(std::string* error) {
    while (position_ < text_.size()) {
      if (text_[position_] != '\\') {
        out_ += text_[position_++];
      } else if (!Escape()) {
        *error = error_;
        return std::nullopt;
      }
    }
    return std::move(out_);
  }

 private:
  bool Escape() {
    size_t next = position_ + 1;
    if (next >= text_.size()) return Fail("\\ at end of string");
    const char32_t c = NextChar(text_, &next);
    static constexpr std::array<std::pair<char, char>, 10> kSimple = {{{'\\', '\\'},
                                                                       {'\'', '\''},
                                                                       {'"', '"'},
                                                                       {'a', '\a'},
                                                                       {'b', '\b'},
                                                                       {'f', '\f'},
                                                                       {'n', '\n'},
                                                                       {'r', '\r'},
                                                                       {'t', '\t'},
                                                                       {'v', '\v'}}};
    position_ = next;
    for (const auto& [letter, meaning] : kSimple)
      if (c == static_cast<char32_t>(letter)) {
        out_ += meaning;
        return true;
      }
    if (c == '\n') return true;  // continued on the next line
    if (c >= '0' && c <= '7') return Octal();
    if (c == 'x') return Hex(2, "truncated \\xXX escape");
    if (c == 'u') return Hex(4, "truncated \\uXXXX escape");
    if (c == 'U') return Hex(8, "truncated \\UXXXXXXXX escape");
    if (c == 'N') return Fail("character names in strings are not supported");
    out_ += '\\';
    if (c < 0x80) {
      out_ += static_cast<char>(c);
    } else {
      // Jinja turns other characters into escapes before it decodes, so the backslash takes away theirs.
      out_ += c < 0x100     ? fmt::format("x{:02x}", static_cast<uint32_t>(c))
              : c < 0x10000 ? fmt::format("u{:04x}", static_cast<uint32_t>(c))
                            : fmt::format("U{:08x}", static_cast<uint32_t>(c));
    }
    return true;
  }

  bool Octal() {
    uint32_t value = 0;
    size_t at = position_ - 1;
    for (int i = 0; i < 3 && at < text_.size() && text_[at] >= '0' && text_[at] <= '7'; ++i)
      value = value * 8 + static_cast<uint32_t>(text_[at++] - '0');
    position_ = at;
    AppendChar(value, &out_);
    return true;
  }

  bool Hex(size_t digits, const char* message) {
    int64_t value = 0;
    const std::string_view text = text_.substr(position_, digits);
    if (text.size() < digits || text.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos ||
        ParseInt(text, 16, &value) != IntParse::kOk)
      return Fail(message);
    if (value > 0x10FFFF) return Fail("illegal Unicode character");
    if (value >= 0xD800 && value <= 0xDFFF) return Fail("surrogates are not characters");
    position_ += digits;
    AppendChar(static_cast<char32_t>(value), &out_);
    return true;
  }

  bool Fail(const char* message) {
    error_ = message;
    return false;
  }

  std::string_view text_;
  size_t position_ = 0;
  std::string out_;
  std::string error_;
};

void Lexer::LexString() {
  const size_t begin = position_;
  const char quote = source_[begin];
  size_t end = begin + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) {
    Fail(
        fmt::format("unexpected char {} at {}", ReprOf(source_.substr(begin, 1)), CountChars(source_.substr(0, begin))),
        begin);
  }
  std::string error;
  std::optional<std::string> decoded = Unescaper(source_.substr(begin + 1, end - begin - 1)).Run(&error);
  if (!decoded) Fail(error, begin);
  Emit(Token::kString, begin, std::move(*decoded));
  position_ = end + 1;
}

void Lexer::LexOperator() {
  static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!StartsWith(position_, op)) continue;
    Balance(op);
    Emit(Token::kOperator, position_, std::string(op));
    position_ += op.size();
    return;
  }
  size_t next = position_;
  NextChar(source_, &next);
  Fail(fmt::format("unexpected char {} at {}", ReprOf(source_.substr(position_, next - position_)),
                   CountChars(source_.substr(0, position_))),
       position_);
}

void Lexer::Balance(std::string_view op) {
  if (op == "{") brackets_.push_back('}');
  if (op == "(") brackets_.push_back(')');
  if (op == "[") brackets_.push_back(']');
  if (op != "}" && op != ")" && op != "]") return;
  if (brackets_.empty()) Fail(fmt::format("unexpected '{}'", op), position_);
  const char expected = brackets_.back();
  brackets_.pop_back();
  if (expected != op[0]) Fail(fmt::format("unexpected '{}', expected '{}'", op, expected), position_);
}

}  // namespace

std::string NormalizeSource(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result += source[i];
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

std::vector<TokenInfo> Tokenize(std::string_view source) { return Lexer(source).Run(); }

std::string Excerpt(std::string_view source, size_t position) {
  constexpr size_t kLength = 60;
  std::string_view rest = source.substr(std::min(position, source.size()));
  rest = rest.substr(0, rest.find('\n'));
  if (rest.size() <= kLength) return std::string(rest);
  size_t end = kLength;
  while (end > 0 && (static_cast<unsigned char>(rest[end]) & 0xC0) == 0x80) --end;
  return std::string(rest.substr(0, end)) + "...";
}

}  // namespace octavo::text::jinja
