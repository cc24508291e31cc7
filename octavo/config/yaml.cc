#include "octavo/config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>
#include <unordered_map>

#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr size_t kMostBytes = 16 << 20;
constexpr size_t kMostDepth = 64;
constexpr size_t kMostKeyBytes = 256;  // a key before a colon on its line may have 1,024 characters
constexpr size_t kMostNodes = 1 << 20;

bool IsNullWord(const std::string& word) {
  return word.empty() || word == "~" || word == "null" || word == "Null" || word == "NULL" || word == "None";
}

// "1_000" -> "1000"; other text is left alone.
std::string WithoutUnderscores(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between_digits = text[i] == '_' && i > 0 && i + 1 < text.size() &&
                                std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
                                std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between_digits) result += text[i];
  }
  return result;
}

bool IsNumberText(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// True for text that means itself without quotes, wherever it stands.
bool IsPlain(const std::string& text) {
  if (IsNullWord(text)) return false;
  if (IsNumberText(text)) return true;
  return text[0] != '-' && std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
         });
}

// Single quotes where they can say it, double quotes with escapes for control characters.
std::string Quoted(const std::string& text) {
  const bool control =
      std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  std::string result(1, control ? '"' : '\'');
  for (const char c : text) {
    if (!control) {
      result += c == '\'' ? "''" : std::string(1, c);
    } else if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\x{:02x}", static_cast<int>(c));
    } else {
      result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
  }
  return result + result[0];
}

}  // namespace

