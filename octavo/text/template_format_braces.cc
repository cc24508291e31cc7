// str.format: replacement fields in braces.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_format.h"
#include "octavo/text/template_format_spec.h"
#include "octavo/text/template_number.h"
#include "octavo/text/template_repr.h"

namespace octavo::text::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& args) : interpreter_(interpreter), args_(args) {}

  Text Run(const Text& format, int depth) {
    if (depth > 2) interpreter_.Fail("ValueError", "Max string recursion exceeded");
    const std::string_view bytes = format.bytes();
    Text result;
    size_t at = 0;
    while (at < bytes.size()) {
      const size_t brace = bytes.find_first_of("{}", at);
      result.Append(format, at, std::min(brace, bytes.size()));
      if (brace == std::string_view::npos) break;
      at = brace + 1;
      if (at < bytes.size() && bytes[at] == bytes[brace]) {
        result.Append(format, at, at + 1);
        ++at;
        continue;
      }
      if (bytes[brace] == '}') interpreter_.Fail("ValueError", "Single '}' encountered in format string");
      if (at >= bytes.size()) interpreter_.Fail("ValueError", "Single '{' encountered in format string");
      const size_t end = FindEnd(bytes, at);
      result.Append(Field(format, at, end, depth));
      if (result.size() > interpreter_.limits().output_bytes) interpreter_.FailLimit("a formatted string is too long");
      at = end + 1;
    }
    return result;
  }

 private:
  // The brace that closes the field which starts at `at`.
  size_t FindEnd(std::string_view bytes, size_t at) const {
    int open = 1;
    bool bracket = false;
    for (; at < bytes.size(); ++at) {
      if (bytes[at] == '[') bracket = true;
      if (bytes[at] == ']') bracket = false;
      if (bracket) continue;
      if (bytes[at] == '{') ++open;
      if (bytes[at] == '}' && --open == 0) return at;
    }
    interpreter_.Fail("ValueError", "expected '}' before end of string");
  }

  // name!conversion:spec in bytes [begin, end).
  Text Field(const Text& format, size_t begin, size_t end, int depth) {
    const std::string_view bytes = std::string_view(format.bytes()).substr(0, end);
    size_t name_end = begin;
    for (bool bracket = false; name_end < end; ++name_end) {
      const char c = bytes[name_end];
      bracket = c == '[' ? true : c == ']' ? false : bracket;
      if (!bracket && (c == '!' || c == ':')) break;
      if (c == '{') interpreter_.Fail("ValueError", "unexpected '{' in field name");
    }
    Value value = Lookup(bytes.substr(begin, name_end - begin));
    size_t spec_begin = name_end;
    if (name_end < end && bytes[name_end] == '!') {
      if (name_end + 1 >= end) interpreter_.Fail("ValueError", "end of string while looking for conversion specifier");
      value = Convert(value, bytes[name_end + 1]);
      spec_begin = name_end + 2;
      if (spec_begin < end && bytes[spec_begin] != ':')
        interpreter_.Fail("ValueError", "expected ':' after conversion specifier");
    }
    Text spec;
    if (spec_begin < end) spec = Run(format.Slice(spec_begin + 1, end), depth + 1);
    return FormatValue(interpreter_, value, spec.bytes());
  }

  Value Convert(const Value& value, char conversion) {
    switch (conversion) {
      case 's':
        return interpreter_.NewString(interpreter_.ToText(value));
      case 'r':
      case 'a':
        interpreter_.Charge(value.weight());
        return interpreter_.NewString(Repr(value));
      default:
        interpreter_.Fail("ValueError", fmt::format("Unknown conversion specifier {}", conversion));
    }
  }

  Value Lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, first_end));
    for (size_t at = first_end; at < name.size();) {
      const bool attribute = name[at] == '.';
      if (!attribute && name[at] != '[')
        interpreter_.Fail("ValueError", "Only '.' or '[' may follow ']' in format field specifier");
      const size_t begin = at + 1;
      const size_t end = attribute ? std::min(name.find_first_of(".[", begin), name.size()) : name.find(']', begin);
      if (end == std::string_view::npos) interpreter_.Fail("ValueError", "Missing ']' in format string");
      const std::string_view part = name.substr(begin, end - begin);
      if (part.empty()) interpreter_.Fail("ValueError", "Empty attribute in format string");
      int64_t index = 0;
      if (attribute)
        value = interpreter_.GetAttribute(value, part);
      else if (IsDigits(part) && ParseInt(part, 10, &index) == IntParse::kOk)
        value = interpreter_.GetItem(value, Value::Int(index));
      else
        value = interpreter_.GetItem(value, Value::String(part));
      at = attribute ? end : end + 1;
    }
    return value;
  }

  static bool IsDigits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value First(std::string_view name) {
    if (name.empty() || IsDigits(name)) {
      int64_t index = automatic_;
      if (name.empty()) {
        if (manual_)
          interpreter_.Fail("ValueError", "cannot switch from manual field specification to automatic field numbering");
        ++automatic_;
      } else {
        if (automatic_ > 0)
          interpreter_.Fail("ValueError", "cannot switch from automatic field numbering to manual field specification");
        manual_ = true;
        if (ParseInt(name, 10, &index) != IntParse::kOk)
          interpreter_.Fail("ValueError", "Too many decimal digits in format string");
      }
      if (index >= static_cast<int64_t>(args_.positional.size()))
        interpreter_.Fail("IndexError",
                          fmt::format("Replacement index {} out of range for positional args tuple", index));
      return args_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [key, value] : args_.named)
      if (key == name) return value;
    interpreter_.Fail("KeyError", ReprOf(name));
  }

  Interpreter& interpreter_;
  const Arguments& args_;
  int64_t automatic_ = 0;
  bool manual_ = false;
};

}  // namespace

Text FormatBraces(Interpreter& interpreter, const Text& format, const Arguments& args) {
  interpreter.ChargeScan(format.size());
  if (format.markup()) interpreter.FailUnsupported("format() on the result of the safe filter");
  return BraceFormatter(interpreter, args).Run(format, 0);
}

}  // namespace octavo::text::jinja
