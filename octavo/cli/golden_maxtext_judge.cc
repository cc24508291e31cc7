// Comparisons of a trained case with its recording.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/cli/golden_maxtext.h"

namespace octavo {
namespace {

constexpr double kAgree = 1e-5;  // a position agrees when all its logits do

struct Distance {
  double largest = 0, sum = 0;
  int64_t count = 0;

  void Add(double expected, double actual) {
    const double apart = std::fabs(expected - actual);
    largest = apart <= largest ? largest : apart;  // NaN wins
    if (std::isnan(apart)) largest = apart;
    sum += apart;
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  bool Within(double tolerance) const { return largest <= tolerance; }
};

Distance Between(const Tensor& expected, const Tensor& actual) {
  Distance distance;
  const std::vector<float> a = expected.ToVector<float>(), b = actual.ToVector<float>();
  for (size_t i = 0; i < a.size(); ++i) distance.Add(a[i], b[i]);
  return distance;
}

// The share of rows of the last axis that agree.
int64_t AgreeingPositions(const Tensor& expected, const Tensor& actual) {
  const std::vector<float> a = expected.ToVector<float>(), b = actual.ToVector<float>();
  const auto width = static_cast<size_t>(expected.dim(-1));
  int64_t agreeing = 0;
  for (size_t row = 0; row < a.size(); row += width) {
    bool agrees = true;
    for (size_t i = row; i < row + width; ++i) agrees = agrees && std::fabs(a[i] - b[i]) <= kAgree;
    agreeing += agrees ? 1 : 0;
  }
  return agreeing;
}

class Judge {
 public:
  Judge(const MaxTextCase& one, const MaxTextTolerance& tolerance) : case_(one), tolerance_(tolerance) {}

  void Logits(const Tensor& actual) {
    if (!case_.Has("out/logits")) return;
    const Tensor expected = case_.Read("out/logits");
    if (!SameShape("out/logits", expected, actual)) return;
    const Distance distance = Between(expected, actual);
    const int64_t positions = expected.size() / expected.dim(-1), agreeing = AgreeingPositions(expected, actual);
    Say("logits {:.1e} (mean {:.1e}, {} of {} positions to 1e-5)", distance.largest, distance.mean(), agreeing,
        positions);
    if (!distance.Within(tolerance_.logits) || !(distance.mean() <= tolerance_.mean_logits)) {
      Fail("logits: apart by {:.3e} (mean {:.3e}), allowed {:.1e} (mean {:.1e})", distance.largest, distance.mean(),
           tolerance_.logits, tolerance_.mean_logits);
    }
    if (static_cast<double>(agreeing) < tolerance_.least_share * static_cast<double>(positions)) {
      Fail("logits: {} of {} positions agree to 1e-5, expected at least {:.0f} %", agreeing, positions,
           100 * tolerance_.least_share);
    }
  }

  // Every tensor of a tree, each side's names included.
  void Tree(const char* what, const std::string& prefix, const std::map<std::string, Tensor>& actual,
            double tolerance) {
    const weights::Source recorded = case_.tensors.Under(prefix);
    Distance worst;
    for (const auto& [name, stored] : recorded.tensors) {
      const auto found = actual.find(name);
      if (found == actual.end()) {
        Fail("{}: {} was not computed", what, name);
        continue;
      }
      const Tensor expected = stored.read();
      if (!SameShape(name, expected, found->second)) continue;
      const Distance distance = Between(expected, found->second);
      if (!(distance.largest <= worst.largest)) worst = distance;
      if (!distance.Within(tolerance)) {
        Fail("{}: {} apart by {:.3e}, allowed {:.1e}", what, name, distance.largest, tolerance);
      }
    }
    for (const auto& [name, tensor] : actual) {
      if (!recorded.tensors.contains(name)) Fail("{}: the reference has no {}", what, name);
    }
    if (!recorded.tensors.empty()) Say("{} {:.1e}", what, worst.largest);
  }

  void Metrics(const std::map<std::string, std::vector<double>>& actual) {
    Distance losses;
    for (const auto& [name, stored] : case_.tensors.Under("out/").tensors) {
      if (name == "logits") continue;
      const auto found = actual.find(name);
      if (found == actual.end()) {
        Fail("metric {} was not computed", name);
        continue;
      }
      const std::vector<float> expected = stored.read().ToVector<float>();
      if (expected.size() != found->second.size()) {
        Fail("metric {}: {} steps, expected {}", name, found->second.size(), expected.size());
        continue;
      }
      for (size_t step = 0; step < expected.size(); ++step) {
        const double apart = std::fabs(expected[step] - found->second[step]);
        if (name.ends_with("loss")) losses.Add(expected[step], found->second[step]);
        if (apart <= AllowedMetric(name, expected[step])) continue;
        Fail("metric {} of step {}: expected {}, found {}", name, step, expected[step], found->second[step]);
      }
    }
    Say("losses {:.1e}", losses.largest);
  }

  MaxTextVerdict Finish() { return {problems_, fmt::format("{}", fmt::join(words_, ", "))}; }

 private:
  template <typename... Args>
  void Fail(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Say(fmt::format_string<Args...> format, Args&&... args) {
    words_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool SameShape(const std::string& name, const Tensor& expected, const Tensor& actual) {
    if (actual.defined() && actual.shape() == expected.shape() && actual.dtype() == expected.dtype()) return true;
    Fail("{}: expected {}, found {}", name, expected.ToString(), actual.defined() ? actual.ToString() : "nothing");
    return false;
  }

  double AllowedMetric(const std::string& name, double expected) const {
    if (name == "total_weights") return 0;
    if (name == "learning_rate") return 2e-7 * std::fabs(expected) + 1e-12;
    if (name == "perplexity") return expected * std::expm1(tolerance_.loss);
    if (name.ends_with("loss")) return tolerance_.loss;
    if (name == "param_norm") return 1e-5 * std::fabs(expected) * std::max(1.0, tolerance_.norms / 1e-3);
    return tolerance_.norms * std::fabs(expected);
  }

  const MaxTextCase& case_;
  const MaxTextTolerance& tolerance_;
  std::vector<std::string> problems_, words_;
};

}  // namespace

MaxTextVerdict JudgeMaxTextRun(const MaxTextCase& one, const MaxTextRun& run, const MaxTextTolerance& tolerance) {
  Judge judge(one, tolerance);
  judge.Logits(run.logits);
  judge.Tree("gradients", "grads/params/", run.gradients, tolerance.gradients);
  judge.Tree("step 1", "step1/params/", run.step1, tolerance.step1);
  judge.Tree("optimizer alone", "step1/params/", run.step1_of_recorded, 1e-6);
  judge.Metrics(run.metrics);
  return judge.Finish();
}

}  // namespace octavo
