#include "octavo/quant/health_warnings.h"

#include <fmt/format.h>

#include <tuple>

namespace octavo::quant {
namespace {

constexpr double kSaturatedLimit = 0.001, kFlushedLimit = 0.05, kGrowthLimit = 10;

double LeastSqnr(Format format) { return Info(format).bits <= 4 ? 12 : 20; }

// Whether a is the worse of two figures of one kind.
bool Worse(HealthIssue issue, double a, double b) { return issue == HealthIssue::kNoisy ? a < b : a > b; }

std::string Trouble(const HealthWarning& worst, bool several) {
  const std::string_view up_to = several ? "up to " : "";
  switch (worst.issue) {
    case HealthIssue::kNonFinite:
      return fmt::format("{}{:.0f} values are NaN or infinite", up_to, worst.value);
    case HealthIssue::kSaturated:
      return fmt::format("saturated {}{:.2f} % (limit 0.1 %)", up_to, 100 * worst.value);
    case HealthIssue::kFlushed:
      return fmt::format("flushed to zero {}{:.1f} % (limit 5 %)", up_to, 100 * worst.value);
    case HealthIssue::kNoisy:
      return fmt::format("signal-to-noise ratio {}{:.1f} dB (limit {:.0f} dB)", several ? "down to " : "", worst.value,
                         LeastSqnr(worst.format));
    case HealthIssue::kGrown:
      return fmt::format("largest magnitude grew {}{:.0f} times within 100 steps (limit 10)", up_to, worst.value);
  }
  return "";
}

}  // namespace

std::vector<HealthWarning> FindHealthWarnings(const HealthRecords& records, const std::map<HealthKey, float>& before) {
  std::vector<HealthWarning> warnings;
  for (const auto& record : records) {
    const HealthKey& key = record.first;
    const OperandHealth& health = record.second;
    const auto warn = [&](HealthIssue issue, double value) { warnings.push_back({key, health.format, issue, value}); };
    if (health.nonfinite > 0) warn(HealthIssue::kNonFinite, static_cast<double>(health.nonfinite));
    if (!health.follows && health.SaturatedShare() > kSaturatedLimit) {
      warn(HealthIssue::kSaturated, health.SaturatedShare());
    }
    if (health.FlushedShare() > kFlushedLimit) warn(HealthIssue::kFlushed, health.FlushedShare());
    if (health.measured > 0 && health.squares > 0 && health.Sqnr() < LeastSqnr(health.format)) {
      warn(HealthIssue::kNoisy, health.Sqnr());
    }
    const auto earlier = before.find(key);
    if (earlier != before.end() && earlier->second > 0 && health.amax > kGrowthLimit * earlier->second) {
      warn(HealthIssue::kGrown, static_cast<double>(health.amax) / earlier->second);
    }
  }
  return warnings;
}

std::vector<std::string> WarningLines(const std::vector<HealthWarning>& warnings) {
  struct Group {
    int64_t sites = 0;
    HealthWarning worst;
  };
  std::map<std::tuple<HealthIssue, std::string, Format>, Group> groups;
  for (const HealthWarning& warning : warnings) {
    Group& group = groups[{warning.issue, warning.key.operand, warning.format}];
    if (group.sites++ == 0 || Worse(warning.issue, warning.value, group.worst.value)) group.worst = warning;
  }
  std::vector<std::string> lines;
  for (const auto& item : groups) {
    const Group& group = item.second;
    const HealthKey& key = group.worst.key;
    const std::string_view format = Info(group.worst.format).name;
    if (group.sites == 1) {
      lines.push_back(fmt::format("{} {} ({}): {}", key.site, key.operand, format, Trouble(group.worst, false)));
    } else {
      lines.push_back(fmt::format("{} ({}) of {} sites: {}, {} at {}", key.operand, format, group.sites,
                                  Trouble(group.worst, true),
                                  group.worst.issue == HealthIssue::kNoisy ? "least" : "most", key.site));
    }
  }
  return lines;
}

}  // namespace octavo::quant
