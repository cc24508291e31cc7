// Methods of str that look for parts: find, split, replace, join and their like.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_search.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

// Bytes of text[start:end] with Python's meaning of the two indices, or none when start lies behind the end.
struct Window {
  size_t begin = 0, end = 0;
  bool valid = true;
};

Window FindWindow(Interpreter& interpreter, const Text& text, const Value& start, const Value& stop) {
  const std::string_view bytes = text.bytes();
  Window window{0, bytes.size(), true};
  if (start.missing() && stop.missing()) return window;
  const int64_t size = static_cast<int64_t>(CountChars(bytes));
  const auto index = [&](const Value& value, int64_t otherwise) {
    if (value.missing() || value.none()) return otherwise;
    const int64_t given =
        ToIndex(interpreter, value, "slice indices must be integers or None or have an __index__ method");
    return given < 0 ? std::max<int64_t>(given < -size ? 0 : given + size, 0) : given;
  };
  const int64_t first = index(start, 0), last = std::min(index(stop, size), size);
  if (first > last) return {0, 0, false};
  window.begin = ByteOffset(bytes, static_cast<size_t>(first));
  window.end = ByteOffset(bytes, static_cast<size_t>(last));
  return window;
}

enum class Direction { kForward, kBackward };

// Character index of the first or last occurrence, -1 when there is none.
int64_t FindIndex(Interpreter& interpreter, const Value& self, Arguments& args, Direction direction) {
  const std::vector<Value> given = Positional(interpreter, "find", args, 1, 3);
  const Text& part = TextArgument(interpreter, "find", given[0]);
  const Text& text = self.text();
  interpreter.ChargeScan(text.size());
  const Window window = FindWindow(interpreter, text, given[1], given[2]);
  if (!window.valid) return -1;
  const std::string_view inside = std::string_view(text.bytes()).substr(window.begin, window.end - window.begin);
  const size_t at =
      direction == Direction::kForward ? FindPart(inside, part.bytes()) : FindLastPart(inside, part.bytes());
  if (at == std::string_view::npos) return -1;
  return static_cast<int64_t>(CountChars(std::string_view(text.bytes()).substr(0, window.begin + at)));
}

template <Direction direction>
Value CallFind(Interpreter& interpreter, const Value& self, Arguments& args) {
  return Value::Int(FindIndex(interpreter, self, args, direction));
}

template <Direction direction>
Value CallIndex(Interpreter& interpreter, const Value& self, Arguments& args) {
  const int64_t index = FindIndex(interpreter, self, args, direction);
  if (index < 0) interpreter.Fail("ValueError", "substring not found");
  return Value::Int(index);
}

Value CallCount(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "count", args, 1, 3);
  const std::string_view part = TextArgument(interpreter, "count", given[0]).bytes();
  interpreter.ChargeScan(self.text().size());
  const Window window = FindWindow(interpreter, self.text(), given[1], given[2]);
  if (!window.valid) return Value::Int(0);
  const std::string_view inside = self.str().substr(window.begin, window.end - window.begin);
  if (part.empty()) return Value::Int(static_cast<int64_t>(CountChars(inside)) + 1);
  int64_t count = 0;
  for (size_t at = FindPart(inside, part); at != std::string_view::npos; at = FindPart(inside, part, at + part.size()))
    ++count;
  return Value::Int(count);
}

template <bool start>
Value CallBoundary(Interpreter& interpreter, const Value& self, Arguments& args) {
  const char* const method = start ? "startswith" : "endswith";
  const std::vector<Value> given = Positional(interpreter, method, args, 1, 3);
  const Window window = FindWindow(interpreter, self.text(), given[1], given[2]);
  const auto matches = [&](const Value& part) {
    if (!part.is_string()) {
      if (given[0].is(Kind::kTuple))
        interpreter.FailType(fmt::format("tuple for {} must only contain str, not {}", method, TypeName(part)));
      interpreter.FailType(fmt::format("{} first arg must be str or a tuple of str, not {}", method, TypeName(part)));
    }
    interpreter.ChargeScan(part.text().size());
    const std::string_view inside = self.str().substr(window.begin, window.end - window.begin);
    return window.valid && (start ? inside.starts_with(part.str()) : inside.ends_with(part.str()));
  };
  if (!given[0].is(Kind::kTuple)) return Value::Bool(matches(given[0]));
  interpreter.Charge(given[0].items().size());
  for (const Value& part : given[0].items())
    if (matches(part)) return Value::Bool(true);
  return Value::Bool(false);
}

