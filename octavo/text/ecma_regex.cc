#include "octavo/text/ecma_regex.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr int kMaxDepth = 200;
constexpr uint32_t kUnbounded = UINT32_MAX;
constexpr uint32_t kMaxRepeat = 100'000;

struct CharRange {
  char32_t low, high;
};
using CharSet = std::vector<CharRange>;

CharSet Sorted(CharSet set) {
  std::sort(set.begin(), set.end(), [](const CharRange& a, const CharRange& b) { return a.low < b.low; });
  CharSet out;
  for (const CharRange& range : set) {
    if (!out.empty() && range.low <= out.back().high + 1) {
      out.back().high = std::max(out.back().high, range.high);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CharSet Complement(const CharSet& set) {
  CharSet out;
  char32_t from = 0;
  for (const CharRange& range : Sorted(set)) {
    if (range.low > from) out.push_back({from, range.low - 1});
    from = range.high + 1;
  }
  if (from <= kLast) out.push_back({from, kLast});
  return out;
}

CharSet Digits() { return {{'0', '9'}}; }
CharSet WordChars() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CharSet Spaces() {
  return {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CharSet LineEnds() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }
CharSet AnyChar() { return {{0, kLast}}; }
// What stands in a JSON string as it is.
CharSet PlainChars() { return {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLast}}; }

// What a pattern is made of.
struct Part {
  enum class Kind { kEmpty, kChars, kSequence, kChoice, kRepeat, kBegin, kEnd } kind = Kind::kEmpty;
  CharSet chars = {};
  std::vector<Part> parts = {};
  uint32_t least = 0, most = 0;
};

class PatternParser {
 public:
  explicit PatternParser(std::string_view pattern) : rest_(pattern) {}

  Part Parse() {
    Part part = Choice(0);
    if (!rest_.empty()) ThrowUsage("an unmatched ')'");
    return part;
  }

 private:
  bool Take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  char32_t NextCodePoint() {
    const int length = ValidLength(rest_);
    if (length <= 0) ThrowUsage("bytes that are not UTF-8");
    const char* p = rest_.data();
    const char32_t c = NextChar(p);
    rest_.remove_prefix(static_cast<size_t>(length));
    return c;
  }

  Part Choice(int depth) {
    if (depth > kMaxDepth) ThrowUsage("groups nested deeper than {}", kMaxDepth);
    std::vector<Part> choices{Sequence(depth)};
    while (Take("|")) choices.push_back(Sequence(depth));
    if (choices.size() == 1) return std::move(choices[0]);
    return {Part::Kind::kChoice, {}, std::move(choices)};
  }

  Part Sequence(int depth) {
    Part sequence{Part::Kind::kSequence};
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      Part atom = Atom(depth);
      Quantify(atom);
      sequence.parts.push_back(std::move(atom));
    }
    return sequence;
  }

  Part Atom(int depth) {
    if (Take("^")) return {Part::Kind::kBegin};
    if (Take("$")) return {Part::Kind::kEnd};
    if (Take(".")) return Chars(Complement(LineEnds()));
    if (Take("[")) return Chars(Class());
    if (Take("(")) return Group(depth);
    if (Take("\\")) return Chars(Escape(false));
    if (rest_[0] == '*' || rest_[0] == '+' || rest_[0] == '?') ThrowUsage("'{}' with nothing to repeat", rest_[0]);
    if (rest_[0] == '{' && Braces(true)) ThrowUsage("a repetition with nothing to repeat");
    const char32_t c = NextCodePoint();
    return Chars({{c, c}});
  }

  Part Group(int depth) {
    if (Take("?<=") || Take("?<!")) ThrowUsage("look-behind is not supported");
    if (Take("?=") || Take("?!")) ThrowUsage("look-ahead is not supported");
    if (Take("?<")) {
      const size_t end = rest_.find('>');
      if (end == std::string_view::npos || end == 0) ThrowUsage("a group's name without '>'");
      rest_.remove_prefix(end + 1);
    } else if (!Take("?:") && Take("?")) {
      ThrowUsage("the group '(?{}' is not supported", rest_.substr(0, std::min<size_t>(rest_.size(), 1)));
    }
    Part part = Choice(depth + 1);
    if (!Take(")")) ThrowUsage("an unmatched '('");
    return part;
  }

  static Part Chars(CharSet set) { return {Part::Kind::kChars, Sorted(std::move(set))}; }

  // {n}, {n,}, {n,m}. Anything else is text.
  std::optional<std::pair<uint32_t, uint32_t>> Braces(bool look_only) {
    std::string_view text = rest_.substr(1);
    const auto number = [&]() -> std::optional<uint32_t> {
      uint32_t value = 0;
      size_t digits = 0;
      for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
        value = std::min(value * 10 + static_cast<uint32_t>(text[digits] - '0'), kMaxRepeat + 1);
      }
      text.remove_prefix(digits);
      return digits == 0 ? std::nullopt : std::optional(value);
    };
    const std::optional<uint32_t> least = number();
    if (!least) return std::nullopt;
    uint32_t most = *least;
    if (text.starts_with(',')) {
      text.remove_prefix(1);
      most = number().value_or(kUnbounded);
    }
    if (!text.starts_with('}')) return std::nullopt;
    if (look_only) return std::pair{*least, most};
    rest_ = text.substr(1);
    if (*least > kMaxRepeat || (most != kUnbounded && most > kMaxRepeat)) {
      ThrowUsage("a repetition of more than {}", kMaxRepeat);
    }
    if (*least > most) ThrowUsage("the repetition {{{},{}}} has its numbers in the wrong order", *least, most);
    return std::pair{*least, most};
  }

  void Quantify(Part& atom) {
    uint32_t least = 1;
    uint32_t most = 1;
    if (Take("*")) {
      least = 0, most = kUnbounded;
    } else if (Take("+")) {
      most = kUnbounded;
    } else if (Take("?")) {
      least = 0;
    } else if (rest_.starts_with('{')) {
      const auto found = Braces(false);
      if (!found) return;
      least = found->first, most = found->second;
    } else {
      return;
    }
    if (atom.kind == Part::Kind::kBegin || atom.kind == Part::Kind::kEnd) {
      ThrowUsage("an anchor cannot be repeated");
    }
    Take("?");  // lazy: the same texts
    if (!rest_.empty() && (rest_[0] == '*' || rest_[0] == '+' || rest_[0] == '?')) {
      ThrowUsage("'{}' after a repetition", rest_[0]);
    }
    Part repeat{Part::Kind::kRepeat};
    repeat.least = least;
    repeat.most = most;
    repeat.parts.push_back(std::move(atom));
    atom = std::move(repeat);
  }

  char32_t Hex(size_t digits) {
    char32_t value = 0;
    if (rest_.size() < digits) ThrowUsage("an escape that ends too early");
    for (size_t i = 0; i < digits; ++i) {
      const char c = rest_[i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) ThrowUsage("an escape with '{}' where a hexadecimal digit belongs", c);
      value = value * 16 + static_cast<char32_t>(digit);
    }
    rest_.remove_prefix(digits);
    return value;
  }

  // The characters of what follows a backslash.
  CharSet Escape(bool in_class) {
    if (rest_.empty()) ThrowUsage("a backslash at the end");
    const char c = rest_[0];
    if (static_cast<unsigned char>(c) >= 0x80) {
      const char32_t other = NextCodePoint();
      return {{other, other}};
    }
    rest_.remove_prefix(1);
    const auto one = [](char32_t value) { return CharSet{{value, value}}; };
    switch (c) {
      case 'd':
        return Digits();
      case 'D':
        return Complement(Digits());
      case 'w':
        return WordChars();
      case 'W':
        return Complement(WordChars());
      case 's':
        return Spaces();
      case 'S':
        return Complement(Spaces());
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'x':
        return one(Hex(2));
      case 'u': {
        if (!Take("{")) return one(Hex(4));
        const size_t end = rest_.find('}');
        if (end == 0 || end > 6) ThrowUsage("an escape \\u{{...}} of 1 to 6 digits was expected");
        const char32_t value = Hex(end);
        Take("}");
        if (value > kLast) ThrowUsage("a character above U+10FFFF");
        return one(value);
      }
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B':
        ThrowUsage("word boundaries are not supported");
      case 'p':
      case 'P':
        ThrowUsage("Unicode properties (\\{}) are not supported", c);
      case 'k':
        ThrowUsage("back references are not supported");
      default:
        if (c >= '1' && c <= '9') ThrowUsage("back references are not supported");
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) ThrowUsage("the escape '\\{}' is not supported", c);
        return one(static_cast<unsigned char>(c));
    }
  }

  CharSet Class() {
    const bool negated = Take("^");
    CharSet set;
    const auto next = [&]() -> CharSet {
      if (rest_.empty()) ThrowUsage("an unmatched '['");
      if (Take("\\")) return Escape(true);
      const char32_t c = NextCodePoint();
      return {{c, c}};
    };
    while (!Take("]")) {
      const CharSet from = next();
      const bool single = from.size() == 1 && from[0].low == from[0].high;
      if (single && rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        Take("-");
        const CharSet to = next();
        if (to.size() != 1 || to[0].low != to[0].high) ThrowUsage("a range that ends with a class");
        if (to[0].low < from[0].low) ThrowUsage("a range of characters in the wrong order");
        set.push_back({from[0].low, to[0].low});
      } else {
        set.insert(set.end(), from.begin(), from.end());
      }
    }
    return negated ? Complement(set) : set;
  }

  std::string_view rest_;
};

