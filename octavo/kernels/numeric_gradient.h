// Central differences in double, for the tests of backward kernels: the function is an oracle of the forward pass in
// double, so a step of 1e-5 leaves ten digits.
#pragma once

#include <vector>

#include "octavo/base/function_ref.h"

namespace octavo::kernels {

inline std::vector<double> NumericGradient(std::vector<double> x,
                                           FunctionRef<double(const std::vector<double>&)> function,
                                           double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = function(x);
    x[i] = at - step;
    const double below = function(x);
    x[i] = at;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

}  // namespace octavo::kernels
