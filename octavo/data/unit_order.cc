#include "octavo/data/unit_order.h"

#include <cmath>

#include "octavo/base/error.h"

namespace octavo::data {
namespace {

// Streams of the data's own: the split must not depend on the seed of the order, or another seed would train on what
// was held out before.
constexpr uint64_t kSplitSeed = 0x6f637461766f;

}  // namespace

UnitOrder::UnitOrder(int64_t units, double held_out_fraction, Part part, bool shuffle, uint64_t seed)
    : units_(units),
      held_out_(static_cast<int64_t>(std::ceil(held_out_fraction * static_cast<double>(units)))),
      part_(part),
      shuffle_(shuffle),
      key_(RngKey::FromSeed(seed)),
      split_(RngKey::FromSeed(kSplitSeed), static_cast<uint64_t>(units)) {
  if (!(held_out_fraction >= 0 && held_out_fraction < 1)) {
    ThrowUsage("eval_fraction={}: expected at least 0 and less than 1", held_out_fraction);
  }
  if (held_out_ >= units_) {
    throw Error(ErrorCode::kUsage,
                fmt::format("eval_fraction={} holds out all {} documents", held_out_fraction, units_),
                "more or smaller documents are needed; see octavo config explain document_separator");
  }
}

bool UnitOrder::IsHeldOut(int64_t unit) const {
  return held_out_ > 0 && split_(static_cast<uint64_t>(unit)) < static_cast<uint64_t>(held_out_);
}

int64_t UnitOrder::At(int64_t pass, int64_t index) const {
  int64_t unit = index;
  if (shuffle_) {
    const Permutation order(key_.Split(static_cast<uint64_t>(pass)), static_cast<uint64_t>(units_));
    unit = static_cast<int64_t>(order(static_cast<uint64_t>(index)));
  }
  if (part_ == Part::kAll || IsHeldOut(unit) == (part_ == Part::kHeldOut)) return unit;
  return -1;
}

}  // namespace octavo::data
