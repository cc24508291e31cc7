#include "octavo/data/permutation.h"

#include <bit>

#include "octavo/base/check.h"

namespace octavo::data {
namespace {

constexpr uint32_t kRounds = 6;

}  // namespace

Permutation::Permutation(RngKey key, uint64_t size) : key_(key), size_(size) {
  OCTAVO_CHECK(size >= 1 && size < (uint64_t{1} << 62));
  half_bits_ = (std::bit_width(size - 1) + 1) / 2;
  if (half_bits_ == 0) half_bits_ = 1;
}

uint64_t Permutation::Once(uint64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = i >> half_bits_, right = i & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = Threefry2x32(key_.word0, key_.word1, round, static_cast<uint32_t>(right)).first;
    const uint64_t next = (left ^ mixed) & mask;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

// The network permutes a power of four that is less than four times `size`, so the walk is short.
uint64_t Permutation::operator()(uint64_t i) const {
  OCTAVO_DCHECK(i < size_);
  do {
    i = Once(i);
  } while (i >= size_);
  return i;
}

}  // namespace octavo::data