// Builds the tree from the parser's events. The stack holds the containers that are open.
class YamlBuilder : public YAML::EventHandler {
 public:
  explicit YamlBuilder(std::string source) : source_(std::move(source)) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Put(Make(mark, anchor, Yaml::Kind::kNull)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { Fail(mark, "an alias (*name) is not allowed"); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted = tag == "!";
    if (!quoted && !tag.empty() && tag != "?") Fail(mark, "a tag (!name) is not allowed");
    if (!open_.empty() && open_.back().kind_ == Yaml::Kind::kMap && !keys_.back()) {
      Key(mark, value);
      return;
    }
    Yaml node = Make(mark, anchor, !quoted && IsNullWord(value) ? Yaml::Kind::kNull : Yaml::Kind::kScalar);
    node.scalar_ = value;
    node.quoted_ = quoted;
    Put(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Yaml::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Yaml::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

  Yaml root;

 private:
  [[noreturn]] void Fail(const YAML::Mark& mark, std::string_view what) {
    ThrowUsage("{}:{}: {}", source_, mark.line + 1, what);
  }

  Yaml Make(const YAML::Mark& mark, YAML::anchor_t anchor, Yaml::Kind kind) {
    if (anchor != 0) Fail(mark, "an anchor (&name) is not allowed");
    if (++nodes_ > kMostNodes) Fail(mark, "more than a million values");
    if (!open_.empty() && open_.back().kind_ == Yaml::Kind::kMap && !keys_.back())
      Fail(mark, "a key must be plain text");
    Yaml node;
    node.kind_ = kind;
    node.line_ = mark.line + 1;
    node.source_ = source_;
    return node;
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Yaml::Kind kind) {
    if (tag != "?" && !tag.empty()) Fail(mark, "a tag (!name) is not allowed");
    if (open_.size() == kMostDepth) Fail(mark, "nested deeper than 64 levels");
    open_.push_back(Make(mark, anchor, kind));
    keys_.push_back(std::nullopt);
    lines_.emplace_back();
  }

  void Close() {
    Yaml node = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    lines_.pop_back();
    Put(std::move(node));
  }

  void Key(const YAML::Mark& mark, const std::string& key) {
    if (key.size() > kMostKeyBytes) {
      Fail(mark, fmt::format("a key of {} bytes, at most {} are allowed", key.size(), kMostKeyBytes));
    }
    const auto [known, fresh] = lines_.back().emplace(key, mark.line + 1);
    if (!fresh) Fail(mark, fmt::format("key '{}' stands here and on line {}", key, known->second));
    keys_.back() = key;
  }

  void Put(Yaml node) {
    if (open_.empty()) {
      root = std::move(node);
    } else if (open_.back().kind_ == Yaml::Kind::kList) {
      open_.back().items_.push_back(std::move(node));
    } else {
      open_.back().fields_.emplace_back(*std::exchange(keys_.back(), std::nullopt), std::move(node));
    }
  }

  std::string source_;
  size_t nodes_ = 0;
  std::vector<Yaml> open_;
  std::vector<std::optional<std::string>> keys_;
  std::vector<std::unordered_map<std::string, int>> lines_;  // of the keys of each open map
};

Yaml Yaml::Parse(std::string_view text, std::string_view source) {
  if (text.size() > kMostBytes)
    ThrowUsage("{}: {} bytes of YAML, at most {} are read", source, text.size(), kMostBytes);
  std::istringstream stream{std::string(text)};
  YamlBuilder builder{std::string(source)};
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return builder.root;
    Yaml first = std::move(builder.root);
    if (parser.HandleNextDocument(builder)) ThrowUsage("{}: more than one document", source);
    return first;
  } catch (const YAML::Exception& error) {
    ThrowUsage("{}:{}: {}", source, error.mark.line + 1, error.msg);
  }
}

Yaml Yaml::Null(std::string_view source) {
  Yaml node;
  node.line_ = 0;
  node.source_ = source;
  return node;
}

Yaml Yaml::Scalar(std::string_view text, bool quoted, std::string_view source) {
  Yaml node = Null(source);
  node.kind_ = Kind::kScalar;
  node.scalar_ = text;
  node.quoted_ = quoted;
  return node;
}

Yaml Yaml::List(std::vector<Yaml> items, std::string_view source) {
  Yaml node = Null(source);
  node.kind_ = Kind::kList;
  node.items_ = std::move(items);
  return node;
}

const Yaml* Yaml::Find(std::string_view key) const {
  for (const auto& [name, value] : fields_) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string Yaml::Where() const { return line_ == 0 ? source_ : fmt::format("{}:{}", source_, line_); }

std::string Yaml::Flow() const {
  if (kind_ == Kind::kNull) return "None";
  if (kind_ == Kind::kScalar) return quoted_ || !IsPlain(scalar_) ? Quoted(scalar_) : scalar_;
  std::string text = kind_ == Kind::kList ? "[" : "{";
  for (const Yaml& item : items_) text += (text.size() > 1 ? ", " : "") + item.Flow();
  for (const auto& [key, value] : fields_) {
    text += fmt::format("{}{}: {}", text.size() > 1 ? ", " : "", IsPlain(key) ? key : Quoted(key), value.Flow());
  }
  return text + (kind_ == Kind::kList ? "]" : "}");
}

void Yaml::ThrowExpected(std::string_view what, std::string_view expected) const {
  const std::string found = kind_ == Kind::kNull   ? "nothing"
                            : kind_ == Kind::kList ? "a list"
                            : kind_ == Kind::kMap  ? "a map"
                                                   : fmt::format("'{}'", scalar_);
  ThrowUsage("{}: {}: expected {}, found {}", Where(), what, expected, found);
}

std::string Yaml::Text(std::string_view what) const {
  if (kind_ != Kind::kScalar) ThrowExpected(what, "text");
  return scalar_;
}

int64_t Yaml::Int(std::string_view what) const {
  if (kind_ != Kind::kScalar || quoted_) ThrowExpected(what, "a whole number");
  const std::string text = WithoutUnderscores(scalar_);
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) ThrowExpected(what, "a whole number");
  return value;
}

double Yaml::Number(std::string_view what) const {
  if (kind_ != Kind::kScalar || quoted_) ThrowExpected(what, "a number");
  const std::string text = WithoutUnderscores(scalar_);
  if (text == ".inf" || text == "inf") return HUGE_VAL;
  if (text == "-.inf" || text == "-inf") return -HUGE_VAL;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) ThrowExpected(what, "a number");
  return value;
}

bool Yaml::Bool(std::string_view what) const {
  if (kind_ == Kind::kScalar && !quoted_) {
    if (scalar_ == "true" || scalar_ == "True" || scalar_ == "TRUE") return true;
    if (scalar_ == "false" || scalar_ == "False" || scalar_ == "FALSE") return false;
  }
  ThrowExpected(what, "true or false");
}

}  // namespace octavo
