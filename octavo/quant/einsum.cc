#include "octavo/quant/einsum.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

constexpr size_t kMaxOperands = 6;  // all orders of pairs are tried

bool Has(std::string_view letters, char letter) { return letters.find(letter) != std::string_view::npos; }

void CheckTerm(std::string_view equation, std::string_view term) {
  for (size_t i = 0; i < term.size(); ++i) {
    if (std::isalpha(static_cast<unsigned char>(term[i])) == 0) {
      ThrowUsage("Einsum '{}': '{}' is not a letter", equation, term[i]);
    }
    if (Has(term.substr(i + 1), term[i])) ThrowUsage("Einsum '{}': '{}' occurs twice in '{}'", equation, term[i], term);
  }
}

struct Factor {
  DotOperand operand;
  std::string letters;
};

DotOperand Repeated(const DotOperand& operand, const Shape& shape) {
  if (const auto* tensor = std::get_if<Tensor>(&operand)) return tensor->RepeatTo(shape);
  if (const auto* codes = std::get_if<Codes>(&operand)) return Codes{codes->values.RepeatTo(shape), codes->format};
  return RepeatTo(std::get<QArray>(operand), shape);
}

// The length of each letter: the largest that any operand has.
std::map<char, int64_t> LengthsOf(std::span<const Factor> factors) {
  std::map<char, int64_t> lengths;
  for (const Factor& factor : factors) {
    for (size_t i = 0; i < factor.letters.size(); ++i) {
      int64_t& length = lengths.try_emplace(factor.letters[i], 0).first->second;
      length = std::max(length, ShapeOf(factor.operand)[static_cast<int>(i)]);
    }
  }
  return lengths;
}

Tensor FloatOf(const DotOperand& operand) {
  if (const auto* array = std::get_if<QArray>(&operand)) return Dequantize(*array);
  if (const auto* tensor = std::get_if<Tensor>(&operand)) return *tensor;
  ThrowUsage("Einsum: codes without a scale cannot be summed alone");
}

// Sums the letters that `keep` lacks; nothing to do for most operands.
Factor SumAlone(const Factor& factor, std::string_view keep) {
  std::string kept, gone;
  std::vector<int> order, summed;
  for (size_t i = 0; i < factor.letters.size(); ++i) {
    const bool stays = Has(keep, factor.letters[i]);
    (stays ? kept : gone).push_back(factor.letters[i]);
    (stays ? order : summed).push_back(static_cast<int>(i));
  }
  if (gone.empty()) return factor;
  const int first = static_cast<int>(order.size());
  order.insert(order.end(), summed.begin(), summed.end());
  const Tensor values = FloatOf(factor.operand).Permute(order);
  return {SumAxes(values, first, static_cast<int>(summed.size())), kept};
}

// The letters of a product of two factors that somebody still needs.
std::string Needed(const std::vector<std::string>& terms, size_t a, size_t b, std::string_view output) {
  std::string others(output);
  for (size_t i = 0; i < terms.size(); ++i) {
    if (i != a && i != b) others += terms[i];
  }
  std::string result;
  for (char letter : terms[a] + terms[b]) {
    if (Has(others, letter) && !Has(result, letter)) result.push_back(letter);
  }
  return result;
}

struct Pairing {
  double cost = std::numeric_limits<double>::infinity();
  size_t low = 0, high = 1;
};
// The pair to multiply first so that all products together cost least. Ties: the earlier pair.
Pairing BestPair(const std::vector<std::string>& terms, std::string_view output,
                 const std::map<char, int64_t>& lengths) {
  if (terms.size() == 1) return {0, 0, 0};
  Pairing best;
  for (size_t low = 0; low < terms.size(); ++low) {
    for (size_t high = low + 1; high < terms.size(); ++high) {
      double cost = 1;
      std::string all;
      for (char letter : terms[low] + terms[high]) {
        if (Has(all, letter)) continue;
        all.push_back(letter);
        cost *= static_cast<double>(lengths.at(letter));
      }
      std::vector<std::string> rest;
      for (size_t i = 0; i < terms.size(); ++i) {
        if (i != low && i != high) rest.push_back(terms[i]);
      }
      rest.push_back(Needed(terms, low, high, output));
      cost += BestPair(rest, output, lengths).cost;
      if (cost < best.cost) best = {cost, low, high};
    }
  }
  return best;
}

std::vector<Factor> FactorsOf(std::string_view text, const EinsumEquation& equation,
                              std::span<const DotOperand> operands) {
  if (equation.terms.size() != operands.size()) {
    ThrowUsage("Einsum '{}': {} operands given", text, operands.size());
  }
  if (operands.size() > kMaxOperands) ThrowUsage("Einsum '{}': more than {} operands", text, kMaxOperands);
  std::vector<Factor> factors;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = ShapeOf(operands[i]);
    if (shape.rank() != static_cast<int>(equation.terms[i].size())) {
      ThrowUsage("Einsum '{}': operand {} is {}, its term is '{}'", text, i, shape, equation.terms[i]);
    }
    factors.push_back({operands[i], equation.terms[i]});
  }
  const auto lengths = LengthsOf(factors);
  for (Factor& factor : factors) {
    std::vector<int64_t> dims;
    for (char letter : factor.letters) dims.push_back(lengths.at(letter));
    factor.operand = Repeated(factor.operand, Shape(dims));
  }
  return factors;
}

