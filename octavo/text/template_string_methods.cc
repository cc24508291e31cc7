// Methods of str that change or test characters.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_format.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

// Replaces each character by what `map` appends; the result has the marks of the character it came from.
template <typename Map>
Text MapChars(const Text& text, Map&& map) {
  Text result;
  result.Reserve(text.size());
  const std::string_view bytes = text.bytes();
  std::string piece;
  for (const Text::Run& run : text.Runs()) {
    piece.clear();
    for (size_t at = run.begin; at < run.end;) {
      const size_t begin = at;
      map(NextChar(bytes, &at), begin, &piece);
    }
    result.Append(piece, run.marks);
  }
  result.set_markup(text.markup());
  return result;
}

Text Title(const Text& text) {
  bool cased = false;
  return MapChars(text, [&](char32_t c, size_t at, std::string* out) {
    if (cased)
      AppendLower(c, text.bytes(), at, out);
    else
      AppendTitle(c, out);
    cased = IsCased(c);
  });
}

Text SwapCase(const Text& text) {
  return MapChars(text, [&](char32_t c, size_t at, std::string* out) {
    if (IsUpper(c))
      AppendLower(c, text.bytes(), at, out);
    else if (IsLower(c))
      AppendUpper(c, out);
    else
      AppendChar(c, out);
  });
}

Text CaseFold(const Text& text) {
  return MapChars(text, [](char32_t c, size_t, std::string* out) { AppendFolded(c, out); });
}

template <Text (*Operation)(const Text&)>
Value CallPlain(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "method", args, 0, 0);
  interpreter.ChargeScan(self.text().size() * 4);
  return interpreter.NewString(Operation(self.text()));
}

template <Side side>
Value CallStrip(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "strip", args, 0, 1);
  if (!given[0].missing() && !given[0].none() && !given[0].is_string())
    interpreter.FailType("strip arg must be None or str");
  interpreter.ChargeScan(self.text().size() + 16 * given[0].weight());
  return interpreter.NewString(Strip(self.text(), given[0], side));
}

// True when there is a character and all satisfy the predicate.
template <bool (*Predicate)(char32_t)>
Value CallAll(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "method", args, 0, 0);
  interpreter.ChargeScan(self.text().size() * 4);
  const std::string_view bytes = self.str();
  for (size_t at = 0; at < bytes.size();)
    if (!Predicate(NextChar(bytes, &at))) return Value::Bool(false);
  return Value::Bool(!bytes.empty());
}

bool IsAlnum(char32_t c) { return IsAlpha(c) || IsDecimal(c) || IsDigit(c) || IsNumeric(c); }

// islower, isupper: a cased character, and none of the other case.
template <bool (*Wrong)(char32_t)>
Value CallCase(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "method", args, 0, 0);
  interpreter.ChargeScan(self.text().size() * 4);
  const std::string_view bytes = self.str();
  bool cased = false;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t c = NextChar(bytes, &at);
    if (Wrong(c) || IsTitle(c)) return Value::Bool(false);
    cased |= IsCased(c);
  }
  return Value::Bool(cased);
}

Value CallIsTitle(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "istitle", args, 0, 0);
  interpreter.ChargeScan(self.text().size() * 4);
  const std::string_view bytes = self.str();
  bool cased = false, before = false;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t c = NextChar(bytes, &at);
    if (IsUpper(c) || IsTitle(c)) {
      if (before) return Value::Bool(false);
      cased = before = true;
    } else if (IsLower(c)) {
      if (!before) return Value::Bool(false);
      cased = true;
    } else {
      before = false;
    }
  }
  return Value::Bool(cased);
}

Value CallIsAscii(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "isascii", args, 0, 0);
  return Value::Bool(IsAscii(self.str()));
}

Value CallIsPrintable(Interpreter& interpreter, const Value& self, Arguments& args) {
  if (self.text().empty()) return Value::Bool(true);
  return CallAll<IsPrintable>(interpreter, self, args);
}

