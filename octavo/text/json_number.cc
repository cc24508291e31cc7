#include "octavo/text/json_number.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/text/ecma_regex.h"

namespace octavo::text {
namespace {

constexpr int kDigits = 18;
constexpr std::string_view kFraction =
    "(\\.\\d+)?";  // how many digits there may be in all is another automaton's matter

std::string Digits(size_t least, size_t most) { return fmt::format("\\d{{{},{}}}", least, most); }

// The texts of non-negative numbers at least, at most a bound, as a pattern. With `whole_only` nothing follows the
// whole part, and the bound has no fraction and is inclusive.
class Side {
 public:
  Side(const DecimalBound& bound, bool whole_only)
      : bound_(bound), tail_(whole_only ? "" : kFraction), whole_only_(whole_only) {}

  std::string AtLeast() {
    const std::string& whole = bound_.whole;
    if (!whole_only_) {
      Add(fmt::format("[1-9]\\d{{{},}}{}", whole.size(), tail_));
    } else if (whole.size() < kDigits) {
      Add(fmt::format("[1-9]{}", Digits(whole.size(), kDigits - 1)));
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      if (whole[i] == '9') continue;
      const size_t rest = whole.size() - i - 1;
      Add(fmt::format("{}[{}-9]{}{}", whole.substr(0, i), static_cast<char>(whole[i] + 1), Digits(rest, rest), tail_));
    }
    const std::string& fraction = bound_.fraction;
    if (fraction.empty() && !bound_.exclusive) Add(fmt::format("{}{}", whole, tail_));
    if (whole_only_) return pattern_;
    for (size_t i = 0; i < fraction.size(); ++i) {
      if (fraction[i] == '9') continue;
      Add(fmt::format("{}\\.{}[{}-9]\\d*", whole, fraction.substr(0, i), static_cast<char>(fraction[i] + 1)));
    }
    if (!fraction.empty() && !bound_.exclusive) Add(fmt::format("{}\\.{}\\d*", whole, fraction));
    if (bound_.exclusive) Add(fmt::format("{}\\.{}\\d*[1-9]\\d*", whole, fraction));
    return pattern_;
  }

  std::string AtMost() {
    const std::string& whole = bound_.whole;
    const std::string& fraction = bound_.fraction;
    if (whole.size() > 1) Add(fmt::format("(0|[1-9]{}){}", Digits(0, whole.size() - 2), tail_));
    for (size_t i = 0; i < whole.size(); ++i) {
      const char least = i == 0 && whole.size() > 1 ? '1' : '0';
      if (whole[i] <= least) continue;
      const size_t rest = whole.size() - i - 1;
      Add(fmt::format("{}[{}-{}]{}{}", whole.substr(0, i), least, static_cast<char>(whole[i] - 1), Digits(rest, rest),
                      tail_));
    }
    if (!fraction.empty() || !bound_.exclusive) Add(whole);
    if (whole_only_) return pattern_;
    if (fraction.empty() && !bound_.exclusive) Add(fmt::format("{}\\.0+", whole));
    for (size_t i = 0; i < fraction.size(); ++i) {
      const std::string head = fraction.substr(0, i);
      if (fraction[i] > '0') {
        Add(fmt::format("{}\\.{}[0-{}]\\d*", whole, head, static_cast<char>(fraction[i] - 1)));
      }
      if (i > 0) Add(fmt::format("{}\\.{}", whole, head));
    }
    if (!fraction.empty() && !bound_.exclusive) Add(fmt::format("{}\\.{}0*", whole, fraction));
    return pattern_;
  }

 private:
  void Add(std::string_view choice) { pattern_ += (pattern_.empty() ? "" : "|") + std::string(choice); }

