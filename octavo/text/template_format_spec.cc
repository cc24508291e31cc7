#include "octavo/text/template_format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_number.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 16;

void Upper(std::string* text) {
  for (char& c : *text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
}

// Puts separators into the digits at the front of `digits`.
std::string Group(const std::string& digits, char separator, size_t every) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string result;
  for (size_t i = 0; i < whole; ++i) {
    if (i != 0 && (whole - i) % every == 0) result += separator;
    result += digits[i];
  }
  return result + digits.substr(whole);
}

// Sign, prefix and digits padded to the width; '=' pads between prefix and digits.
std::string PadNumber(bool negative, const std::string& prefix, std::string digits, const FormatSpec& spec) {
  std::string head = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  head += prefix;
  const size_t every = spec.type != 0 && std::string_view("xXob").find(spec.type) != std::string_view::npos ? 4 : 3;
  const size_t width = static_cast<size_t>(spec.width);
  if (spec.grouping != 0) {
    // Zeros that fill the width are grouped too.
    std::string grouped = Group(digits, spec.grouping, every);
    while (spec.align == '=' && spec.fill == "0" && head.size() + grouped.size() < width) {
      digits.insert(digits.begin(), '0');
      grouped = Group(digits, spec.grouping, every);
    }
    digits = grouped;
  }
  const size_t used = head.size() + digits.size();
  const size_t missing = used < width ? width - used : 0;
  const auto fill = [&](size_t count) {
    std::string result;
    for (size_t i = 0; i < count; ++i) result += spec.fill;
    return result;
  };
  switch (spec.align) {
    case '<':
      return head + digits + fill(missing);
    case '^':
      return fill(missing / 2) + head + digits + fill(missing - missing / 2);
    case '=':
      return head + fill(missing) + digits;
    default:
      return fill(missing) + head + digits;
  }
}

class SpecParser {
 public:
  SpecParser(Interpreter& interpreter, std::string_view text, const Value& value)
      : interpreter_(interpreter), text_(text), value_(value) {}

  FormatSpec Parse() {
    FormatSpec spec;
    ReadAlign(&spec);
    if (Is("+- ")) spec.sign = text_[at_++];
    if (Is("#")) {
      spec.alternate = true;
      ++at_;
    }
    if (Is("0")) {
      ++at_;
      spec.zero = true;
      if (spec.align == 0) {
        spec.fill.assign(1, '0');
        spec.align = value_.is_string() ? '<' : '=';
      }
    }
    spec.width = ReadNumber(0);
    if (Is(",_")) spec.grouping = text_[at_++];
    if (Is(".")) {
      ++at_;
      spec.precision = ReadNumber(-1);
      if (spec.precision < 0) interpreter_.Fail("ValueError", "Format specifier missing precision");
    }
    if (at_ < text_.size()) spec.type = text_[at_++];
    if (at_ < text_.size())
      interpreter_.Fail("ValueError",
                        fmt::format("Invalid format specifier '{}' for object of type '{}'", text_, TypeName(value_)));
    return spec;
  }

 private:
  bool Is(std::string_view chars) const { return at_ < text_.size() && chars.find(text_[at_]) != chars.npos; }

  void ReadAlign(FormatSpec* spec) {
    constexpr std::string_view kAligns = "<>^=";
    if (text_.empty()) return;
    size_t second = 0;
    NextChar(text_, &second);
    if (second < text_.size() && kAligns.find(text_[second]) != kAligns.npos) {
      spec->fill = std::string(text_.substr(0, second));
      spec->align = text_[second];
      at_ = second + 1;
    } else if (Is(kAligns)) {
      spec->align = text_[at_++];
    }
  }

  int64_t ReadNumber(int64_t otherwise) {
    if (!Is("0123456789")) return otherwise;
    int64_t number = 0;
    while (Is("0123456789")) {
      number = number * 10 + (text_[at_++] - '0');
      CheckFormatWidth(interpreter_, number);
    }
    return number;
  }

  Interpreter& interpreter_;
  std::string_view text_;
  const Value& value_;
  size_t at_ = 0;
};

[[noreturn]] void FailCode(Interpreter& interpreter, char type, const Value& value) {
  interpreter.Fail("ValueError",
                   fmt::format("Unknown format code '{}' for object of type '{}'", type, TypeName(value)));
}

