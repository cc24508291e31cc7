#include "octavo/ops/einsum_dims.h"

#include <algorithm>
#include <string>

#include "octavo/base/error.h"

namespace octavo::ops {
namespace {

struct Terms {
  std::string first, second, result;
};

std::string Stripped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c != ' ') result += c;
  }
  return result;
}

Terms Split(std::string_view where, std::string_view equation) {
  const std::string text = Stripped(equation);
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow ||
      text.find(',', comma + 1) != std::string::npos) {
    ThrowUsage("{}: equation '{}': expected two operands and a result, as in 'ab,bc->ac'", where, equation);
  }
  return {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1), text.substr(arrow + 2)};
}

// Digits stand for the axes of "...", counted from the right, so that both operands' ellipses align.
std::string Expand(std::string_view where, std::string_view equation, const std::string& term, int axes) {
  const size_t dots = term.find("...");
  std::string result;
  if (dots == std::string::npos) {
    result = term;
  } else {
    const int letters = static_cast<int>(term.size()) - 3;
    if (axes < letters || axes - letters > 10) {
      ThrowUsage("{}: equation '{}': term '{}' does not fit an operand of {} axes", where, equation, term, axes);
    }
    result = term.substr(0, dots);
    for (int i = axes - letters; i-- > 0;) result += static_cast<char>('0' + i);
    result += term.substr(dots + 3);
  }
  for (size_t i = 0; i < result.size(); ++i) {
    const bool known = std::isalnum(static_cast<unsigned char>(result[i])) != 0;
    if (!known || result.find(result[i], i + 1) != std::string::npos) {
      ThrowUsage("{}: equation '{}': '{}' in term '{}' is not a letter or is repeated", where, equation, result[i],
                 term);
    }
  }
  if (axes >= 0 && static_cast<int>(result.size()) != axes) {
    ThrowUsage("{}: equation '{}': term '{}' names {} axes, the operand has {}", where, equation, term, result.size(),
               axes);
  }
  return result;
}

int IndexOf(const std::string& term, char letter) {
  const size_t at = term.find(letter);
  return at == std::string::npos ? -1 : static_cast<int>(at);
}

}  // namespace

EinsumDims ParseEinsum(std::string_view where, std::string_view equation, const Shape& first, const Shape& second) {
  const Terms terms = Split(where, equation);
  const std::string a = Expand(where, equation, terms.first, first.rank());
  const std::string b = Expand(where, equation, terms.second, second.rank());
  // The result's ellipsis covers what the operands' ellipses do.
  std::string result = terms.result;
  if (const size_t dots = result.find("..."); dots != std::string::npos) {
    std::string digits;
    for (char c = '9'; c >= '0'; --c) {
      if (IndexOf(a, c) >= 0 || IndexOf(b, c) >= 0) digits += c;
    }
    result = result.substr(0, dots) + digits + result.substr(dots + 3);
  }
  EinsumDims parsed;
  std::string shared, product;
  for (char letter : b) {
    if (IndexOf(a, letter) >= 0) shared += letter;
  }
  std::sort(shared.begin(), shared.end());
  for (char letter : shared) {
    const bool batch = IndexOf(result, letter) >= 0;
    (batch ? parsed.dims.lhs_batch : parsed.dims.lhs_contract).push_back(IndexOf(b, letter));
    (batch ? parsed.dims.rhs_batch : parsed.dims.rhs_contract).push_back(IndexOf(a, letter));
    if (batch) product += letter;
  }
  for (const std::string* term : {&b, &a}) {
    for (char letter : *term) {
      if (shared.find(letter) != std::string::npos) continue;
      if (IndexOf(result, letter) < 0) {
        ThrowUsage("{}: equation '{}': '{}' would be summed over one operand only", where, equation, letter);
      }
      product += letter;
    }
  }
  for (char letter : result) {
    const int at = IndexOf(product, letter);
    if (at < 0 || std::count(result.begin(), result.end(), letter) != 1) {
      ThrowUsage("{}: equation '{}': '{}' in the result is unknown or repeated", where, equation, letter);
    }
    parsed.order.push_back(at);
  }
  DotShape(where, second, first, parsed.dims);
  return parsed;
}

}  // namespace octavo::ops
