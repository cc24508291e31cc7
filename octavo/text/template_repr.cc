#include "octavo/text/template_repr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/text/template_compare.h"
#include "octavo/text/template_number.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

constexpr int kMaxNamespaceDepth = 20;  // namespaces may hold themselves

class ReprWriter {
 public:
  void Write(const Value& value);
  Text Finish() { return Text(std::move(out_), marks_); }

 private:
  void WriteItems(std::string_view open, const std::vector<Value>& items, std::string_view close);
  void WriteDict(const DictObject& dict);
  void WriteView(const ViewObject& view);

  std::string out_;
  Marks marks_ = kFromTemplate;
  int namespaces_ = 0;
};

void ReprWriter::Write(const Value& value) {
  if (out_.size() > kMaxTextBytes) ThrowUsage("a value printed is longer than {} bytes", kMaxTextBytes);
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "None";
      break;
    case Kind::kBool:
      out_ += value.boolean() ? "True" : "False";
      break;
    case Kind::kInt:
      out_ += IntToBase(value.integer(), 10);
      break;
    case Kind::kFloat:
      out_ += FloatRepr(value.real());
      break;
    case Kind::kBigInt:
      out_ += value.str();
      break;
    case Kind::kString:
      marks_ |= value.text().AllMarks();
      out_ += value.text().markup() ? fmt::format("Markup({})", ReprOf(value.str())) : ReprOf(value.str());
      break;
    case Kind::kList:
      WriteItems("[", value.items(), "]");
      break;
    case Kind::kTuple:
      WriteItems("(", value.items(), value.items().size() == 1 ? ",)" : ")");
      break;
    case Kind::kDict:
      WriteDict(value.dict());
      break;
    case Kind::kRange: {
      const auto& range = value.object<RangeObject>();
      out_ += range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                              : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
      break;
    }
    case Kind::kView:
      WriteView(value.object<ViewObject>());
      break;
    case Kind::kNamespace:
      out_ += "<Namespace ";
      if (++namespaces_ > kMaxNamespaceDepth)
        out_ += "{...}";
      else
        WriteDict(value.object<NamespaceObject>().attributes);
      --namespaces_;
      out_ += ">";
      break;
    case Kind::kMissing:
    case Kind::kUndefined:
      out_ += "Undefined";
      break;
    default:
      out_ += fmt::format("<{} object>", TypeName(value));
      break;
  }
}

void ReprWriter::WriteItems(std::string_view open, const std::vector<Value>& items, std::string_view close) {
  out_ += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out_ += ", ";
    Write(items[i]);
  }
  out_ += close;
}

void ReprWriter::WriteDict(const DictObject& dict) {
  out_ += "{";
  bool first = true;
  for (const auto& [key, item] : dict.entries()) {
    if (!first) out_ += ", ";
    first = false;
    Write(key);
    out_ += ": ";
    Write(item);
  }
  out_ += "}";
}

void ReprWriter::WriteView(const ViewObject& view) {
  static constexpr std::string_view kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
  out_ += kNames[static_cast<size_t>(view.part)];
  for (size_t i = 0; i < view.dict.dict().size(); ++i) {
    if (i != 0) out_ += ", ";
    Write(view.at(i));
  }
  out_ += "])";
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonOptions& options) : options_(options) {}
  bool Write(const Value& value, int level);
  Text Finish() { return Text(std::move(out_), marks_); }
  JsonFailure failure;

 private:
  void WriteString(const Text& text);
  bool WriteKey(const Value& key);
  bool WriteDict(const DictObject& dict, int level);
  bool WriteItems(const std::vector<Value>& items, int level);
  void NewLine(int level);

  const JsonOptions& options_;
  std::string out_;
  Marks marks_ = kFromTemplate;
};

void AppendUnicodeEscape(char32_t c, std::string* out) {
  if (c < 0x10000) {
    *out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
    *out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }
}