// Writes parts into a graph.
class PatternWriter {
 public:
  explicit PatternWriter(ByteNfa& nfa) : nfa_(nfa) {}

  // From `from` to the returned state.
  int Write(const Part& part, int from) {
    if (++steps_ > kMaxSteps) ThrowUsage("its repetitions multiply to more than {} parts", kMaxSteps);
    switch (part.kind) {
      case Part::Kind::kEmpty:
        return from;
      case Part::Kind::kChars:
        return WriteChars(part.chars, from);
      case Part::Kind::kSequence:
        for (const Part& item : part.parts) from = Write(item, from);
        return from;
      case Part::Kind::kChoice: {
        const int end = nfa_.NewState();
        for (const Part& item : part.parts) {
          const int begin = nfa_.NewState();
          nfa_.AddEmpty(from, begin);
          nfa_.AddEmpty(Write(item, begin), end);
        }
        return end;
      }
      case Part::Kind::kRepeat:
        return WriteRepeat(part, from);
      case Part::Kind::kBegin:
      case Part::Kind::kEnd:
        break;
    }
    const int end = nfa_.NewState();
    if (part.kind == Part::Kind::kBegin) {
      nfa_.AddBegin(from, end);
    } else {
      nfa_.AddEnd(from, end);
    }
    return end;
  }

