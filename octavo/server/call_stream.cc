#include "octavo/server/call_stream.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/text/template_json.h"

namespace octavo::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

enum class Seen : uint8_t { kYes, kNo, kCut };  // kCut: the text ends before one can tell

// What stands at the beginning of a text that may go on.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  void Space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }

  Seen Word(std::string_view word) {
    Space();
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(word)) return word.starts_with(rest) ? Seen::kCut : Seen::kNo;
    at_ += word.size();
    return Seen::kYes;
  }

  Seen String(std::string& value) {
    const Seen quote = Word("\"");
    if (quote != Seen::kYes) return quote;
    size_t end = at_;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Seen::kCut;
    const std::string_view literal = text_.substr(at_ - 1, end - at_ + 2);
    at_ = end + 1;
    try {
      value = text::jinja::ParseJson(literal, text::jinja::kFromUser, {}).str();
      return Seen::kYes;
    } catch (const Error&) {
      return Seen::kNo;
    }
  }

  bool IsAt(char c) const { return at_ < text_.size() && text_[at_] == c; }

  // The text before the next of `marks`.
  Seen Until(std::string_view marks, std::string_view& value) {
    const size_t end = text_.find_first_of(marks, at_);
    if (end == std::string_view::npos) return Seen::kCut;
    value = text_.substr(at_, end - at_);
    at_ = end;
    return Seen::kYes;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// {"name": "f", "arguments": with what may stand between; the cursor is then before the arguments.
Seen ReadObjectHead(Cursor& cursor, std::string& name) {
  Seen seen = cursor.Word("{");
  while (seen == Seen::kYes) {
    std::string key, value;
    if ((seen = cursor.String(key)) != Seen::kYes) return seen;
    if ((seen = cursor.Word(":")) != Seen::kYes) return seen;
    if (!name.empty() && (key == "arguments" || key == "parameters")) return Seen::kYes;
    if ((seen = cursor.String(value)) != Seen::kYes) return seen;
    if (key == "name") name = value;
    seen = cursor.Word(",");
  }
  return seen;
}

// f[ARGS] or only f; the cursor is then before the brace.
Seen ReadBareHead(Cursor& cursor, std::string& name) {
  std::string_view word;
  cursor.Space();
  if (const Seen seen = cursor.Until("[{", word); seen != Seen::kYes) return seen;
  name = word.substr(0, word.find_last_not_of(kSpace) + 1);
  if (name.find_first_of(kSpace) != std::string::npos) return Seen::kNo;
  const Seen mark = cursor.Word("[ARGS]");
  return mark == Seen::kNo && cursor.IsAt('{') ? Seen::kYes : mark;
}

}  // namespace

size_t CallStream::Scan(std::string_view text, bool& ended) {
  ended = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        ended = depth_ == 0;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (depth_ > 0) {
      ended = (c == '}' || c == ']') && --depth_ == 0;
    } else if (in_word_ && (c == '}' || c == ',' || kSpace.find(c) != std::string_view::npos)) {
      in_word_ = false;
      ended = true;
      return i;
    } else {
      in_word_ = true;
    }
    if (ended) return i + 1;
  }
  return text.size();
}

CallStream::State CallStream::ReadHead(std::string& text, bool last, std::vector<ToolCall>& pieces) {
  const State none = began_ ? State::kEnded : State::kOther;
  Cursor cursor(text);
  bool list = false;
  if (began_) {
    if (cursor.Word(",") != Seen::kYes) cursor.Word(";");
  } else {
    list = cursor.Word("[") == Seen::kYes;
  }
  cursor.Space();
  if (cursor.at() == text.size()) return last ? none : State::kOpen;
  std::string name;
  const bool bare = text[cursor.at()] != '{';
  Seen seen = Seen::kNo;
  if (!bare) {
    seen = ReadObjectHead(cursor, name);
  } else if (options_.bare_names && !list) {
    seen = ReadBareHead(cursor, name);
  }
  cursor.Space();
  if (seen == Seen::kYes && cursor.at() == text.size()) seen = Seen::kCut;
  // A head is short. Text that is long and still none, such as an answer in JSON, is not read again with every token.
  constexpr size_t kMostHead = 4096;
  if (seen == Seen::kCut && !last && text.size() <= kMostHead) return State::kOpen;
  if (seen != Seen::kYes || name.empty()) return none;
  if (options_.names != nullptr && !options_.names->contains(name)) return none;
  if (!options_.any_value && !cursor.IsAt('{')) return none;
  pieces.push_back({.name = std::move(name), .arguments = {}});
  text.erase(0, cursor.at());
  list_ = list_ || list;
  bare_ = bare;
  began_ = true;
  part_ = Part::kArguments;
  return State::kOpen;
}

void CallStream::ReadArguments(std::string& text, std::vector<ToolCall>& pieces) {
  bool ended = false;
  const size_t count = Scan(text, ended);
  if (count > 0) pieces.push_back({.name = {}, .arguments = text.substr(0, count)});
  text.erase(0, count);
  if (!ended) return;
  part_ = bare_ ? Part::kBetween : Part::kTail;
  depth_ = bare_ ? 0 : 1;  // of the call's own brace
}

// What else a call may hold is nobody's.
void CallStream::ReadTail(std::string& text) {
  bool ended = false;
  text.erase(0, Scan(text, ended));
  if (ended) part_ = Part::kBetween;
}

CallStream::State CallStream::Read(std::string& text, bool last, std::vector<ToolCall>& pieces) {
  while (true) {
    const size_t before = text.size();
    const Part part = part_;
    switch (part_) {
      case Part::kHead:
        if (const State state = ReadHead(text, last, pieces); state != State::kOpen) return state;
        break;
      case Part::kArguments:
        ReadArguments(text, pieces);
        break;
      case Part::kTail:
        ReadTail(text);
        break;
      case Part::kBetween: {
        text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
        if (text.empty()) return last ? State::kEnded : State::kOpen;
        if (list_ && text[0] == ']') {
          text.erase(0, 1);
          return State::kEnded;
        }
        if (text[0] != ',' && text[0] != ';' && text[0] != '{') return State::kEnded;
        part_ = Part::kHead;
        break;
      }
    }
    if (text.size() == before && part_ == part) return State::kOpen;
  }
}

}  // namespace octavo::server