void JsonWriter::WriteString(const Text& text) {
  marks_ |= text.AllMarks();
  const std::string_view bytes = text.bytes();
  out_ += '"';
  for (size_t position = 0; position < bytes.size();) {
    const size_t begin = position;
    const char32_t c = NextChar(bytes, &position);
    switch (c) {
      case '"':
        out_ += "\\\"";
        break;
      case '\\':
        out_ += "\\\\";
        break;
      case '\n':
        out_ += "\\n";
        break;
      case '\r':
        out_ += "\\r";
        break;
      case '\t':
        out_ += "\\t";
        break;
      case '\b':
        out_ += "\\b";
        break;
      case '\f':
        out_ += "\\f";
        break;
      default:
        // With ensure_ascii Python's pattern is [^ -~]: DEL is escaped too.
        if (c < 0x20 || (options_.ensure_ascii && c > 0x7E))
          AppendUnicodeEscape(c, &out_);
        else
          out_ += bytes.substr(begin, position - begin);
    }
  }
  out_ += '"';
}

bool JsonWriter::WriteKey(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      WriteString(key.text());
      return true;
    case Kind::kNone:
      out_ += "\"null\"";
      return true;
    case Kind::kBool:
      out_ += key.boolean() ? "\"true\"" : "\"false\"";
      return true;
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      out_ += '"';
      Write(key, 0);
      out_ += '"';
      return true;
    default:
      failure = {"TypeError", fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key))};
      return false;
  }
}

void JsonWriter::NewLine(int level) {
  if (!options_.indent) return;
  out_ += '\n';
  for (int i = 0; i < level; ++i) out_ += *options_.indent;
}

bool JsonWriter::WriteDict(const DictObject& dict, int level) {
  if (dict.size() == 0) {
    out_ += "{}";
    return true;
  }
  std::vector<const DictObject::Entry*> entries;
  for (const DictObject::Entry& entry : dict.entries()) entries.push_back(&entry);
  if (options_.sort_keys) {
    for (size_t i = 1; i < entries.size(); ++i) {
      const LessResult result = Less(entries[i]->first, entries[i - 1]->first);
      if (!result.incomparable.empty()) {
        failure = {"TypeError", "'<' not supported between instances of " + result.incomparable};
        return false;
      }
    }
    // Neighbours that have an order are all strings or all numbers, so this comparison is total.
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto* a, const auto* b) { return KeyOrder(a->first, b->first) < 0; });
  }
  out_ += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i != 0) out_ += options_.item_separator;
    NewLine(level + 1);
    if (!WriteKey(entries[i]->first)) return false;
    out_ += options_.key_separator;
    if (!Write(entries[i]->second, level + 1)) return false;
  }
  NewLine(level);
  out_ += '}';
  return true;
}

bool JsonWriter::WriteItems(const std::vector<Value>& items, int level) {
  if (items.empty()) {
    out_ += "[]";
    return true;
  }
  out_ += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out_ += options_.item_separator;
    NewLine(level + 1);
    if (!Write(items[i], level + 1)) return false;
  }
  NewLine(level);
  out_ += ']';
  return true;
}

bool JsonWriter::Write(const Value& value, int level) {
  if (out_.size() > kMaxTextBytes) ThrowUsage("JSON longer than {} bytes", kMaxTextBytes);
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      return true;
    case Kind::kBool:
      out_ += value.boolean() ? "true" : "false";
      return true;
    case Kind::kInt:
      out_ += IntToBase(value.integer(), 10);
      return true;
    case Kind::kBigInt:
      out_ += value.str();
      return true;
    case Kind::kFloat:
      out_ += std::isnan(value.real())   ? "NaN"
              : std::isinf(value.real()) ? (value.real() < 0 ? "-Infinity" : "Infinity")
                                         : FloatRepr(value.real());
      return true;
    case Kind::kString:
      WriteString(value.text());
      return true;
    case Kind::kList:
    case Kind::kTuple:
      return WriteItems(value.items(), level);
    case Kind::kDict:
      return WriteDict(value.dict(), level);
    default:
      failure = {"TypeError", fmt::format("Object of type {} is not JSON serializable", TypeName(value))};
      return false;
  }
}

}  // namespace

Text Str(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.undefined() || value.missing()) return Text();
  return Repr(value);
}

Text Repr(const Value& value) {
  ReprWriter writer;
  writer.Write(value);
  return writer.Finish();
}

std::string ReprOf(std::string_view text) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t c = NextChar(text, &position);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out += text.substr(begin, position - begin);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  out += quote;
  return out;
}

std::optional<JsonFailure> ToJson(const Value& value, const JsonOptions& options, Text* json) {
  JsonWriter writer(options);
  if (!writer.Write(value, 0)) return writer.failure;
  *json = writer.Finish();
  return std::nullopt;
}

}  // namespace octavo::text::jinja