Value CallIsIdentifier(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "isidentifier", args, 0, 0);
  interpreter.ChargeScan(self.text().size());
  const std::string_view bytes = self.str();
  for (size_t at = 0; at < bytes.size();) {
    const bool first = at == 0;
    const char32_t c = NextChar(bytes, &at);
    if (first ? !IsIdentifierStart(c) : !IsIdentifierPart(c)) return Value::Bool(false);
  }
  return Value::Bool(!bytes.empty());
}

Text FillArgument(Interpreter& interpreter, const Value& value) {
  if (value.missing()) return Text(" ");
  const Text& fill = TextArgument(interpreter, "fill", value);
  if (CountChars(fill.bytes()) != 1) interpreter.FailType("The fill character must be exactly one character long");
  return fill;
}

// Characters that are missing to `width`.
int64_t MissingChars(Interpreter& interpreter, const Text& text, int64_t width) {
  const int64_t missing = width - static_cast<int64_t>(CountChars(text.bytes()));
  if (missing > static_cast<int64_t>(interpreter.limits().output_bytes)) interpreter.FailLimit("a string is too long");
  return std::max<int64_t>(missing, 0);
}

Text Pad(const Text& text, int64_t left, int64_t right, const Text& fill) {
  Text result;
  for (int64_t i = 0; i < left; ++i) result.Append(fill);
  result.Append(text);
  for (int64_t i = 0; i < right; ++i) result.Append(fill);
  result.set_markup(text.markup());
  return result;
}

Value CallCenter(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "center", args, 1, 2);
  return interpreter.NewString(
      Center(interpreter, self.text(), IntArgument(interpreter, given[0], 0), FillArgument(interpreter, given[1])));
}

template <bool left>
Value CallJustify(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "just", args, 1, 2);
  const Text fill = FillArgument(interpreter, given[1]);
  const int64_t missing = MissingChars(interpreter, self.text(), IntArgument(interpreter, given[0], 0));
  return interpreter.NewString(Pad(self.text(), left ? missing : 0, left ? 0 : missing, fill));
}

Value CallZeroFill(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "zfill", args, 1, 1);
  const Text& text = self.text();
  const int64_t missing = MissingChars(interpreter, text, IntArgument(interpreter, given[0], 0));
  const bool sign = !text.empty() && (text.bytes()[0] == '+' || text.bytes()[0] == '-');
  Text result = text.Slice(0, sign ? 1 : 0);
  result.Append(std::string(static_cast<size_t>(missing), '0'), kFromTemplate);
  result.Append(text, sign ? 1 : 0, text.size());
  result.set_markup(text.markup());
  return interpreter.NewString(std::move(result));
}

Value CallExpandTabs(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "expandtabs", args, {"tabsize"});
  const int64_t size = std::clamp<int64_t>(IntArgument(interpreter, given[0], 8), 0, 1 << 16);
  int64_t column = 0;
  uint64_t added = 0;
  return interpreter.NewString(MapChars(self.text(), [&](char32_t c, size_t, std::string* out) {
    if (c == '\t') {
      const int64_t blanks = size == 0 ? 0 : size - column % size;
      added += static_cast<uint64_t>(blanks);
      if (added > interpreter.limits().output_bytes) interpreter.FailLimit("a string is too long");
      out->append(static_cast<size_t>(blanks), ' ');
      column += blanks;
      return;
    }
    AppendChar(c, out);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }));
}

Value CallFormat(Interpreter& interpreter, const Value& self, Arguments& args) {
  return interpreter.NewString(FormatBraces(interpreter, self.text(), args));
}

Value CallFormatMap(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "format_map", args, 1, 1);
  if (!given[0].is(Kind::kDict)) interpreter.FailType("format_map() argument must be a mapping");
  Arguments named;
  for (const auto& [key, value] : given[0].dict().entries())
    if (key.is_string()) named.named.emplace_back(std::string(key.str()), value);
  return interpreter.NewString(FormatBraces(interpreter, self.text(), named));
}