  int WriteChars(const CharSet& set, int from) {
    const int end = nfa_.NewState();
    std::vector<char32_t> escaped;
    for (const CharRange& range : set) {
      for (char32_t c = range.low; c <= range.high && c < 0x20; ++c) escaped.push_back(c);
      for (const char32_t c : {U'"', U'\\'}) {
        if (range.low <= c && c <= range.high) escaped.push_back(c);
      }
      for (const CharRange& plain :
           {CharRange{0x20, 0x21}, CharRange{0x23, 0x5B}, CharRange{0x5D, 0x7F}, CharRange{0x80, 0x7FF},
            CharRange{0x800, 0xD7FF}, CharRange{0xE000, 0xFFFF}, CharRange{0x10000, kLast}}) {
        const char32_t low = std::max(range.low, plain.low);
        const char32_t high = std::min(range.high, plain.high);
        if (low <= high) Utf8(low, high, from, end);
      }
    }
    if (!escaped.empty()) WriteEscaped(escaped, from, end);
    return end;
  }

 private:
  // The one spelling of each: the short one, or \u00 and two digits.
  void WriteEscaped(const std::vector<char32_t>& chars, int from, int end) {
    constexpr std::pair<char32_t, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                    {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    const int after = nfa_.AddLiteral(from, "\\");
    int tens[2] = {-1, -1};
    int zeros = -1;
    for (char32_t c : chars) {
      const auto* found =
          std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& s) { return s.first == c; });
      if (found != std::end(kShort)) {
        nfa_.AddRange(after, static_cast<uint8_t>(found->second), static_cast<uint8_t>(found->second), end);
        continue;
      }
      if (zeros < 0) zeros = nfa_.AddLiteral(after, "u00");
      int& ten = tens[c >> 4];
      if (ten < 0) ten = nfa_.AddLiteral(zeros, c >> 4 == 0 ? "0" : "1");
      const auto digit = static_cast<uint8_t>("0123456789abcdef"[c & 15]);
      nfa_.AddRange(ten, digit, digit, end);
    }
  }

  // Both ends have the same number of bytes.
  void Utf8(char32_t low, char32_t high, int from, int end) {
    std::string first;
    std::string last;
    AppendUtf8(low, first);
    AppendUtf8(high, last);
    Utf8Range(first, last, from, end);
  }

  void Utf8Range(std::string_view low, std::string_view high, int from, int end) {
    const auto a = static_cast<uint8_t>(low[0]);
    const auto b = static_cast<uint8_t>(high[0]);
    if (low.size() == 1) {
      nfa_.AddRange(from, a, b, end);
      return;
    }
    const std::string least(low.size() - 1, '\x80');
    const std::string most(low.size() - 1, '\xBF');
    const auto through = [&](uint8_t first, uint8_t last, std::string_view tail_low, std::string_view tail_high) {
      const int next = nfa_.NewState();
      nfa_.AddRange(from, first, last, next);
      Utf8Range(tail_low, tail_high, next, end);
    };
    if (a == b) {
      through(a, a, low.substr(1), high.substr(1));
      return;
    }
    uint8_t first = a;
    uint8_t last = b;
    if (low.substr(1) != least) through(first++, a, low.substr(1), most);
    if (high.substr(1) != most) through(b, last--, least, high.substr(1));
    if (first <= last) through(first, last, least, most);
  }

  int WriteRepeat(const Part& part, int from) {
    const Part& item = part.parts[0];
    for (uint32_t i = 0; i < part.least; ++i) from = Write(item, from);
    if (part.most == kUnbounded) {
      const int loop = nfa_.NewState();
      const int end = nfa_.NewState();
      nfa_.AddEmpty(from, loop);
      nfa_.AddEmpty(Write(item, loop), loop);
      nfa_.AddEmpty(loop, end);
      return end;
    }
    const int end = nfa_.NewState();
    for (uint32_t i = part.least; i < part.most; ++i) {
      nfa_.AddEmpty(from, end);
      const int next = nfa_.NewState();
      nfa_.AddEmpty(from, next);
      from = Write(item, next);
    }
    nfa_.AddEmpty(from, end);
    return end;
  }

  static constexpr size_t kMaxSteps = 500'000;
  ByteNfa& nfa_;
  size_t steps_ = 0;
};

}  // namespace

