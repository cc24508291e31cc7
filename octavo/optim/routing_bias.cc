#include "octavo/optim/routing_bias.h"

#include "octavo/base/check.h"

namespace octavo::optim {

void UpdateRoutingBias(std::span<const int64_t> load, double rate, Tensor& bias) {
  OCTAVO_CHECK(bias.size() == static_cast<int64_t>(load.size()));
  int64_t total = 0;
  for (const int64_t tokens : load) total += tokens;
  float* values = bias.MutableData<float>();
  const auto step = static_cast<float>(rate);
  for (size_t e = 0; e < load.size(); ++e) {
    // The sign of mean - load, exactly: total - load * experts.
    const int64_t below = total - load[e] * static_cast<int64_t>(load.size());
    if (below > 0) values[e] += step;
    if (below < 0) values[e] -= step;
  }
}

}  // namespace octavo::optim