Text FormatStringValue(Interpreter& interpreter, const Value& value, const FormatSpec& spec) {
  if (spec.type != 0 && spec.type != 's') FailCode(interpreter, spec.type, value);
  if (spec.align == '=') interpreter.Fail("ValueError", "'=' alignment not allowed in string format specifier");
  if (spec.sign != '-') interpreter.Fail("ValueError", "Sign not allowed in string format specifier");
  if (spec.grouping != 0) interpreter.Fail("ValueError", fmt::format("Cannot specify '{}' with 's'.", spec.grouping));
  return FormatText(value.text(), spec);
}

Text FormatIntegerValue(Interpreter& interpreter, const Value& value, FormatSpec spec) {
  if (spec.type == 'n') spec.type = 'd';
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != 0)
    return Text(FormatReal(value.real(), spec));
  if (spec.precision >= 0) interpreter.Fail("ValueError", "Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    const int64_t code = value.integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      interpreter.Fail("OverflowError", "%c arg not in range(0x110000)");
    std::string bytes;
    AppendChar(static_cast<char32_t>(code), &bytes);
    return FormatText(Text(std::move(bytes)), spec);
  }
  if (spec.type != 0 && std::string_view("bdoxX").find(spec.type) == std::string_view::npos)
    FailCode(interpreter, spec.type, value);
  return Text(FormatInteger(value.integer(), spec));
}

}  // namespace

void CheckFormatWidth(Interpreter& interpreter, int64_t width) {
  if (width > kMaxWidth) interpreter.FailLimit(fmt::format("a format wider than {} characters", kMaxWidth));
  interpreter.Charge(static_cast<uint64_t>(width) / 16);
}

std::string FormatInteger(int64_t value, const FormatSpec& spec) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits = IntToBase(value, base);
  if (value < 0) digits.erase(0, 1);
  // %.5d pads with zeros.
  if (spec.precision > static_cast<int64_t>(digits.size()))
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  const std::string_view letter = base == 16 ? "0x" : base == 8 ? "0o" : "0b";
  std::string prefix(spec.alternate && base != 10 ? letter : std::string_view());
  if (spec.type == 'X') {
    Upper(&digits);
    Upper(&prefix);
  }
  return PadNumber(value < 0, prefix, digits, spec);
}

std::string FormatReal(double value, const FormatSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  std::string digits;
  switch (spec.type) {
    case 'e':
    case 'E':
      digits = FormatScientific(magnitude, precision, spec.alternate);
      break;
    case 'f':
    case 'F':
      digits = FormatFixed(magnitude, precision, spec.alternate);
      break;
    case '%':
      digits = FormatFixed(magnitude * 100, precision, spec.alternate) + "%";
      break;
    case 0:
      if (spec.precision < 0) {
        digits = FloatRepr(magnitude);
      } else {
        digits = FormatGeneral(magnitude, precision, spec.alternate);
        // Unlike g, no type keeps one digit behind the point.
        if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
      }
      break;
    default:
      digits = FormatGeneral(magnitude, precision, spec.alternate);
      break;
  }
  if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') Upper(&digits);
  return PadNumber(negative, "", digits, spec);
}

Text FormatText(const Text& text, const FormatSpec& spec) {
  Text cut = text;
  if (spec.precision >= 0) cut = text.Slice(0, ByteOffset(text.bytes(), static_cast<size_t>(spec.precision)));
  const size_t used = CountChars(cut.bytes());
  const size_t width = static_cast<size_t>(spec.width);
  if (used >= width) return cut;
  const size_t missing = width - used;
  const size_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  Text result;
  for (size_t i = 0; i < left; ++i) result.Append(spec.fill, kFromTemplate);
  result.Append(cut);
  for (size_t i = left; i < missing; ++i) result.Append(spec.fill, kFromTemplate);
  return result;
}

Text FormatValue(Interpreter& interpreter, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return interpreter.ToText(value);
  if (!value.is_string() && !value.is_number())
    interpreter.FailType(fmt::format("unsupported format string passed to {}.__format__", TypeName(value)));
  const FormatSpec spec = SpecParser(interpreter, spec_text, value).Parse();
  if (value.is_string()) return FormatStringValue(interpreter, value, spec);
  if (value.is_integral()) return FormatIntegerValue(interpreter, value, spec);
  FormatSpec real = spec;
  if (real.type == 'n') real.type = 'g';
  if (real.type != 0 && std::string_view("eEfFgG%").find(real.type) == std::string_view::npos)
    FailCode(interpreter, spec.type, value);
  return Text(FormatReal(value.real(), real));
}

}  // namespace octavo::text::jinja