Factor Multiply(const Run& run, const Factor& lhs, const Factor& rhs, const std::string& output, DType result) {
  const EinsumDot dot = EinsumAsDot(lhs.letters, rhs.letters, output);
  return {DotGeneral(run, lhs.operand, rhs.operand, dot.dims, result).Permute(dot.order), output};
}

Tensor Ordered(const Factor& factor, std::string_view output) {
  std::vector<int> order;
  for (char letter : output) order.push_back(static_cast<int>(factor.letters.find(letter)));
  return FloatOf(factor.operand).Permute(order).Contiguous();
}

}  // namespace

EinsumEquation ParseEinsum(std::string_view text) {
  std::string equation;
  for (char c : text) {
    if (c != ' ') equation.push_back(c);
  }
  EinsumEquation result;
  const auto arrow = equation.find("->");
  std::string_view left = std::string_view(equation).substr(0, arrow);
  while (true) {
    const auto comma = left.find(',');
    result.terms.emplace_back(left.substr(0, comma));
    CheckTerm(text, result.terms.back());
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  std::string all;
  for (const std::string& term : result.terms) all += term;
  if (arrow != std::string::npos) {
    result.output = equation.substr(arrow + 2);
    CheckTerm(text, result.output);
    for (char letter : result.output) {
      if (!Has(all, letter)) ThrowUsage("Einsum '{}': '{}' of the output is in no operand", text, letter);
    }
    return result;
  }
  for (char letter : all) {
    if (std::count(all.begin(), all.end(), letter) == 1) result.output.push_back(letter);
  }
  std::sort(result.output.begin(), result.output.end());
  return result;
}

EinsumDot EinsumAsDot(std::string_view lhs, std::string_view rhs, std::string_view output) {
  std::string shared;
  for (char letter : lhs) {
    if (Has(rhs, letter)) shared.push_back(letter);
  }
  std::sort(shared.begin(), shared.end());
  EinsumDot result;
  std::string letters;
  auto axis = [](std::string_view term, char letter) { return static_cast<int>(term.find(letter)); };
  for (char letter : shared) {
    const bool batch = Has(output, letter);
    (batch ? result.dims.lhs_batch : result.dims.lhs_contract).push_back(axis(lhs, letter));
    (batch ? result.dims.rhs_batch : result.dims.rhs_contract).push_back(axis(rhs, letter));
    if (batch) letters.push_back(letter);
  }
  for (std::string_view term : {lhs, rhs}) {
    for (char letter : term) {
      if (Has(shared, letter)) continue;
      if (!Has(output, letter))
        ThrowUsage("Einsum: '{}' is in one of '{}', '{}' and not in '{}'", letter, lhs, rhs, output);
      letters.push_back(letter);
    }
  }
  for (char letter : output) result.order.push_back(axis(letters, letter));
  return result;
}

Tensor Einsum(const Run& run, std::string_view equation, std::span<const DotOperand> operands) {
  const ScopedFloatMode mode;
  const EinsumEquation parsed = ParseEinsum(equation);
  std::vector<Factor> factors = FactorsOf(equation, parsed, operands);
  // The dtype of the result is that of all operands together, whatever the order of the products.
  DType result = DotResultDType(operands[0], operands[0]);
  for (const DotOperand& operand : operands) result = Promote(result, DotResultDType(operand, operand));
  for (size_t i = 0; i < factors.size(); ++i) {
    std::string keep = parsed.output;
    for (size_t j = 0; j < factors.size(); ++j) {
      if (j != i) keep += factors[j].letters;
    }
    factors[i] = SumAlone(factors[i], keep);
  }
  const auto lengths = LengthsOf(factors);
  while (factors.size() > 1) {
    std::vector<std::string> terms;
    for (const Factor& factor : factors) terms.push_back(factor.letters);
    const auto [cost, low, high] = BestPair(terms, parsed.output, lengths);
    const std::string output = factors.size() == 2 ? parsed.output : Needed(terms, low, high, parsed.output);
    Factor product = Multiply(run, factors[high], factors[low], output, result);
    factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(high));
    factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(low));
    factors.push_back(std::move(product));
  }
  return Ordered(factors[0], parsed.output);
}

Granularity EinsumGranularity(const EinsumEquation& equation, size_t index, std::optional<TileSize> tile) {
  if (equation.terms.size() != 2 || index > 1) {
    ThrowUsage("Einsum: scales are chosen for one of two operands, not for {} of {}", index, equation.terms.size());
  }
  const std::string &own = equation.terms[index], &other = equation.terms[1 - index];
  Granularity result;
  int last = -1;
  for (size_t i = 0; i < own.size(); ++i) {
    if (Has(other, own[i]) && !Has(equation.output, own[i])) {
      last = static_cast<int>(i);
    } else {
      result.channelwise_axes.push_back(static_cast<int>(i));
    }
  }
  if (tile && last >= 0) result.tiled_axes[last] = *tile;
  return result;
}

}  // namespace octavo::quant
