// A mean with its standard error, over values that arrive one after the other; and percentiles. In doubles and in the
// order of arrival, so the same values in the same order give the same bits. Used by evaluation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace octavo::eval {

class Mean {
 public:
  void Add(double value) {
    ++count_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (value - mean_);
  }

  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  // Of a single value (n - 1 below the line); 0 for fewer than two.
  double deviation() const { return count_ < 2 ? 0 : std::sqrt(squares_ / static_cast<double>(count_ - 1)); }
  // Of the mean, as if the values did not depend on each other.
  double standard_error() const { return count_ < 2 ? 0 : deviation() / std::sqrt(static_cast<double>(count_)); }

 private:
  int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

// The value below which `share` (0 … 1) of the sorted values lie, between neighbours by their distance.
inline double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

}  // namespace octavo::eval
