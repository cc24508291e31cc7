// A frozen weight as the products of serving stream it: packed once, in the form that the first product asks for, after
// which its codes are not needed any more (WeightCache::Release drops them). Integer products take integer panels, all
// others panels of the F family in the width that the codes have: a weight never exists as floats. Reached by the dots
// of quant/ through Run::frozen; owned by the weight cache. Weights in other forms (tiles that become batch axes, dense
// experts) are never packed and keep their codes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "octavo/kernels/weight_only.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/packed_weight.h"
#include "octavo/quant/run.h"
#include "octavo/tensor/qarray.h"

namespace octavo::quant {

struct SitePlan;

// Panels for float products: bare codes, or values with their scales.
struct PackedFloats {
  Shape shape;                // of the weight
  std::vector<int> contract;  // its axes that products sum over
  kernels::PackedWeights panels;
};

// A projection that went the short way of serving (decision 0017), for the next one: the few lines of memory that it
// has to touch. Null site: none yet.
struct ServedSite {
  const SitePlan* site = nullptr;
  const PackedWeight* weight = nullptr;
  int lhs_rank = 0, contracted = 0;  // the last axes of the activation against the first of the weight
  PanelStream next = {};             // what a few rows streamed after it last time; null data: nothing
};
// Whether products of one activation may be one run.
inline bool GoTogether(const ServedSite& a, const ServedSite& b) {
  return a.weight->depth() == b.weight->depth() && a.contracted == b.contracted;
}

// The integer panels of experts [G, K, N].
struct PackedGroups {
  Tensor panels;  // [G, bytes]
  int64_t tile = 0;
};

class FrozenWeight {
 public:
  // Each gives the panels, made now if this is the first product; null when they cannot be made.
  const PackedWeight* Integer(const Run& run, const DotParts& weight, const std::vector<int>& contract);
  const PackedFloats* Codes(const Run& run, const ProductSide& weight, const std::vector<int>& contract);
  const PackedFloats* Values(const Run& run, const QArray& weight, const std::vector<int>& contract);
  const PackedGroups* Groups(const Run& run, const Tensor& codes, int64_t tile);

  const PackedWeight* integer() const { return integer_.get(); }
  const PackedFloats* values() const { return values_.get(); }

  ServedSite& served() { return served_; }

  bool packed() const { return integer_ || codes_ || values_ || groups_; }
  bool packed_scales() const { return integer_ || values_; }  // the scales and zero points too
  int64_t bytes() const;

 private:
  ServedSite served_;
  std::unique_ptr<PackedWeight> integer_;
  std::unique_ptr<PackedFloats> codes_, values_;
  std::unique_ptr<PackedGroups> groups_;
};

// lhs [..., K axes, ...] times the panels: [lhs free…, weight free…], as FloatProduct gives it.
Tensor PackedProduct(const Run& run, const ProductSide& lhs, const std::vector<int>& lhs_contract,
                     const PackedFloats& weight, DType out);

}  // namespace octavo::quant
