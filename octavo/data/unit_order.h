// Which units of a corpus a source sees, and in which order: training units in a new order in every pass, held-out ones
// once and as they come. Every answer is computed from (seed, pass, index); nothing is stored.
#pragma once

#include <cstdint>

#include "octavo/data/permutation.h"

namespace octavo::data {

class UnitOrder {
 public:
  enum class Part : uint8_t { kAll, kTrain, kHeldOut };

  // `held_out_fraction` of the units, rounded up, is held out, whatever the pass and the seed of the order. Throws a
  // usage Error when nothing would be left to train on.
  UnitOrder(int64_t units, double held_out_fraction, Part part, bool shuffle, uint64_t seed);

  // Indices run from 0 to size() - 1 in every pass.
  int64_t size() const { return units_; }
  // The unit at an index; -1 for one of the other part, to be skipped.
  int64_t At(int64_t pass, int64_t index) const;
  bool IsHeldOut(int64_t unit) const;
  int64_t held_out() const { return held_out_; }

 private:
  int64_t units_, held_out_;
  Part part_;
  bool shuffle_;
  RngKey key_;
  Permutation split_;
};

}  // namespace octavo::data
