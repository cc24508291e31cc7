#include "octavo/eval/row_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace octavo::eval {
namespace {

double Largest(std::span<const float> logits) {
  double most = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) {
    if (std::isnan(logit)) return std::numeric_limits<double>::quiet_NaN();
    most = std::max(most, static_cast<double>(logit));
  }
  return most;
}

// The largest logit and the log of the sum of exp of what the others fall short of it: kept apart, so that large logits
// do not swallow the sum.
class Softmax {
 public:
  explicit Softmax(std::span<const float> logits) : most_(Largest(logits)) {
    if (!std::isfinite(most_)) {
      most_ = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most_);
    log_sum_ = std::log(sum);
  }
  double LogP(float logit) const { return (static_cast<double>(logit) - most_) - log_sum_; }

 private:
  double most_, log_sum_ = 0;
};

}  // namespace

double TokenLoss(std::span<const float> logits, int32_t target) {
  return -Softmax(logits).LogP(logits[static_cast<size_t>(target)]);
}

RowDivergence Diverge(std::span<const float> a, std::span<const float> b, int32_t target) {
  RowDivergence row;
  const Softmax of_a(a), of_b(b);
  const auto at = static_cast<size_t>(target);
  row.loss_a = -of_a.LogP(a[at]);
  row.loss_b = -of_b.LogP(b[at]);
  row.delta_p = std::exp(-row.loss_b) - std::exp(-row.loss_a);
  row.same_top = std::max_element(a.begin(), a.end()) - a.begin() == std::max_element(b.begin(), b.end()) - b.begin();
  row.equal = std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  double kl = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double log_a = of_a.LogP(a[i]), p = std::exp(log_a);
    if (p > 0) kl += p * (log_a - of_b.LogP(b[i]));
  }
  row.kl = kl < 0 ? 0 : kl;  // the rest of rounding; a NaN stays one
  return row;
}

}  // namespace octavo::eval