Value ToList(Interpreter& interpreter, std::vector<Text> parts, bool markup) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (Text& part : parts) {
    part.set_markup(markup);
    values.push_back(interpreter.NewString(std::move(part)));
  }
  return interpreter.NewList(std::move(values));
}

template <Side side>
Value CallSplit(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "split", args, {"sep", "maxsplit"});
  std::string_view separator;
  if (!given[0].missing() && !given[0].none()) {
    if (!given[0].is_string()) interpreter.FailType(fmt::format("must be str or None, not {}", TypeName(given[0])));
    separator = given[0].str();
    if (separator.empty()) interpreter.Fail("ValueError", "empty separator");
  }
  const int64_t most = IntArgument(interpreter, given[1], -1);
  interpreter.ChargeScan(self.text().size() * 2);
  return ToList(interpreter, Split(self.text(), separator, most, side), self.text().markup());
}

Value CallSplitLines(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "splitlines", args, {"keepends"});
  interpreter.ChargeScan(self.text().size() * 4);
  return ToList(interpreter, SplitLines(self.text(), IsTrue(given[0])), self.text().markup());
}

template <Side side>
Value CallPartition(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "partition", args, 1, 1);
  const std::string_view separator = TextArgument(interpreter, "partition", given[0]).bytes();
  if (separator.empty()) interpreter.Fail("ValueError", "empty separator");
  const Text& text = self.text();
  interpreter.ChargeScan(text.size());
  const std::string_view bytes = text.bytes();
  const size_t at = side == Side::kLeft ? FindPart(bytes, separator) : FindLastPart(bytes, separator);
  Text parts[3];
  if (at == std::string_view::npos) {
    parts[side == Side::kLeft ? 0 : 2] = text;
  } else {
    parts[0] = text.Slice(0, at);
    parts[1] = text.Slice(at, at + separator.size());
    parts[2] = text.Slice(at + separator.size(), text.size());
  }
  std::vector<Value> values;
  for (Text& part : parts) {
    part.set_markup(text.markup());
    values.push_back(interpreter.NewString(std::move(part)));
  }
  return interpreter.NewTuple(std::move(values));
}

Value CallReplace(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "replace", args, 2, 3);
  Text with = TextArgument(interpreter, "replace", given[1]);
  if (self.text().markup()) with = EscapeHtml(with);
  Text result = Replace(interpreter, self.text(), TextArgument(interpreter, "replace", given[0]), with,
                        IntArgument(interpreter, given[2], -1));
  result.set_markup(self.text().markup());
  return interpreter.NewString(std::move(result));
}

template <bool prefix>
Value CallRemove(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "removeprefix", args, 1, 1);
  const std::string_view part = TextArgument(interpreter, "removeprefix", given[0]).bytes();
  const Text& text = self.text();
  if (part.empty() || !(prefix ? self.str().starts_with(part) : self.str().ends_with(part))) return self;
  Text result = prefix ? text.Slice(part.size(), text.size()) : text.Slice(0, text.size() - part.size());
  result.set_markup(text.markup());
  return interpreter.NewString(std::move(result));
}

Value CallJoin(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "join", args, 1, 1);
  if (!interpreter.CanIterate(given[0])) interpreter.FailType("can only join an iterable");
  const bool markup = self.text().markup();
  Text result;
  int64_t index = 0;
  const IteratorPtr iterator = interpreter.Iterate(given[0]);
  Value item;
  while (iterator->Next(interpreter, &item)) {
    if (!item.is_string() && !markup)
      interpreter.FailType(fmt::format("sequence item {}: expected str instance, {} found", index, TypeName(item)));
    if (index++ != 0) result.Append(self.text());
    result.Append(markup ? EscapeHtml(interpreter.ToText(item)) : item.text());
    interpreter.ChargeScan(item.is_string() ? item.text().size() : 0);
    if (result.size() > interpreter.limits().output_bytes) interpreter.FailLimit("a joined string is too long");
  }
  result.set_markup(markup);
  return interpreter.NewString(std::move(result));
}

