// Comparisons of a trained case with its recording.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/cli/golden_maxtext.h"

namespace octavo {
namespace {

using Tree = std::map<std::string, Tensor>;
using Metrics = std::map<std::string, std::vector<double>>;

constexpr double kAgree = 1e-5;  // a position agrees when all its logits do

struct Distance {
  double largest = 0, sum = 0, squares = 0, expected_squares = 0;
  int64_t count = 0;

  void Add(double expected, double actual) {
    const double apart = std::fabs(expected - actual);
    if (!(apart <= largest)) largest = apart;  // NaN wins
    sum += apart;
    squares += apart * apart;
    expected_squares += expected * expected;
    ++count;
  }
  void Add(const Tensor& expected, const Tensor& actual) {
    const std::vector<float> a = expected.ToVector<float>(), b = actual.ToVector<float>();
    for (size_t i = 0; i < a.size(); ++i) Add(a[i], b[i]);
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  double relative() const { return expected_squares == 0 ? 0 : std::sqrt(squares / expected_squares); }
};

// Rows of the last axis that agree.
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

// The direction of Adam's first step, which forgets the size of a gradient unless it is near epsilon.
struct FirstStep {
  double rate, clip, epsilon;
  bool adam;

  double operator()(double grad) const {
    const double g = clip * grad;
    return rate * (adam ? g / (std::fabs(g) + epsilon) : g);
  }
};

class Judge {
 public:
  Judge(const MaxTextComparison& comparison, const MaxTextRun& run)
      : case_(comparison.one),
        settings_(comparison.settings),
        tolerance_(ToleranceOf(comparison.recipe)),
        run_(run),
        yardstick_(comparison.yardstick) {
    tied_ = settings_.Bool("logits_via_embedding");
    accumulated_ = settings_.Int("gradient_accumulation_steps") > 1;
    if (tied_ && accumulated_) tolerance_.loss = std::max(tolerance_.loss, 1e-4);  // see TiedTable
  }

  void Logits() {
    if (!case_.Has("out/logits")) return;
    const Tensor expected = case_.Read("out/logits");
    if (!SameShape("out/logits", expected, run_.logits)) return;
    Distance distance, to_float;
    distance.Add(expected, run_.logits);
    if (yardstick_ != nullptr) to_float.Add(expected, yardstick_->logits);
    const int64_t positions = expected.size() / expected.dim(-1);
    const int64_t agreeing = AgreeingPositions(expected, run_.logits);
    Say("logits {:.1e} ({} of {} positions to 1e-5; mean {:.1e}{})", distance.largest, agreeing, positions,
        distance.mean(), yardstick_ == nullptr ? "" : fmt::format(", the float model's {:.1e}", to_float.mean()));
    if (static_cast<double>(agreeing) < tolerance_.least_share * static_cast<double>(positions)) {
      Fail("logits: {} of {} positions agree to 1e-5, expected at least {:.0f} %", agreeing, positions,
           100 * tolerance_.least_share);
    }
    if (yardstick_ == nullptr && !(distance.largest <= tolerance_.logits)) {
      Fail("logits: apart by {:.3e}, allowed {:.1e}", distance.largest, tolerance_.logits);
    }
    if (yardstick_ != nullptr && !(distance.mean() <= tolerance_.logits_units * to_float.mean())) {
      Fail("logits: the mean distance is {:.3e}, the float model's is {:.3e}: expected at most {:.2f} of it",
           distance.mean(), to_float.mean(), tolerance_.logits_units);
    }
  }

