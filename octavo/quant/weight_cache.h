// Weights as the products of one step use them: quantized and packed once, although a step runs several passes (shards,
// recomputation, evaluation). Owned by a provider. A weight that changes without StartStep is an error, not a stale
// product: each use compares a sample of the values (all of them in checking builds) with what was prepared. Frozen
// weights never change and are packed once for good.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "octavo/base/function_ref.h"
#include "octavo/ops/parameter.h"
#include "octavo/quant/frozen_weight.h"
#include "octavo/quant/packed_weight.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {

struct SitePlan;

struct PreparedWeight {
  QArray array;                           // as the forward product multiplies it
  std::optional<CalibrationRange> range;  // where gradients outside it are masked
  std::optional<PackedWeight> forward;
  std::optional<QArray> again;  // recipes that quantize the weight anew for the gradient of the input
  std::optional<PackedWeight> backward;
};

class WeightCache {
 public:
  // Forgets all but frozen weights. Before the first call nothing is kept.
  void StartStep();
  bool active() const { return active_; }

  // What `make` gave for this weight at this site since StartStep. Null when not active.
  std::shared_ptr<const PreparedWeight> Find(const ops::Parameter& parameter, const SitePlan& site,
                                             const Tensor& weight, FunctionRef<PreparedWeight()> make);

  // The panels of a frozen weight, for Run::frozen. Other codes under the same parameter start anew.
  FrozenWeight& Frozen(const ops::Parameter& parameter);
  // The same for a parameter whose codes were dropped; null for others.
  FrozenWeight* Settled(const ops::Parameter& parameter);
  // Drops the codes of a parameter whose panels exist, and the scales that are in them; true when that is so. The first
  // product made them.
  bool Release(ops::Parameter& parameter);

  int64_t prepared() const;  // how often something was made, frozen weights included
  int64_t bytes() const;

 private:
  struct Step {
    uint64_t sample;  // of the values, not their address: a weight that is cast for computing moves with every pass
    std::shared_ptr<const PreparedWeight> weight;
  };
  struct Packed {
    FrozenWeight weight;
    Tensor source;  // keeps the address it is known by from being used again; meta once it was released
  };

  bool active_ = false;
  int64_t prepared_ = 0, replaced_ = 0;
  std::map<std::pair<const ops::Parameter*, const SitePlan*>, Step> steps_;
  std::unordered_map<const ops::Parameter*, Packed> frozen_;
};

}  // namespace octavo::quant
