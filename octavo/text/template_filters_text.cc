// Filters that make or change text.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_format.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_json.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

template <Text (*Operation)(const Text&)>
Value FilterPlain(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "filter", args, {});
  const Text text = interpreter.ToText(value);
  interpreter.ChargeScan(text.size() * 4);
  return interpreter.NewString(Operation(text));
}

// Words begin after blanks, hyphens and opening brackets; each part is lowered on its own.
Text TitleWords(const Text& text) {
  const auto separates = [](char32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  const std::string_view bytes = text.bytes();
  Text result;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const char32_t first = NextChar(bytes, &at);
    const size_t rest = at;
    while (at < bytes.size()) {
      size_t next = at;
      if (separates(NextChar(bytes, &next)) != separates(first)) break;
      at = next;
    }
    std::string upper;
    AppendUpper(first, &upper);
    result.Append(upper, text.MarksAt(begin));
    result.Append(ToLower(text.Slice(rest, at)));
  }
  return result;
}

Value FilterTrim(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_trim", args, {"chars"});
  if (!given[0].missing() && !given[0].none() && !given[0].is_string())
    interpreter.FailType("strip arg must be None or str");
  const Text text = interpreter.ToText(value);
  interpreter.ChargeScan(text.size() + 16 * given[0].weight());
  return interpreter.NewString(Strip(text, given[0], Side::kBoth));
}

Value FilterReplace(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_replace", args, {"old", "new", "count"}, 2);
  const int64_t count = given[2].none() ? -1 : IntArgument(interpreter, given[2], -1);
  Text result = Replace(interpreter, interpreter.ToText(value), interpreter.ToText(given[0]),
                        interpreter.ToText(given[1]), count);
  return interpreter.NewString(std::move(result));
}

Value FilterString(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "string", args, {});
  return value.is_string() ? value : interpreter.NewString(interpreter.ToText(value));
}

Value FilterSafe(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "safe", args, {});
  Text text = interpreter.ToText(value);
  text.set_markup(true);
  return interpreter.NewString(std::move(text));
}

Value FilterEscape(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "escape", args, {});
  return interpreter.NewString(EscapeHtml(interpreter.ToText(value)));
}

Value FilterForceEscape(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "forceescape", args, {});
  Text text = interpreter.ToText(value);
  text.set_markup(false);
  return interpreter.NewString(EscapeHtml(text));
}

Value FilterCenter(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_center", args, {"width"});
  return interpreter.NewString(
      Center(interpreter, interpreter.ToText(value), IntArgument(interpreter, given[0], 80), Text(" ")));
}

Value FilterIndent(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_indent", args, {"width", "first", "blank"});
  Text margin;
  if (given[0].is_string()) {
    margin = given[0].text();
  } else {
    const int64_t width = IntArgument(interpreter, given[0], 4);
    if (width > static_cast<int64_t>(interpreter.limits().output_bytes)) interpreter.FailLimit("an indent is too wide");
    margin = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  if (value.is(Kind::kList)) interpreter.Fail("AttributeError", "'list' object has no attribute 'splitlines'");
  const Text text = ApplyBinary(interpreter, BinaryOp::kAdd, value, Value::String("\n")).text();
  interpreter.ChargeScan(text.size() * 4);
  const bool first = IsTrue(given[1]), blank = IsTrue(given[2]);
  Text result;
  bool start = true;
  for (const Text& line : SplitLines(text, false)) {
    if (!start) result.Append("\n", kFromTemplate);
    if (start ? first : blank || !line.empty()) result.Append(margin);
    result.Append(line);
    interpreter.Charge(1 + margin.size() / 16);
    if (result.size() > interpreter.limits().output_bytes) interpreter.FailLimit("an indented string is too long");
    start = false;
  }
  result.set_markup(value.is_string() && value.text().markup());
  return interpreter.NewString(std::move(result));
}

Value FilterTruncate(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t length = IntArgument(interpreter, given[0], 255);
  const Text end = given[2].missing() ? Text("...") : TextArgument(interpreter, "truncate", given[2]);
  const int64_t leeway = given[3].none() ? 5 : IntArgument(interpreter, given[3], 5);
  const int64_t end_size = static_cast<int64_t>(CountChars(end.bytes()));
  if (length < end_size)
    interpreter.Fail("AssertionError", fmt::format("expected length >= {}, got {}", end_size, length));
  if (leeway < 0) interpreter.Fail("AssertionError", fmt::format("expected leeway >= 0, got {}", leeway));
  if (interpreter.LengthOf(value) - leeway <= length) return value;
  const Text& text = TextArgument(interpreter, "truncate", value);
  Text cut = text.Slice(0, ByteOffset(text.bytes(), static_cast<size_t>(length - end_size)));
  if (!IsTrue(given[1])) {
    const size_t blank = cut.bytes().rfind(' ');
    if (blank != std::string::npos) cut = cut.Slice(0, blank);
  }
  cut.Append(end);
  return interpreter.NewString(std::move(cut));
}

Value FilterWordCount(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "wordcount", args, {});
  const Text text = interpreter.ToText(value);
  interpreter.ChargeScan(text.size() * 4);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = IsWordChar(NextChar(text.bytes(), &at));
    words += word && !inside;
    inside = word;
  }
  return Value::Int(words);
}

