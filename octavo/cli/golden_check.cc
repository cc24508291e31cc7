#include <charconv>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"

namespace octavo {
namespace {

// Whether a name fits a pattern with at most a few '*', such as "*scale*".
bool Fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') return !name.empty() && pattern[0] == name[0] && Fits(pattern.substr(1), name.substr(1));
  for (size_t skip = 0; skip <= name.size(); ++skip) {
    if (Fits(pattern.substr(1), name.substr(skip))) return true;
  }
  return false;
}

// The rule for an output: `compare` is one text for all, or an object of patterns, of which the longest fitting counts.
std::string RuleOf(const GoldenCase& golden, const std::string& output) {
  const nlohmann::json& compare = golden.Field("compare");
  if (compare.is_string()) return compare.get<std::string>();
  std::string rule;
  size_t longest = 0;
  if (!compare.is_object()) return rule;
  for (const auto& [pattern, text] : compare.items()) {
    if (!text.is_string() || pattern.size() < longest || pattern.size() > 100 || !Fits(pattern, output)) continue;
    rule = text.get<std::string>();
    longest = pattern.size();
  }
  return rule;
}

// Whether `rule` is this word, alone or with remarks after it.
bool Says(std::string_view rule, std::string_view word) {
  if (!rule.starts_with(word)) return false;
  rule.remove_prefix(word.size());
  return rule.empty() || std::string_view(" ;:(").find(rule[0]) != std::string_view::npos;
}

// "tolerance 1e-6 relative …" -> 1e-6
std::optional<double> RelativeTolerance(std::string_view rule) {
  const std::optional<std::string> text = Between(rule, "tolerance ", " relative");
  double value = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || !(value > 0)) return std::nullopt;
  return value;
}

Mismatch CompareBy(std::string_view rule, const Tensor& expected, const Tensor& actual, std::optional<Format> format) {
  if (Says(rule, "bits") || Says(rule, "int_dot")) return CompareBits(expected, actual, format);
  if (Says(rule, "dot (chained")) return CompareChained(expected, actual);
  if (Says(rule, "dot")) return CompareDot(expected, actual);
  if (const std::optional<double> tolerance = RelativeTolerance(rule)) {
    return CompareRelative(expected, actual, *tolerance);
  }
  return fmt::format("the rule '{}' for comparing it is not known", rule);
}

}  // namespace

void GoldenCheck::Output(const std::string& name, const Tensor& actual, std::optional<Format> format) {
  if (!case_.HasOutput(name)) return Fail(fmt::format("the case has no output '{}'", name));
  const std::string rule = RuleOf(case_, name);
  if (IsInformation(name)) return Output(name, Mismatch());
  if (!format) format = case_.OutputFormat(name);
  Output(name, CompareBy(rule, case_.Output(name), actual, format));
}

void GoldenCheck::Output(const std::string& name, const Mismatch& mismatch) {
  checked_.insert(name);
  if (mismatch) Fail(fmt::format("output '{}': {}", name, *mismatch));
}

bool GoldenCheck::IsInformation(const std::string& name) const { return Says(RuleOf(case_, name), "information"); }

void GoldenCheck::Results(const nlohmann::json& actual) {
  results_checked_ = true;
  const nlohmann::json& expected = case_.Field("results");
  if (expected == actual) return;
  Fail(fmt::format("results: expected {}, found {}", expected.dump().substr(0, 400), actual.dump().substr(0, 400)));
}

void GoldenCheck::ExpectError(FunctionRef<void()> action) {
  error_checked_ = true;
  try {
    action();
  } catch (const Error&) {
    return;
  }
  Fail(fmt::format("expected an error like \"{}\", and there was none", case_.error().value_or("")));
}

std::vector<std::string> GoldenCheck::Finish() const {
  std::vector<std::string> all = failures_;
  for (const auto& [name, tensor] : case_.outputs()) {
    if (!checked_.contains(name) && !IsInformation(name))
      all.push_back(fmt::format("output '{}' was not compared", name));
  }
  const bool has_results = !case_.Field("results").is_null();
  if (has_results && !results_checked_) all.push_back("the results were not compared");
  if (case_.error() && !error_checked_) all.push_back("the error was not provoked");
  const bool empty = case_.outputs().empty() && !has_results && !case_.error();
  if (empty && checked_.empty() && !results_checked_ && all.empty()) all.push_back("nothing was compared");
  return all;
}

}  // namespace octavo