constexpr MethodEntry kMethods[] = {
    {"count", CallCount},
    {"endswith", CallBoundary<false>},
    {"find", CallFind<Direction::kForward>},
    {"index", CallIndex<Direction::kForward>},
    {"join", CallJoin},
    {"partition", CallPartition<Side::kLeft>},
    {"removeprefix", CallRemove<true>},
    {"removesuffix", CallRemove<false>},
    {"replace", CallReplace},
    {"rfind", CallFind<Direction::kBackward>},
    {"rindex", CallIndex<Direction::kBackward>},
    {"rpartition", CallPartition<Side::kRight>},
    {"rsplit", CallSplit<Side::kRight>},
    {"split", CallSplit<Side::kLeft>},
    {"splitlines", CallSplitLines},
    {"startswith", CallBoundary<true>},
};

// Words between blanks, [begin, end) each, from one side until `most` splits are done.
std::vector<Text> SplitBlanks(const Text& text, int64_t most, Side side) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  const auto rest = [&](const Text& tail, Side trim) {
    Text stripped = Strip(tail, Value(), trim);
    if (!stripped.empty()) parts.push_back(std::move(stripped));
  };
  if (side == Side::kLeft) {
    size_t at = 0;
    while (true) {
      while (at < bytes.size()) {
        size_t next = at;
        if (!IsSpace(NextChar(bytes, &next))) break;
        at = next;
      }
      if (at >= bytes.size()) break;
      if (most >= 0 && static_cast<int64_t>(parts.size()) >= most) {
        rest(text.Slice(at, bytes.size()), Side::kLeft);
        break;
      }
      const size_t begin = at;
      while (at < bytes.size()) {
        size_t next = at;
        if (IsSpace(NextChar(bytes, &next))) break;
        at = next;
      }
      parts.push_back(text.Slice(begin, at));
    }
    return parts;
  }
  size_t end = bytes.size();
  while (true) {
    while (end > 0) {
      size_t previous = end;
      if (!IsSpace(PreviousChar(bytes, &previous))) break;
      end = previous;
    }
    if (end == 0) break;
    if (most >= 0 && static_cast<int64_t>(parts.size()) >= most) {
      rest(text.Slice(0, end), Side::kRight);
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      size_t previous = begin;
      if (IsSpace(PreviousChar(bytes, &previous))) break;
      begin = previous;
    }
    parts.push_back(text.Slice(begin, end));
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

NativeFunction FindStringSearchMethod(std::string_view name) {
  for (const MethodEntry& entry : kMethods)
    if (entry.name == name) return entry.function;
  return nullptr;
}

std::vector<Text> Split(const Text& text, std::string_view separator, int64_t most, Side side) {
  if (separator.empty()) return SplitBlanks(text, most, side);
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  if (side == Side::kLeft) {
    size_t begin = 0;
    while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
      const size_t at = FindPart(bytes, separator, begin);
      if (at == std::string_view::npos) break;
      parts.push_back(text.Slice(begin, at));
      begin = at + separator.size();
    }
    parts.push_back(text.Slice(begin, bytes.size()));
    return parts;
  }
  size_t end = bytes.size();
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = FindLastPart(bytes.substr(0, end), separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.Slice(at + separator.size(), end));
    end = at;
  }
  parts.push_back(text.Slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    const char32_t c = NextChar(bytes, &at);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.Slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

Text Replace(Interpreter& interpreter, const Text& text, const Text& old, const Text& with, int64_t count) {
  interpreter.ChargeScan(text.size());
  const std::string_view bytes = text.bytes();
  Text result;
  size_t begin = 0, at = 0;
  int64_t done = 0;
  const auto bounded = [&] {
    if (result.size() > interpreter.limits().output_bytes) interpreter.FailLimit("a replaced string is too long");
  };
  while (count < 0 || done < count) {
    const size_t found = old.empty() ? at : FindPart(bytes, old.bytes(), at);
    if (found == std::string_view::npos || found > bytes.size()) break;
    result.Append(text, begin, found);
    result.Append(with);
    interpreter.Charge(1 + with.size() / 16);
    bounded();
    ++done;
    begin = found + old.size();
    at = begin;
    if (!old.empty()) continue;
    // Between every two characters, and at both ends.
    if (at >= bytes.size()) break;
    NextChar(bytes, &at);
  }
  result.Append(text, begin, bytes.size());
  return result;
}

}  // namespace octavo::text::jinja
