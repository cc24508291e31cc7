#include "octavo/text/regex_syntax.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

// The inside of a bracket: White_Space and its complement, word characters, hexadecimal digits.
constexpr std::string_view kSpaceItems =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaceItems =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e})"
    R"(\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWordItems = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexItems = "0-9A-Fa-f";
constexpr std::string_view kNotHexItems = R"(\x{0}-\x{2f}\x{3a}-\x{40}\x{47}-\x{60}\x{67}-\x{10ffff})";

struct Alias {
  std::string_view name, meaning;
};

// Names of properties in lower case without separators, and the inside of a bracket that means the same.
constexpr Alias kProperties[] = {
    {"letter", R"(\p{L})"},
    {"casedletter", R"(\p{L&})"},
    {"uppercaseletter", R"(\p{Lu})"},
    {"lowercaseletter", R"(\p{Ll})"},
    {"titlecaseletter", R"(\p{Lt})"},
    {"modifierletter", R"(\p{Lm})"},
    {"otherletter", R"(\p{Lo})"},
    {"mark", R"(\p{M})"},
    {"nonspacingmark", R"(\p{Mn})"},
    {"spacingmark", R"(\p{Mc})"},
    {"enclosingmark", R"(\p{Me})"},
    {"number", R"(\p{N})"},
    {"decimalnumber", R"(\p{Nd})"},
    {"letternumber", R"(\p{Nl})"},
    {"othernumber", R"(\p{No})"},
    {"punctuation", R"(\p{P})"},
    {"connectorpunctuation", R"(\p{Pc})"},
    {"dashpunctuation", R"(\p{Pd})"},
    {"openpunctuation", R"(\p{Ps})"},
    {"closepunctuation", R"(\p{Pe})"},
    {"initialpunctuation", R"(\p{Pi})"},
    {"finalpunctuation", R"(\p{Pf})"},
    {"otherpunctuation", R"(\p{Po})"},
    {"symbol", R"(\p{S})"},
    {"mathsymbol", R"(\p{Sm})"},
    {"currencysymbol", R"(\p{Sc})"},
    {"modifiersymbol", R"(\p{Sk})"},
    {"othersymbol", R"(\p{So})"},
    {"separator", R"(\p{Z})"},
    {"spaceseparator", R"(\p{Zs})"},
    {"lineseparator", R"(\p{Zl})"},
    {"paragraphseparator", R"(\p{Zp})"},
    {"other", R"(\p{C})"},
    {"control", R"(\p{Cc})"},
    {"format", R"(\p{Cf})"},
    {"privateuse", R"(\p{Co})"},
    {"unassigned", R"(\p{Cn})"},
    {"space", kSpaceItems},
    {"word", kWordItems},
    {"digit", R"(\p{Nd})"},
    {"alpha", R"(\p{L}\p{M}\p{Nl})"},
    {"alnum", R"(\p{L}\p{M}\p{Nl}\p{Nd})"},
    {"upper", R"(\p{Lu})"},
    {"lower", R"(\p{Ll})"},
    {"punct", R"(\p{P}\p{S})"},
    {"xdigit", kHexItems},
    {"blank", R"(\p{Zs}\x{9})"},
    {"cntrl", R"(\p{Cc})"},
    {"any", R"(\x{0}-\x{10ffff})"},
    {"ascii", R"(\x{0}-\x{7f})"},
};

constexpr std::string_view kShortCategories[] = {
    "c",  "cc", "cf", "cn", "co", "cs", "l",  "l&", "ll", "lm", "lo", "lt", "lu", "m",  "mc", "me", "mn", "n",  "nd",
    "nl", "no", "p",  "pc", "pd", "pe", "pf", "pi", "po", "ps", "s",  "sc", "sk", "sm", "so", "z",  "zl", "zp", "zs"};

constexpr std::string_view kAnyChar = "(?s:.)";

// One set of characters: parts of which each matches exactly one character, at most one of them a plain bracket.
struct CharSet {
  std::string items;               // the inside of a bracket
  std::vector<std::string> parts;  // what a bracket cannot say

  std::vector<std::string> All() const {
    std::vector<std::string> all = parts;
    if (!items.empty()) all.insert(all.begin(), fmt::format("[{}]", items));
    return all;
  }
};