  void Gradients() {
    Distance all, to_float;
    for (const auto& [name, stored] : case_.tensors.Under("grads/params/").tensors) {
      const Tensor* found = Find("gradients", run_.gradients, name);
      if (found == nullptr) continue;
      const Tensor expected = stored.read();
      if (!SameShape(name, expected, *found)) continue;
      Distance one;
      one.Add(expected, *found);
      all.Add(expected, *found);
      if (yardstick_ != nullptr) to_float.Add(expected, yardstick_->gradients.at(name));
      if (yardstick_ != nullptr || one.largest <= tolerance_.gradients) continue;
      if (tied_ && name == "token_embedder/embedding" && TiedTable(expected, *found)) continue;
      Fail("gradients: {} apart by {:.3e}, allowed {:.1e}", name, one.largest, tolerance_.gradients);
    }
    CheckExtra("gradients", "grads/params/", run_.gradients);
    if (yardstick_ == nullptr) return Say("gradients {:.1e}", all.largest);
    Say("gradients {:.1e} (relative {:.1e}, the float model's {:.1e})", all.largest, all.relative(),
        to_float.relative());
    if (!(all.relative() <= tolerance_.gradient_units * to_float.relative())) {
      Fail("gradients: the relative distance is {:.3e}, the float model's is {:.3e}: expected at most {:.2f} of it",
           all.relative(), to_float.relative(), tolerance_.gradient_units);
    }
  }

  // The reference rounds a tied table to bf16 for the head, and with it the gradient that comes back: such a gradient
  // is known to one rounding only. Few elements fall the other way, except where micro-batches are rounded each.
  bool TiedTable(const Tensor& expected, const Tensor& actual) const {
    const std::vector<float> a = expected.ToVector<float>(), b = actual.ToVector<float>();
    double largest = 0;
    for (const float value : a) largest = std::max(largest, std::fabs(double{value}));
    size_t beyond = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double apart = std::fabs(double{a[i]} - b[i]);
      if (!(apart <= largest * 0x1p-8)) return false;
      if (apart > tolerance_.gradients) ++beyond;
    }
    return accumulated_ || beyond * 100 <= a.size();
  }

  // Parameters after the step must differ by no more than what the distance of the gradients explains.
  void FirstSteps() {
    const FirstStep step = StepOf();
    const double slack = tolerance_.to_float ? 1.05 : 1;  // norms that are apart clip differently
    double worst = 0;
    for (const auto& [name, stored] : case_.tensors.Under("step1/params/").tensors) {
      const Tensor* found = Find("step 1", run_.step1, name);
      if (found == nullptr || !case_.Has("grads/params/" + name)) continue;
      const std::vector<float> expected = stored.read().ToVector<float>(), actual = found->ToVector<float>();
      const std::vector<float> theirs = case_.Read("grads/params/" + name).ToVector<float>();
      const std::vector<float> ours = run_.gradients.at(name).ToVector<float>();
      for (size_t i = 0; i < expected.size(); ++i) {
        const double apart = std::fabs(double{expected[i]} - actual[i]), delta = std::fabs(double{theirs[i]} - ours[i]);
        const double explained = std::fabs(step(theirs[i] + delta) - step(theirs[i] - delta));
        worst = std::max(worst, apart - explained);
        if (apart <= explained * slack + kStep + Balancing(name)) continue;
        Fail("step 1: {} element {} apart by {:.3e}, the gradients explain {:.1e}", name, i, apart, explained);
        break;
      }
    }
    CheckExtra("step 1", "step1/params/", run_.step1);
    Say("step 1 {:.1e} beyond that", worst);
  }

  void OptimizerAlone() {
    Distance all;
    for (const auto& [name, stored] : case_.tensors.Under("step1/params/").tensors) {
      const Tensor* found = Find("optimizer alone", run_.step1_of_recorded, name);
      if (found == nullptr) continue;
      Distance one;
      one.Add(stored.read(), *found);
      if (!(one.largest <= all.largest)) all = one;
      if (!(one.largest <= kStep + Balancing(name))) {
        Fail("optimizer on the recorded gradients: {} apart by {:.3e}, allowed {:.0e}", name, one.largest, kStep);
      }
    }
    Say("optimizer {:.1e}", all.largest);
  }

