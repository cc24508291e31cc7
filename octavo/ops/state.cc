#include "octavo/ops/state.h"

#include <cmath>

#include "octavo/base/error.h"

namespace octavo::ops {

Tensor StateStore::Find(const std::string& name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? Tensor() : at->second;
}

void UpdateSink::Observe(const std::string& name, const Tensor& value) {
  const std::lock_guard lock(mutex_);
  const auto [at, inserted] = observations_.try_emplace(name, value);
  if (inserted) return;
  if (at->second.shape() != value.shape()) {
    ThrowUsage("observation {}: {} now, {} before", name, value.shape(), at->second.shape());
  }
  Tensor merged = at->second.Clone();
  const Tensor added = value.Contiguous();
  const auto from = added.Values<float>();
  const auto into = merged.MutableValues<float>();
  for (size_t i = 0; i < into.size(); ++i) {
    if (from[i] > into[i] || std::isnan(from[i])) into[i] = from[i];
  }
  at->second = merged;
}

}  // namespace octavo::ops