std::string Join(const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts[0];
  return fmt::format("(?:{})", fmt::join(parts, "|"));
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string Run() {
    while (at_ < pattern_.size()) Next();
    return std::move(out_);
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw Error(ErrorCode::kFile, fmt::format("regular expression: {} at byte {}", what, at_),
                fmt::format("in the pattern {}", pattern_.substr(0, 200)));
  }

  bool Done() const { return at_ >= pattern_.size(); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool Take(std::string_view text) {
    if (pattern_.substr(at_).substr(0, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  // One character or one construct of the pattern outside a class.
  void Next() {
    const char c = Peek();
    if (c == '\\') {
      StartAtom();
      Escape();
    } else if (c == '[') {
      StartAtom();
      Bracket();
    } else if (c == '(') {
      group_starts_.push_back(out_.size());
      Open();
    } else if (c == ')') {
      ++at_;
      out_ += ')';
      // An unbalanced parenthesis is PCRE2's to report.
      atom_start_ = group_starts_.empty() ? out_.size() - 1 : group_starts_.back();
      if (!group_starts_.empty()) group_starts_.pop_back();
    } else if (c == '{') {
      Interval();
    } else if (c == '*' || c == '+' || c == '?' || c == '|' || c == '^' || c == '$') {
      ++at_;
      out_ += c;
    } else {
      StartAtom();
      const auto length = static_cast<size_t>(LeadLength(static_cast<unsigned char>(c)));
      out_ += pattern_.substr(at_, length);
      at_ += length;
    }
  }

  void StartAtom() { atom_start_ = out_.size(); }

  // "(", with the option letter m, which means "dot matches newline" there and s here.
  void Open() {
    ++at_;
    out_ += '(';
    if (Peek() != '?') return;
    size_t end = at_ + 1;
    while (end < pattern_.size() && (pattern_[end] == 'i' || pattern_[end] == 'm' || pattern_[end] == 'x' ||
                                     pattern_[end] == 's' || pattern_[end] == '-')) {
      ++end;
    }
    if (end == at_ + 1 || end >= pattern_.size() || (pattern_[end] != ':' && pattern_[end] != ')')) {
      if (Take("?#")) {  // a comment: its text is no pattern
        while (!Done() && Peek() != ')') ++at_;
        out_ += "?#";
        return;
      }
      for (std::string_view head : {"?<=", "?<!", "?:", "?=", "?!", "?>", "?<"}) {
        if (Take(head)) {
          out_ += head;
          return;
        }
      }
      return;
    }
    for (size_t i = at_; i < end; ++i) out_ += pattern_[i] == 'm' ? 's' : pattern_[i];
    at_ = end;
    if (Take(":")) out_ += ':';
  }

  // "{n}", "{n,}", "{n,m}", "{,m}", and what follows them; any other brace is a character.
  void Interval() {
    size_t end = at_ + 1;
    while (end < pattern_.size() && (pattern_[end] == ',' || (pattern_[end] >= '0' && pattern_[end] <= '9'))) ++end;
    const std::string_view body = pattern_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = body.find(',');
    const bool interval = end < pattern_.size() && pattern_[end] == '}' && !body.empty() && body != "," &&
                          (comma == std::string_view::npos || body.find(',', comma + 1) == std::string_view::npos);
    if (!interval) {
      StartAtom();
      out_ += "\\{";
      ++at_;
      return;
    }
    out_ += comma == 0 ? fmt::format("{{0{}}}", body) : fmt::format("{{{}}}", body);
    at_ = end + 1;
    // {n,m}+ repeats the interval; in PCRE2 it would be possessive. So does {n}?.
    if (Peek() == '+' || (Peek() == '?' && comma == std::string_view::npos)) {
      out_.insert(atom_start_, "(?:");
      out_ += ')';
    }
  }

  // "\…" outside a class.
  void Escape() {
    if (at_ + 1 >= pattern_.size()) Fail("a backslash at the end");
    const char c = Peek(1);
    if (c == 'b' || c == 'B') {
      at_ += 2;
      const std::string word = fmt::format("[{}]", kWordItems);
      out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                       : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      return;
    }
    CharSet set;
    char32_t single = 0;
    switch (ClassEscape(set, single)) {
      case Kind::kSet:
        out_ += Join(set.All());
        return;
      case Kind::kChar:
        out_ += CharItem(single);
        return;
      case Kind::kOther:
        out_ += pattern_.substr(at_, 2);  // anchors, references, \R, \X, \K: the same in both
        at_ += 2;
        return;
    }
  }

  enum class Kind { kSet, kChar, kOther };

  // "\…" that stands for one character or a set, in and outside classes. Leaves `at_` alone for kOther.
  Kind ClassEscape(CharSet& set, char32_t& single) {
    const char c = Peek(1);
    const auto items = [&](std::string_view text) {
      at_ += 2;
      set.items += text;
      return Kind::kSet;
    };
    const auto character = [&](char32_t value) {
      at_ += 2;
      single = value;
      return Kind::kChar;
    };
    switch (c) {
      case 's':
        return items(kSpaceItems);
      case 'S':
        return items(kNotSpaceItems);
      case 'd':
        return items(R"(\p{Nd})");
      case 'D':
        return items(R"(\P{Nd})");
      case 'h':
        return items(kHexItems);
      case 'H':
        return items(kNotHexItems);
      case 'w':
        return items(kWordItems);
      case 'W':
        at_ += 2;
        set.parts.push_back(fmt::format("[^{}]", kWordItems));
        return Kind::kSet;
      case 'p':
      case 'P':
        Property(set);
        return Kind::kSet;
      case 'n':
        return character('\n');
      case 'r':
        return character('\r');
      case 't':
        return character('\t');
      case 'f':
        return character('\f');
      case 'v':
        return character('\v');
      case 'a':
        return character('\a');
      case 'e':
        return character(0x1B);
      case 'x':
      case 'u':
        single = HexEscape();
        return Kind::kChar;
      default:
        break;
    }
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word) return Kind::kOther;
    at_ += 1;
    const char* p = pattern_.data() + at_;
    single = NextChar(p);
    at_ = static_cast<size_t>(p - pattern_.data());
    return Kind::kChar;
  }

  char32_t HexEscape() {
    const bool four = Peek(1) == 'u';
    at_ += 2;
    const bool braces = !four && Take("{");
    const size_t most = four ? 4 : braces ? 8 : 2;
    char32_t value = 0;
    size_t digits = 0;
    for (; digits < most; ++digits) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    if (digits == 0 || (four && digits != 4) || (braces && !Take("}"))) Fail("a malformed hexadecimal escape");
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) Fail("an escape that is no character");
    return value;
  }

  static std::string CharItem(char32_t c) { return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(c)); }

  // "\p{Name}", "\p{^Name}", "\P{Name}", "\pL".
  void Property(CharSet& set) {
    bool negated = Peek(1) == 'P';
    at_ += 2;
    std::string name;
    if (Take("{")) {
      if (Take("^")) negated = !negated;
      while (!Done() && Peek() != '}') {
        const char c = Peek();
        ++at_;
        if (c != '_' && c != ' ' && c != '-') name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
        if (name.size() > 64) Fail("a property name that is too long");
      }
      if (!Take("}")) Fail("a property without its closing brace");
    } else if (!Done()) {
      name = static_cast<char>(Peek() | 0x20);
      ++at_;
    }
    std::string items;
    for (const Alias& alias : kProperties) {
      if (alias.name == name) items = alias.meaning;
    }
    for (std::string_view category : kShortCategories) {
      if (category != name) continue;
      std::string spelled(category);
      spelled[0] = static_cast<char>(spelled[0] - 32);
      items = fmt::format("\\p{{{}}}", spelled);
    }
    if (items.empty()) {
      for (char c : name) {
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) Fail("a malformed property name");
      }
      if (name.empty()) Fail("a property without a name");
      items = fmt::format("\\p{{sc:{}}}", name);  // a script; PCRE2 says so if there is none of that name
    }
    if (!negated) {
      set.items += items;
    } else {
      set.parts.push_back(fmt::format("[^{}]", items));
    }
  }

  void Bracket() {
    CharSet set;
    const bool negated = ParseSet(set, 0);
    out_ += Finish(set, negated);
  }

  static std::string Finish(const CharSet& set, bool negated) {
    if (set.parts.empty()) return fmt::format("[{}{}]", negated ? "^" : "", set.items);
    const std::string all = Join(set.All());
    return negated ? fmt::format("(?:(?!{}){})", all, kAnyChar) : all;
  }

  // Parses "[…]" at `at_`; returns whether it is negated.
  bool ParseSet(CharSet& set, int depth) {
    if (depth > 16) Fail("classes nested too deep");
    ++at_;
    const bool negated = Take("^");
    bool first = true;
    std::vector<std::string> sides;  // the operands of && before the last one
    CharSet side;
    while (true) {
      if (Done()) Fail("a class without its closing bracket");
      if (Peek() == ']' && !first) break;
      if (Take("&&")) {
        if (side.items.empty() && side.parts.empty()) Fail("an empty side of &&");
        sides.push_back(Join(side.All()));
        side = CharSet{};
        first = false;
        continue;
      }
      Member(side, depth);
      first = false;
    }
    ++at_;
    if (sides.empty()) {
      set = std::move(side);
      return negated;
    }
    if (side.items.empty() && side.parts.empty()) Fail("an empty side of &&");
    std::string all = "(?:";
    for (const std::string& one : sides) all += fmt::format("(?={})", one);
    all += fmt::format("{})", Join(side.All()));
    set.parts.push_back(std::move(all));
    return negated;
  }

  // One member of a class: nested class, POSIX bracket, escape, character or range.
  void Member(CharSet& side, int depth) {
    if (Peek() == '[') {
      if (Peek(1) == ':') {
        const size_t end = pattern_.find(":]", at_ + 2);
        if (end != std::string_view::npos && end - at_ < 20) {
          side.items += pattern_.substr(at_, end + 2 - at_);
          at_ = end + 2;
          return;
        }
      }
      CharSet inner;
      const bool negated = ParseSet(inner, depth + 1);
      if (!negated) {
        side.items += inner.items;
        side.parts.insert(side.parts.end(), inner.parts.begin(), inner.parts.end());
      } else {
        side.parts.push_back(Finish(inner, true));
      }
      return;
    }
    char32_t low = 0;
    if (!SingleChar(side, low)) return;
    side.items += CharItem(low);
    if (Peek() != '-' || Peek(1) == ']' || Peek(1) == '\0' || Peek(1) == '[' || (Peek(1) == '&' && Peek(2) == '&'))
      return;
    const size_t before = at_;
    ++at_;
    CharSet other;
    char32_t high = 0;
    if (!SingleChar(other, high)) {  // a-\w: the hyphen is a character
      at_ = before + 1;
      side.items += CharItem('-');
      return;
    }
    if (high < low) Fail("a range whose end comes before its start");
    side.items += fmt::format("-{}", CharItem(high));
  }

  // Reads one character of a class into `c`; false when it was a set, which is added to `side`.
  bool SingleChar(CharSet& side, char32_t& c) {
    if (Peek() != '\\') {
      const char* p = pattern_.data() + at_;
      c = NextChar(p);
      at_ = static_cast<size_t>(p - pattern_.data());
      return true;
    }
    if (at_ + 1 >= pattern_.size()) Fail("a backslash at the end");
    switch (ClassEscape(side, c)) {
      case Kind::kSet:
        return false;
      case Kind::kChar:
        return true;
      case Kind::kOther:
        break;
    }
    if (Peek(1) == 'b') {
      at_ += 2;
      c = '\b';
      return true;
    }
    if (Peek(1) == '0') {
      at_ += 2;
      c = 0;
      return true;
    }
    Fail("an unknown escape in a class");
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_start_ = 0;             // where in out_ the last atom starts
  std::vector<size_t> group_starts_;  // the same for the open groups
};

}  // namespace

std::string TranslateRegex(std::string_view pattern) { return Translator(pattern).Run(); }

std::string QuoteRegex(std::string_view literal) {
  std::string out;
  for (char c : literal) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        byte >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ' ';
    if (!plain) out += fmt::format("\\x{{{:x}}}", byte);
    if (plain) out += c;
  }
  return out;
}

}  // namespace octavo::text
