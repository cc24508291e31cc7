#include "octavo/server/json_writer.h"

#include <charconv>
#include <cmath>

#include "octavo/text/unicode.h"

namespace octavo::server {
namespace {

void AppendQuoted(std::string_view value, std::string& out) {
  out += '"';
  for (const char c : value) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          constexpr char kDigits[] = "0123456789abcdef";
          out += "\\u00";
          out += kDigits[static_cast<unsigned char>(c) >> 4];
          out += kDigits[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace

void JsonWriter::Separate() {
  if (!first_) text_ += ',';
  first_ = false;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  AppendQuoted(key, text_);
  text_ += ':';
  first_ = true;  // the value needs no comma before it
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view value) {
  Separate();
  if (text::IsValidUtf8(value)) {
    AppendQuoted(value, text_);
  } else {
    AppendQuoted(text::ReplaceInvalidUtf8(value), text_);
  }
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) { return Raw(std::to_string(value)); }

JsonWriter& JsonWriter::Number(double value) {
  if (!std::isfinite(value)) return Null();
  char digits[32];
  const auto [end, problem] = std::to_chars(digits, digits + sizeof(digits), value);
  return Raw({digits, static_cast<size_t>(end - digits)});
}

JsonWriter& JsonWriter::Bool(bool value) { return Raw(value ? "true" : "false"); }
JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  text_ += json;
  return *this;
}

std::string JsonQuote(std::string_view text) { return JsonWriter().String(text).Take(); }

}  // namespace octavo::server
