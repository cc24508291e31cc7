#include "octavo/text/template_format.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_format_spec.h"
#include "octavo/text/template_number.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, const Text& format, const Value& arguments)
      : interpreter_(interpreter), format_(format), bytes_(format.bytes()), arguments_(arguments) {}

  Text Run() {
    while (at_ < bytes_.size()) {
      const size_t percent = bytes_.find('%', at_);
      result_.Append(format_, at_, std::min(percent, bytes_.size()));
      if (percent == std::string_view::npos) break;
      at_ = percent + 1;
      Convert();
    }
    const bool mapping = arguments_.is(Kind::kDict) || arguments_.is(Kind::kList);
    if (!mapping && used_ < Available()) interpreter_.FailType("not all arguments converted during string formatting");
    result_.set_markup(format_.markup());
    return std::move(result_);
  }

 private:
  size_t Available() const { return arguments_.is(Kind::kTuple) ? arguments_.items().size() : 1; }

  char Peek() const {
    if (at_ >= bytes_.size()) interpreter_.Fail("ValueError", "incomplete format");
    return bytes_[at_];
  }

  const Value& NextArgument() {
    if (keyed_) return *keyed_;
    if (used_ >= Available()) interpreter_.FailType("not enough arguments for format string");
    return arguments_.is(Kind::kTuple) ? arguments_.items()[used_++] : (++used_, arguments_);
  }

  void ReadKey() {
    keyed_.reset();
    if (Peek() != '(') return;
    if (!arguments_.is(Kind::kDict)) interpreter_.FailType("format requires a mapping");
    const size_t begin = ++at_;
    int open = 1;
    for (; open > 0; ++at_) {
      if (at_ >= bytes_.size()) interpreter_.Fail("ValueError", "incomplete format key");
      open += bytes_[at_] == '(' ? 1 : bytes_[at_] == ')' ? -1 : 0;
    }
    const std::string_view key = bytes_.substr(begin, at_ - 1 - begin);
    const Value* value = arguments_.dict().Find(key);
    if (value == nullptr) interpreter_.Fail("KeyError", ReprOf(key));
    keyed_ = *value;
  }

  int64_t ReadNumber() {
    if (at_ < bytes_.size() && bytes_[at_] == '*') {
      ++at_;
      const Value value = NextArgument();
      return ToIndex(interpreter_, value, "* wants int");
    }
    int64_t number = 0;
    while (at_ < bytes_.size() && bytes_[at_] >= '0' && bytes_[at_] <= '9') {
      number = number * 10 + (bytes_[at_++] - '0');
      CheckFormatWidth(interpreter_, number);
    }
    return number;
  }

  void Convert() {
    FormatSpec spec;
    spec.align = '>';
    if (Peek() == '%') {
      result_.Append(format_, at_, at_ + 1);
      ++at_;
      return;
    }
    ReadKey();
    for (bool flags = true; flags;) {
      switch (Peek()) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          if (spec.sign != '+') spec.sign = ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          spec.zero = true;
          break;
        default:
          flags = false;
          continue;
      }
      ++at_;
    }
    spec.width = ReadNumber();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    CheckFormatWidth(interpreter_, spec.width);
    if (Peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(ReadNumber(), 0);
      CheckFormatWidth(interpreter_, spec.precision);
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;
    spec.type = Peek();
    ++at_;
    if (spec.type == '%') {
      result_.Append("%", kFromTemplate);
      return;
    }
    Insert(spec);
  }

  void Insert(FormatSpec spec) {
    const bool number = std::string_view("diuxXoeEfFgG").find(spec.type) != std::string_view::npos;
    if (!number && std::string_view("srac").find(spec.type) == std::string_view::npos) {
      interpreter_.Fail("ValueError",
                        fmt::format("unsupported format character '{}' (0x{:x}) at index {}", spec.type,
                                    static_cast<unsigned char>(spec.type), CountChars(bytes_.substr(0, at_ - 1))));
    }
    const Value value = NextArgument();
    if (number) {
      if (spec.zero && spec.align != '<') {
        spec.fill.assign(1, '0');
        spec.align = '=';
      }
      result_.Append(FormatNumber(value, spec), kFromTemplate);
      return;
    }
    Text text;
    if (spec.type == 'c')
      text = Character(value);
    else
      text = spec.type == 's' ? interpreter_.ToText(value) : Repr(value);
    if (format_.markup()) text = EscapeHtml(text);
    result_.Append(FormatText(text, spec));
  }

  Text Character(const Value& value) const {
    if (value.is_string() && CountChars(value.str()) == 1) return value.text();
    if (!value.is_integral()) interpreter_.FailType("%c requires int or char");
    const int64_t code = value.integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      interpreter_.Fail("OverflowError", "%c arg not in range(0x110000)");
    std::string bytes;
    AppendChar(static_cast<char32_t>(code), &bytes);
    return Text(std::move(bytes));
  }

  std::string FormatNumber(const Value& value, FormatSpec spec) const {
    if (std::string_view("diu").find(spec.type) != std::string_view::npos) {
      if (!value.is_number())
        interpreter_.FailType(fmt::format("%{} format: a real number is required, not {}", spec.type, TypeName(value)));
      int64_t whole = value.integer();
      if (value.is(Kind::kFloat) && !TruncateToInt(value.real(), &whole))
        interpreter_.Fail("OverflowError", "cannot convert float to integer");
      spec.type = 'd';
      return FormatInteger(whole, spec);
    }
    if (std::string_view("xXo").find(spec.type) != std::string_view::npos) {
      if (!value.is_integral())
        interpreter_.FailType(fmt::format("%{} format: an integer is required, not {}", spec.type, TypeName(value)));
      return FormatInteger(value.integer(), spec);
    }
    if (!value.is_number()) interpreter_.FailType(fmt::format("must be real number, not {}", TypeName(value)));
    return FormatReal(value.real(), spec);
  }

  Interpreter& interpreter_;
  const Text& format_;
  std::string_view bytes_;
  const Value& arguments_;
  std::optional<Value> keyed_;
  size_t used_ = 0;
  size_t at_ = 0;
  Text result_;
};

}  // namespace

Text FormatPercent(Interpreter& interpreter, const Text& format, const Value& arguments) {
  interpreter.ChargeScan(format.size());
  return PercentFormatter(interpreter, format, arguments).Run();
}

}  // namespace octavo::text::jinja
