#include "octavo/quant/health.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/base/error.h"

namespace octavo::quant {
namespace {

double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

float LeastNonZero(float a, float b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

}  // namespace

HealthMode ParseHealthMode(std::string_view text) {
  if (text == "off") return HealthMode::kOff;
  if (text == "light") return HealthMode::kLight;
  if (text == "full") return HealthMode::kFull;
  ThrowUsage("quant_stats: '{}', expected off, light or full", text);
}

double OperandHealth::SaturatedShare() const { return Share(saturated, elements); }
double OperandHealth::FlushedShare() const { return Share(flushed, measured); }
double OperandHealth::Sqnr() const {
  return error_squares == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(squares / error_squares);
}

void OperandHealth::Merge(const OperandHealth& later) {
  format = later.format;
  follows = later.follows;
  once = later.once;
  elements += later.elements;
  saturated += later.saturated;
  nonfinite += later.nonfinite;
  measured += later.measured;
  flushed += later.flushed;
  amax = std::max(amax, later.amax);
  smallest = LeastNonZero(smallest, later.smallest);
  scale_min = LeastNonZero(scale_min, later.scale_min);
  scale_max = std::max(scale_max, later.scale_max);
  squares += later.squares;
  error_squares += later.error_squares;
}

void Merge(HealthRecords& into, const HealthRecords& later) {
  for (const auto& [key, health] : later) into[key].Merge(health);
}

struct HealthSink::Filter {
  explicit Filter(std::string_view text) : expression(std::string(text), RE2::Quiet) {}
  RE2 expression;
};

HealthSink::HealthSink(HealthMode mode, std::string_view filter) : mode_(mode) {
  if (filter.empty()) return;
  filter_ = std::make_unique<Filter>(filter);
  if (!filter_->expression.ok()) {
    ThrowUsage("quant_stats_filter '{}': {}", filter, filter_->expression.error());
  }
}

HealthSink::~HealthSink() = default;

bool HealthSink::Wants(const std::string& path) {
  if (mode_ == HealthMode::kOff) return false;
  if (filter_ == nullptr) return true;
  const auto [at, fresh] = wanted_.try_emplace(path, false);
  if (fresh) at->second = RE2::FullMatch(path, filter_->expression);
  return at->second;
}

HealthRecords HealthSink::Take() { return std::exchange(records_, {}); }

OperandHealth& HealthSink::At(std::string site, std::string_view operand) {
  return records_[HealthKey{std::move(site), std::string(operand)}];
}

}  // namespace octavo::quant
