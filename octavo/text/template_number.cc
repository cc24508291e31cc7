#include "octavo/text/template_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

std::string NotFinite(double value) {
  if (std::isnan(value)) return "nan";
  return value < 0 ? "-inf" : "inf";
}

std::string ToChars(double value, std::chars_format format, int precision) {
  // 309 digits before the point and `precision` behind it.
  std::string buffer(static_cast<size_t>(precision) + 330, '\0');
  const std::to_chars_result result =
      precision < 0 ? std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format)
                    : std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  buffer.resize(static_cast<size_t>(result.ptr - buffer.data()));
  return buffer;
}

std::string_view StripBlanks(std::string_view text) {
  size_t begin = 0, end = text.size();
  while (begin < end) {
    size_t next = begin;
    if (!IsSpace(NextChar(text, &next))) break;
    begin = next;
  }
  while (end > begin) {
    size_t previous = end;
    if (!IsSpace(PreviousChar(text, &previous))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

bool TakePrefix(std::string_view* text, char letter) {
  if (text->size() < 2 || (*text)[0] != '0' || ((*text)[1] | 0x20) != letter) return false;
  text->remove_prefix(2);
  if (!text->empty() && text->front() == '_') text->remove_prefix(1);  // 0x_ff
  return true;
}

// True when each underscore stands between two digits; writes the text without them.
bool RemoveUnderscores(std::string_view text, std::string* plain) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain->push_back(text[i]);
      continue;
    }
    const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return false;
  }
  return true;
}

}  // namespace

std::string FloatRepr(double value) {
  if (!std::isfinite(value)) return NotFinite(value);
  std::string digits = ToChars(value, std::chars_format::scientific, -1);
  const size_t e = digits.find('e');
  const int exponent = std::stoi(digits.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return digits;  // already d.ddde-05: at least two digits of exponent
  std::string fixed = ToChars(value, std::chars_format::fixed, -1);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

std::string FormatFixed(double value, int precision, bool alternate) {
  if (!std::isfinite(value)) return NotFinite(value);
  std::string result = ToChars(value, std::chars_format::fixed, precision);
  if (alternate && precision == 0) result += '.';
  return result;
}

std::string FormatScientific(double value, int precision, bool alternate) {
  if (!std::isfinite(value)) return NotFinite(value);
  std::string result = ToChars(value, std::chars_format::scientific, precision);
  if (alternate && precision == 0) result.insert(result.begin() + static_cast<std::ptrdiff_t>(result.find('e')), '.');
  return result;
}

std::string FormatGeneral(double value, int precision, bool alternate) {
  if (!std::isfinite(value)) return NotFinite(value);
  precision = std::max(precision, 1);
  const std::string scientific = ToChars(value, std::chars_format::scientific, precision - 1);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  const bool use_exponent = exponent < -4 || exponent >= precision;
  std::string mantissa =
      use_exponent ? scientific.substr(0, e) : ToChars(value, std::chars_format::fixed, precision - 1 - exponent);
  if (!alternate && mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  } else if (alternate && mantissa.find('.') == std::string::npos) {
    mantissa += '.';
  }
  return use_exponent ? mantissa + scientific.substr(e) : mantissa;
}

IntParse ParseInt(std::string_view text, int base, int64_t* value) {
  text = StripBlanks(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (base == 0) {
    base = TakePrefix(&text, 'x') ? 16 : TakePrefix(&text, 'o') ? 8 : TakePrefix(&text, 'b') ? 2 : 10;
    if (base == 10 && text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return IntParse::kInvalid;  // leading zeros are not decimal literals
  } else if (base == 16) {
    TakePrefix(&text, 'x');
  } else if (base == 8) {
    TakePrefix(&text, 'o');
  } else if (base == 2) {
    TakePrefix(&text, 'b');
  }
  if (text.empty() || text.front() == '_' || text.back() == '_') return IntParse::kInvalid;
  int64_t result = 0;
  bool overflow = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      if (text[i - 1] == '_') return IntParse::kInvalid;
      continue;
    }
    const int digit = DigitValue(text[i]);
    if (digit >= base) return IntParse::kInvalid;
    // Accumulated as a negative number, whose range is larger by one.
    overflow |= __builtin_mul_overflow(result, static_cast<int64_t>(base), &result);
    overflow |= __builtin_sub_overflow(result, static_cast<int64_t>(digit), &result);
  }
  if (!negative) overflow |= __builtin_sub_overflow(static_cast<int64_t>(0), result, &result);
  if (overflow) return IntParse::kTooLarge;
  *value = result;
  return IntParse::kOk;
}

bool ParseFloat(std::string_view text, double* value) {
  text = StripBlanks(text);
  std::string plain;
  if (!RemoveUnderscores(text, &plain)) return false;
  std::string_view rest = plain;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  std::string lower(rest);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  if (lower == "inf" || lower == "infinity") {
    *value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    *value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (rest.empty() || (rest[0] != '.' && (rest[0] < '0' || rest[0] > '9'))) return false;
    const std::from_chars_result result = std::from_chars(rest.data(), rest.data() + rest.size(), *value);
    if (result.ptr != rest.data() + rest.size()) return false;
    if (result.ec == std::errc::result_out_of_range) {
      // Too large gives infinity, too small zero: the sign of the exponent tells.
      const size_t e = lower.find('e');
      const bool tiny = (e != std::string::npos && lower[e + 1] == '-') || lower[0] == '.' || lower[0] == '0';
      *value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    } else if (result.ec != std::errc()) {
      return false;
    }
  }
  if (negative) *value = -*value;
  return true;
}

std::string IntToBase(int64_t value, int base) {
  char buffer[72];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value, base);
  return std::string(buffer, result.ptr);
}

bool TruncateToInt(double value, int64_t* result) {
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) return false;
  *result = static_cast<int64_t>(value);
  return true;
}

}  // namespace octavo::text::jinja
