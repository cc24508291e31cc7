#include "bench/common/harness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "octavo/base/error.h"

namespace octavo::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// OpenBLAS threads yield in a loop for 2^26 cycles after a call, libgomp's spin for a few milliseconds: let them fall
// asleep before someone else is timed.
void Settle(bool after_foreign) {
  if (after_foreign) std::this_thread::sleep_for(std::chrono::milliseconds(35));
}

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

Timing Summary(std::vector<double> samples, const Verdict& verdict) {
  std::sort(samples.begin(), samples.end());
  Timing timing;
  timing.median = Quantile(samples, 0.5);
  timing.least = samples.front();
  timing.spread = (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / timing.median;
  timing.verdict = verdict;
  return timing;
}

// Runs once for the check and learns how long a run takes.
struct Checked {
  Verdict verdict;
  double seconds;
};

Checked CheckOne(const Contender& contender) {
  contender.run(0);
  const Verdict verdict = contender.check();
  if (!verdict.right && !contender.foreign) {
    throw Error(ErrorCode::kCheck,
                fmt::format("{} {} computed a wrong result: {}", contender.name, contender.family, verdict.text));
  }
  const auto start = Clock::now();
  contender.run(1);
  return {verdict, Since(start)};
}

}  // namespace

std::vector<Timing> Race(const std::vector<Contender>& contenders, const HarnessOptions& options) {
  const size_t count = contenders.size();
  std::vector<Checked> checked(count);
  std::vector<int64_t> turn(count, 2);
  for (size_t i = 0; i < count; ++i) checked[i] = CheckOne(contenders[i]);
  std::vector<std::vector<double>> samples(count);
  bool after_foreign = true;
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t j = 0; j < count; ++j) {
      const size_t i = (j + static_cast<size_t>(round)) % count;
      const Contender& contender = contenders[i];
      Settle(after_foreign);
      after_foreign = contender.foreign;
      const int repeats =
          static_cast<int>(std::clamp(std::ceil(options.sample_seconds / checked[i].seconds), 1.0, 10000.0));
      if (repeats > 1) contender.run(turn[i]++);  // warms the caches as a repeat would find them
      const auto start = Clock::now();
      for (int r = 0; r < repeats; ++r) contender.run(turn[i]++);
      samples[i].push_back(Since(start) / repeats);
    }
  }
  std::vector<Timing> timings;
  for (size_t i = 0; i < count; ++i) timings.push_back(Summary(samples[i], checked[i].verdict));
  return timings;
}

}  // namespace octavo::bench