  void Metrics() {
    Distance losses;
    for (const auto& [name, stored] : case_.tensors.Under("out/").tensors) {
      if (name == "logits") continue;
      const auto found = run_.metrics.find(name);
      if (found == run_.metrics.end()) {
        Fail("metric {} was not computed", name);
        continue;
      }
      const std::vector<float> expected = stored.read().ToVector<float>();
      if (expected.size() != found->second.size()) {
        Fail("metric {}: {} steps, expected {}", name, found->second.size(), expected.size());
        continue;
      }
      for (size_t step = 0; step < expected.size(); ++step) {
        const double apart = Apart(name, expected[step], found->second[step]);
        if (name.ends_with("loss")) losses.Add(expected[step], found->second[step]);
        if (apart <= Allowed(name, expected, step)) continue;
        Fail("metric {} of step {}: expected {}, found {}", name, step, expected[step], found->second[step]);
      }
    }
    Say("losses {:.1e}", losses.largest);
  }

  MaxTextVerdict Finish() { return {problems_, fmt::format("{}", fmt::join(words_, ", "))}; }

 private:
  static constexpr double kStep = 1e-6;

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

  const Tensor* Find(const char* what, const Tree& tree, const std::string& name) {
    const auto found = tree.find(name);
    if (found != tree.end()) return &found->second;
    Fail("{}: {} was not computed", what, name);
    return nullptr;
  }

  void CheckExtra(const char* what, const std::string& prefix, const Tree& tree) {
    for (const auto& [name, tensor] : tree) {
      if (!case_.Has(prefix + name)) Fail("{}: the reference has no {}", what, name);
    }
  }

  FirstStep StepOf() const {
    const double norm = case_.Read("out/raw_grad_norm").ToVector<float>().at(0);
    const double threshold = settings_.Number("gradient_clipping_threshold");
    const double clip = threshold > 0 && norm > threshold ? threshold / norm : 1;
    const double rate = case_.Read("out/learning_rate").ToVector<float>().at(0);
    return {rate, clip, settings_.Number("adam_eps"), settings_.Text("opt_type") != "sgd"};
  }

  // Where roundings differ a token may go to another expert, and a bias that balances them the other way.
  double Balancing(const std::string& name) const {
    const bool moved = tolerance_.to_float && name.ends_with("gate/bias");
    return moved ? 2.001 * settings_.Number("routed_bias_update_rate") : 0;
  }

  // Losses by their difference, everything else relative to what is expected.
  static double Apart(const std::string& name, double expected, double actual) {
    const double apart = std::fabs(expected - actual);
    if (name.ends_with("loss") || expected == 0) return apart;
    if (name == "perplexity") return std::fabs(std::log(expected) - std::log(actual));
    return apart / std::fabs(expected);
  }

  double Allowed(const std::string& name, const std::vector<float>& expected, size_t step) const {
    if (name == "total_weights") return 0;
    if (name == "learning_rate") return 2e-7;
    if (step == 0 && !tolerance_.to_float) return 1e-5;  // nothing has fallen the other way yet
    const bool is_loss = name.ends_with("loss") || name == "perplexity";
    double allowed = is_loss ? tolerance_.loss : tolerance_.norms;
    if (yardstick_ == nullptr) return allowed;
    const std::vector<double>& in_float = yardstick_->metrics.at(name);
    for (size_t i = 0; i < expected.size(); ++i) allowed = std::max(allowed, Apart(name, expected[i], in_float.at(i)));
    return allowed;
  }

  const MaxTextCase& case_;
  const Settings& settings_;
  MaxTextTolerance tolerance_;
  const MaxTextRun& run_;
  const MaxTextRun* yardstick_;
  bool tied_ = false, accumulated_ = false;
  std::vector<std::string> problems_, words_;
};

}  // namespace

MaxTextVerdict JudgeMaxTextLogits(const MaxTextComparison& comparison, const MaxTextRun& run) {
  Judge judge(comparison, run);
  judge.Logits();
  return judge.Finish();
}

MaxTextVerdict JudgeMaxTextTraining(const MaxTextComparison& comparison, const MaxTextRun& run) {
  Judge judge(comparison, run);
  judge.Gradients();
  judge.FirstSteps();
  judge.OptimizerAlone();
  judge.Metrics();
  return judge.Finish();
}

}  // namespace octavo
