// ./run bench train --stats RECIPES: what quant_stats=light costs. Two trainings of the same model, one with it and one
// without, live in one process and take turns step by step, so that whatever the machine does to one it does to the
// other; the cost is the median of the differences of neighbours. A measuring step (every quant_stats_period steps) is
// told apart from an ordinary one and charged to as many steps as a run has between two of them.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "bench/train.h"
#include "octavo/base/error.h"
#include "octavo/base/progress.h"
#include "octavo/base/temp_folder.h"
#include "octavo/config/settings.h"
#include "octavo/dist/communicator.h"
#include "octavo/train/trainer.h"

namespace octavo::bench {
namespace {

constexpr int kPeriod = 6;         // between two measuring steps here, so that there are enough of them
constexpr int kUsualPeriod = 100;  // quant_stats_period as it comes

// Lets two threads through in turn, one step each.
class Turns {
 public:
  // Ends the turn of `who` and waits for the next; the seconds that the turn took.
  double Pass(int who, double began) {
    const double took = Progress::SteadySeconds() - began;
    std::unique_lock lock(mutex_);
    if (!alone_) next_ = 1 - who;
    changed_.notify_all();
    changed_.wait(lock, [&] { return next_ == who || alone_; });
    return took;
  }
  void Wait(int who) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == who || alone_; });
  }
  // The other goes on by itself.
  void Leave() {
    const std::lock_guard lock(mutex_);
    alone_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int next_ = 0;
  bool alone_ = false;
};

// The seconds of each step, writing of the step before included.
std::vector<double> TrainInTurns(const std::vector<std::string>& words, int threads, int who, Turns& turns) {
  turns.Wait(who);
  const Settings settings = Settings::Load({.words = words});
  Log log(STDERR_FILENO, {.level = LogLevel::kError});
  ThreadPool pool(ChooseThreads(threads));
  SelfCommunicator self;
  std::vector<double> seconds;
  double began = Progress::SteadySeconds();
  train::Train({.settings = settings,
                .log = log,
                .pool = pool,
                .communicator = self,
                .isa = kernels::ChooseIsa().isa,
                .on_step = [&](const train::StepMetrics&) {
                  seconds.push_back(turns.Pass(who, began));
                  began = Progress::SteadySeconds();
                }});
  turns.Leave();
  return seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// The median and the 95 % interval of it that the order of the values alone gives.
struct MedianRange {
  double median, low, high;
};
MedianRange RangeOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double half = 0.98 * std::sqrt(n);
  const auto at = [&](double rank) { return values[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))]; };
  return {Median(values), at(n / 2 - half), at(n / 2 + half)};
}

}  // namespace

int RunStatsCost(const std::string& size, const std::vector<std::string>& recipes, int steps, int threads) {
  bool good = true;
  fmt::print(
      "quant_stats=light against off at size {}, {} steps of each in turn; medians, 95 % intervals, % of a step\n",
      size, steps);
  for (const std::string& recipe : recipes) {
    Turns turns;
    std::vector<double> seconds[2];
    std::exception_ptr failed;
    const TempFolder folder;
    const auto one = [&](int who) {
      try {
        std::vector<std::string> words = TrainWords(TrainSizeByName(size), recipe, steps + 1, folder.path().string());
        std::erase(words, "profile=true");
        std::erase(words, "run_name=bench");
        words.push_back(fmt::format("run_name=bench{}", who));
        words.push_back(fmt::format("quant_stats={}", who == 0 ? "off" : "light"));
        words.push_back(fmt::format("quant_stats_period={}", kPeriod));
        seconds[who] = TrainInTurns(words, threads, who, turns);
      } catch (...) {
        failed = std::current_exception();
        turns.Leave();
      }
    };
    std::thread other([&] { one(1); });
    one(0);
    other.join();
    if (failed) std::rethrow_exception(failed);
    std::vector<double> plain, ordinary, measuring;  // of a step without; differences in % of it
    for (int step = 1; step <= steps; ++step) plain.push_back(seconds[0][static_cast<size_t>(step)]);
    const double base = Median(plain);
    for (int step = 1; step <= steps; ++step) {
      const auto at = static_cast<size_t>(step);
      // The figures of a measuring step are written after it, in the turn of the next.
      if (step % kPeriod == 1) continue;
      (step % kPeriod == 0 ? measuring : ordinary).push_back(100 * (seconds[1][at] - seconds[0][at]) / base);
    }
    const MedianRange usual = RangeOf(ordinary);
    const double extra = std::max(0.0, Median(measuring) - usual.median), total = usual.median + extra / kUsualPeriod;
    good &= total <= 1;
    fmt::print(
        "  {:<22} {:.4f} s a step   ordinary {:+.2f} ({:+.2f} … {:+.2f})   a measuring one {:+.0f}   every {} steps "
        "{:+.2f} %   bar ≤ 1   {}\n",
        recipe, base, usual.median, usual.low, usual.high, Median(measuring), kUsualPeriod, total,
        total <= 1 ? "met" : "MISSED");
    std::fflush(stdout);
  }
  return good ? 0 : static_cast<int>(ErrorCode::kCheck);
}

}  // namespace octavo::bench