constexpr MethodEntry kMethods[] = {
    {"capitalize", CallPlain<Capitalize>},
    {"casefold", CallPlain<CaseFold>},
    {"center", CallCenter},
    {"expandtabs", CallExpandTabs},
    {"format", CallFormat},
    {"format_map", CallFormatMap},
    {"isalnum", CallAll<IsAlnum>},
    {"isalpha", CallAll<IsAlpha>},
    {"isascii", CallIsAscii},
    {"isdecimal", CallAll<IsDecimal>},
    {"isdigit", CallAll<IsDigit>},
    {"isidentifier", CallIsIdentifier},
    {"islower", CallCase<IsUpper>},
    {"isnumeric", CallAll<IsNumeric>},
    {"isprintable", CallIsPrintable},
    {"isspace", CallAll<IsSpace>},
    {"istitle", CallIsTitle},
    {"isupper", CallCase<IsLower>},
    {"ljust", CallJustify<false>},
    {"lower", CallPlain<ToLower>},
    {"lstrip", CallStrip<Side::kLeft>},
    {"rjust", CallJustify<true>},
    {"rstrip", CallStrip<Side::kRight>},
    {"strip", CallStrip<Side::kBoth>},
    {"swapcase", CallPlain<SwapCase>},
    {"title", CallPlain<Title>},
    {"upper", CallPlain<ToUpper>},
    {"zfill", CallZeroFill},
};

}  // namespace

NativeFunction FindStringMethod(std::string_view name) {
  for (const MethodEntry& entry : kMethods)
    if (entry.name == name) return entry.function;
  return FindStringSearchMethod(name);
}

std::vector<Value> Positional(Interpreter& interpreter, std::string_view method, Arguments& args, size_t least,
                              size_t most) {
  if (!args.named.empty()) interpreter.FailType(fmt::format("str.{}() takes no keyword arguments", method));
  if (args.positional.size() < least || args.positional.size() > most) {
    interpreter.FailType(fmt::format("{}() takes {} {} arguments ({} given)", method,
                                     args.positional.size() < least ? "at least" : "at most",
                                     args.positional.size() < least ? least : most, args.positional.size()));
  }
  std::vector<Value> given = std::move(args.positional);
  given.resize(most);
  return given;
}

const Text& TextArgument(Interpreter& interpreter, std::string_view method, const Value& value) {
  if (!value.is_string())
    interpreter.FailType(fmt::format("{}() argument must be str, not {}", method, TypeName(value)));
  return value.text();
}

int64_t IntArgument(Interpreter& interpreter, const Value& value, int64_t otherwise) {
  if (value.missing()) return otherwise;
  return ToIndex(interpreter, value, fmt::format("'{}' object cannot be interpreted as an integer", TypeName(value)));
}

Text Strip(const Text& text, const Value& chars, Side side) {
  const std::string_view bytes = text.bytes();
  std::set<char32_t> wanted;
  if (chars.is_string())
    for (size_t at = 0; at < chars.text().size();) wanted.insert(NextChar(chars.str(), &at));
  const auto strips = [&](char32_t c) { return chars.is_string() ? wanted.count(c) != 0 : IsSpace(c); };
  size_t begin = 0, end = bytes.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!strips(NextChar(bytes, &next))) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    size_t previous = end;
    if (!strips(PreviousChar(bytes, &previous))) break;
    end = previous;
  }
  Text result = text.Slice(begin, end);
  result.set_markup(text.markup());
  return result;
}

Text ToUpper(const Text& text) {
  return MapChars(text, [](char32_t c, size_t, std::string* out) { AppendUpper(c, out); });
}

Text ToLower(const Text& text) {
  return MapChars(text, [&](char32_t c, size_t at, std::string* out) { AppendLower(c, text.bytes(), at, out); });
}

Text Capitalize(const Text& text) {
  return MapChars(text, [&](char32_t c, size_t at, std::string* out) {
    if (at == 0)
      AppendTitle(c, out);
    else
      AppendLower(c, text.bytes(), at, out);
  });
}

Text Center(Interpreter& interpreter, const Text& text, int64_t width, const Text& fill) {
  const int64_t missing = MissingChars(interpreter, text, width);
  const int64_t left = missing / 2 + (missing & width & 1);
  return Pad(text, left, missing - left, fill);
}

}  // namespace octavo::text::jinja