Value FilterFormat(Interpreter& interpreter, const Value& value, Arguments& args) {
  if (!args.positional.empty() && !args.named.empty())
    interpreter.Fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
  Value arguments = Value::Tuple(args.positional);
  if (!args.named.empty()) {
    auto dict = std::make_shared<DictObject>();
    for (const auto& [name, item] : args.named) dict->Set(name, item);
    arguments = Value::Dict(std::move(dict));
  }
  return interpreter.NewString(FormatPercent(interpreter, interpreter.ToText(value), arguments));
}

std::string Quote(std::string_view text, bool query) {
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain)
      result += c;
    else if (c == ' ' && query)
      result += '+';
    else
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

Value FilterUrlEncode(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "urlencode", args, {});
  Marks marks = kFromTemplate;
  const auto quote = [&](const Value& part, bool query) {
    const Text text = interpreter.ToText(part);
    interpreter.ChargeScan(text.size() * 4);
    marks |= text.AllMarks();
    return Quote(text.bytes(), query);
  };
  std::string result;
  if (value.is_string() || !interpreter.CanIterate(value)) {
    result = quote(value, false);
  } else {
    std::vector<Value> pairs;
    if (value.is(Kind::kDict)) {
      for (const auto& [key, item] : value.dict().entries()) pairs.push_back(Value::Tuple({key, item}));
    } else {
      pairs = interpreter.ToItems(value);
    }
    for (const Value& pair : pairs) {
      const std::vector<Value> parts = interpreter.ToItems(pair);
      if (parts.size() != 2) interpreter.Fail("ValueError", "urlencode needs pairs");
      if (!result.empty()) result += '&';
      result += quote(parts[0], true);
      result += '=';
      result += quote(parts[1], true);
    }
  }
  return interpreter.NewString(Text(std::move(result), marks));
}

std::string SeparatorAt(Interpreter& interpreter, const Value& separators, size_t index) {
  if (!separators.is_sequence() || separators.items().size() != 2 || !separators.items()[index].is_string())
    interpreter.FailType("separators must be a pair of strings");
  return std::string(separators.items()[index].str());
}

Value FilterToJson(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given =
      Bind(interpreter, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = IsTrue(given[0]);
  options.sort_keys = IsTrue(given[3]);
  if (given[1].is_string()) {
    options.indent = std::string(given[1].str());
  } else if (!given[1].missing() && !given[1].none()) {
    const int64_t width = IntArgument(interpreter, given[1], 0);
    if (width > 1024) interpreter.FailLimit("an indent of tojson is wider than 1024");
    options.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (options.indent) options.item_separator.assign(1, ',');
  if (!given[2].missing() && !given[2].none()) {
    options.item_separator = SeparatorAt(interpreter, given[2], 0);
    options.key_separator = SeparatorAt(interpreter, given[2], 1);
  }
  // Every value inside may bring a line of indents and two separators.
  const size_t each = options.item_separator.size() + options.key_separator.size() +
                      (options.indent ? options.indent->size() * static_cast<size_t>(value.depth() + 1) : 0);
  interpreter.Charge(value.weight() * (2 + each / 16));
  Text json;
  if (const std::optional<JsonFailure> failure = ToJson(value, options, &json))
    interpreter.Fail(failure->kind, failure->message);
  return interpreter.NewString(std::move(json));
}

Value FilterFromJson(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "from_json", args, {});
  const Text& text = TextArgument(interpreter, "from_json", value);
  interpreter.Charge(1 + text.size() / 4);
  JsonLimits limits;
  limits.duplicate_keys = true;
  try {
    return ParseJson(text.bytes(), text.AllMarks(), limits);
  } catch (const Error& error) {
    interpreter.Fail("ValueError", error.message());
  }
}

constexpr FilterEntry kFilters[] = {
    {"capitalize", FilterPlain<Capitalize>},
    {"center", FilterCenter},
    {"e", FilterEscape},
    {"escape", FilterEscape},
    {"forceescape", FilterForceEscape},
    {"format", FilterFormat},
    {"from_json", FilterFromJson},
    {"fromjson", FilterFromJson},
    {"indent", FilterIndent},
    {"lower", FilterPlain<ToLower>},
    {"replace", FilterReplace},
    {"safe", FilterSafe},
    {"string", FilterString},
    {"title", FilterPlain<TitleWords>},
    {"tojson", FilterToJson},
    {"trim", FilterTrim},
    {"truncate", FilterTruncate},
    {"upper", FilterPlain<ToUpper>},
    {"urlencode", FilterUrlEncode},
    {"wordcount", FilterWordCount},
};

}  // namespace

std::span<const FilterEntry> TextFilters() { return kFilters; }

}  // namespace octavo::text::jinja