  const DecimalBound& bound_;
  std::string_view tail_;
  bool whole_only_;
  std::string pattern_;
};

ByteDfa Compile(std::string_view sign, std::string_view pattern) {
  if (pattern.empty()) return {};
  return CompilePattern(fmt::format("^{}(?:{})$", sign, pattern));
}

std::string Any(bool whole_only) {
  return whole_only ? fmt::format("0|[1-9]{}", Digits(0, kDigits - 1)) : fmt::format("(0|[1-9]\\d*){}", kFraction);
}

// Numbers with one sign whose magnitude lies between the bounds.
ByteDfa Magnitudes(std::string_view sign, const std::optional<DecimalBound>& least,
                   const std::optional<DecimalBound>& most, bool whole_only) {
  ByteDfa low = Compile(sign, least ? Side(*least, whole_only).AtLeast() : Any(whole_only));
  if (!most) return low;
  return ByteDfa::Product(low, Compile(sign, Side(*most, whole_only).AtMost()), ByteDfa::Combine::kBoth);
}

ByteDfa Either(const ByteDfa& a, const ByteDfa& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return ByteDfa::Product(a, b, ByteDfa::Combine::kEither);
}

ByteDfa CompileBetween(const NumberBounds& bounds, bool whole_only) {
  const DecimalBound zero;
  ByteDfa positive;
  ByteDfa negative;
  if (!bounds.most || !bounds.most->negative || bounds.most->IsZero()) {
    const bool from_zero = !bounds.least || bounds.least->negative;
    positive = Magnitudes("", from_zero ? std::optional(zero) : bounds.least, bounds.most, whole_only);
  }
  if (!bounds.least || (bounds.least->negative && !bounds.least->IsZero())) {
    std::optional<DecimalBound> low = zero;
    low->exclusive = true;  // no -0
    if (bounds.most && bounds.most->negative) low = bounds.most;
    if (whole_only && low->exclusive) low = DecimalBound{false, "1", "", false};
    negative = Magnitudes("-", low, bounds.least, whole_only);
  }
  return Either(positive, negative);
}

// A bound of integers without fraction and inclusive: up for the least one, down for the most.
DecimalBound Whole(const DecimalBound& bound, bool up) {
  int64_t value = 0;
  for (char c : bound.whole) value = value * 10 + (c - '0');
  if (bound.negative) value = -value;
  const bool between = !bound.fraction.empty();
  if (up) {
    if (between ? !bound.negative : bound.exclusive) ++value;
  } else {
    if (between ? bound.negative : bound.exclusive) --value;
  }
  return {value < 0, std::to_string(value < 0 ? -value : value), "", false};
}

}  // namespace

DecimalBound MakeBound(double value, bool exclusive) {
  DecimalBound bound;
  bound.exclusive = exclusive;
  bound.negative = value < 0;
  const double magnitude = std::fabs(value);
  if (!(magnitude < 1e18)) ThrowUsage("a bound of {} has more than {} digits", value, kDigits);
  // The shortest digits that give the number back, then the point moved to its place.
  std::string shortest = fmt::format("{}", magnitude);
  int exponent = 0;
  if (const size_t e = shortest.find('e'); e != std::string::npos) {
    exponent = std::stoi(shortest.substr(e + 1));
    shortest.resize(e);
  }
  std::string digits;
  int point = -1;
  for (char c : shortest) {
    if (c == '.') {
      point = static_cast<int>(digits.size());
    } else {
      digits.push_back(c);
    }
  }
  if (point < 0) point = static_cast<int>(digits.size());
  point += exponent;
  if (point < -kDigits || static_cast<int>(digits.size()) - point > 40) {
    ThrowUsage("a bound of {} has more than {} digits behind the point", value, kDigits);
  }
  if (point <= 0) digits.insert(0, static_cast<size_t>(1 - point), '0'), point = 1;
  if (point > static_cast<int>(digits.size())) digits.append(static_cast<size_t>(point) - digits.size(), '0');
  bound.whole = digits.substr(0, static_cast<size_t>(point));
  bound.fraction = digits.substr(static_cast<size_t>(point));
  bound.whole.erase(0, std::min(bound.whole.find_first_not_of('0'), bound.whole.size() - 1));
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  if (bound.fraction.size() > static_cast<size_t>(kDigits) - 2) {
    ThrowUsage("a bound of {} has more than {} digits behind the point", value, kDigits - 2);
  }
  if (bound.IsZero()) bound.negative = false;
  return bound;
}

ByteDfa CompileInteger(const NumberBounds& bounds) {
  NumberBounds whole;
  if (bounds.least) whole.least = Whole(*bounds.least, true);
  if (bounds.most) whole.most = Whole(*bounds.most, false);
  return CompileBetween(whole, true);
}

ByteDfa CompileNumber(const NumberBounds& bounds) {
  if (bounds.least || bounds.most) {
    // At most 15 digits in all: no two such numbers are one double, so that what lies beyond a bound as text does so
    // for every reader.
    const ByteDfa exact = CompilePattern("^-?(\\.?\\d){1,15}$");
    return ByteDfa::Product(CompileBetween(bounds, false), exact, ByteDfa::Combine::kBoth);
  }
  return CompilePattern("^-?(0|[1-9]\\d{0,17})(\\.\\d{1,17})?([eE][+-]?\\d{1,2})?$");
}

}  // namespace octavo::text
