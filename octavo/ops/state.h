// Running state of a recipe (amax histories, scales, averages): named tensors outside the gradient path. Read-only
// during a step. Ops put what they saw into a sink, which merges by elementwise max, so that several micro-batches,
// ranks or uses of one op give one observation; a replay has no sink. The owner of the state turns observations into
// the next state between steps (quant/). The optimizer and clipping never see it.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "octavo/tensor/tensor.h"

namespace octavo::ops {

class StateStore {
 public:
  // Undefined when there is no such state.
  Tensor Find(const std::string& name) const;
  void Set(const std::string& name, Tensor value) { values_[name] = std::move(value); }
  const std::map<std::string, Tensor>& values() const { return values_; }

 private:
  std::map<std::string, Tensor> values_;
};

class UpdateSink {
 public:
  // f32 only; a second observation of the same name must have the same shape and is merged by max. NaN wins.
  void Observe(const std::string& name, const Tensor& value);
  const std::map<std::string, Tensor>& observations() const { return observations_; }
  void Clear() { observations_.clear(); }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> observations_;
};

}  // namespace octavo::ops