ByteDfa CompilePattern(std::string_view pattern, const ByteDfaLimits& limits) {
  const Part part = PatternParser(pattern).Parse();
  ByteNfa nfa(limits);
  PatternWriter writer(nfa);
  const int start = nfa.NewState();
  nfa.AddEmpty(writer.WriteChars(AnyChar(), start), start);  // anything before it
  const int found = nfa.NewState();
  nfa.AddEmpty(writer.Write(part, start), found);
  nfa.AddEmpty(writer.WriteChars(AnyChar(), found), found);  // and behind it
  return nfa.Determinize(start, found);
}

ByteDfa CompileJsonChar() {
  ByteNfa nfa;
  const int start = nfa.NewState();
  const int end = nfa.NewState();
  PatternWriter writer(nfa);
  nfa.AddEmpty(writer.WriteChars(PlainChars(), start), end);
  const int escape = nfa.AddLiteral(start, "\\");
  for (char c : std::string_view("\"\\/bfnrt"))
    nfa.AddRange(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), end);
  const auto hex = [&](int from, std::string_view digits, int to) {
    for (char c : digits) nfa.AddRange(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  const auto any = [&](int from, int count, int to) {
    for (; count > 1; --count) {
      const int next = nfa.NewState();
      hex(from, kHex, next);
      from = next;
    }
    hex(from, kHex, to);
  };
  const int first = nfa.AddLiteral(escape, "u");
  const int plain = nfa.NewState();
  hex(first, "0123456789abcefABCEF", plain);
  any(plain, 3, end);
  const int d = nfa.NewState();  // D800 to DFFF come in pairs
  hex(first, "dD", d);
  const int below = nfa.NewState();
  hex(d, "01234567", below);
  any(below, 2, end);
  const int high = nfa.NewState();
  hex(d, "89abAB", high);
  const int pair = nfa.NewState();
  any(high, 2, pair);
  const int second = nfa.AddLiteral(pair, "\\u");
  const int low_d = nfa.NewState();
  hex(second, "dD", low_d);
  const int low = nfa.NewState();
  hex(low_d, "cdefCDEF", low);
  any(low, 2, end);
  return nfa.Determinize(start, end);
}

ByteDfa CompilePlainChars() {
  ByteNfa nfa;
  const int start = nfa.NewState();
  PatternWriter writer(nfa);
  nfa.AddEmpty(writer.WriteChars(PlainChars(), start), start);
  return nfa.Determinize(start, start);
}

}  // namespace octavo::text
