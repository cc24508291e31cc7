// A random order of N things without a table: element i is computed from (key, i). Orders documents in every pass and
// picks held-out ones. A Feistel network over threefry, walked until it lands inside [0, N).
#pragma once

#include <cstdint>

#include "octavo/base/rng.h"

namespace octavo::data {

class Permutation {
 public:
  Permutation(RngKey key, uint64_t size);

  uint64_t size() const { return size_; }
  // Where i goes, i < size(). One to one.
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t Once(uint64_t i) const;

  RngKey key_;
  uint64_t size_;
  int half_bits_;
};

}  // namespace octavo::data
