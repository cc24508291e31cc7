#include "octavo/quant/weight_cache.h"

#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"

namespace octavo::quant {
namespace {

#ifdef OCTAVO_CHECKS
constexpr int64_t kSamples = INT64_MAX;
#else
constexpr int64_t kSamples = 128;
#endif

// A number that follows evenly spread values: an optimizer step moves nearly all of them.
uint64_t SampleOf(const Tensor& weight) {
  const int64_t size = weight.size(), width = size == 0 ? 0 : weight.bytes() / size;
  const int64_t step = std::max<int64_t>(1, size / std::min(kSamples, std::max<int64_t>(size, 1)));
  const std::byte* data = weight.RawData();
  uint64_t hash = 1469598103934665603u;
  for (int64_t i = 0; i < size; i += step) {
    uint64_t bits = 0;
    std::memcpy(&bits, data + i * width, static_cast<size_t>(width));
    hash = (hash ^ bits) * 1099511628211u;
  }
  return hash;
}

}  // namespace

void WeightCache::StartStep() {
  active_ = true;
  steps_.clear();
}

std::shared_ptr<const PreparedWeight> WeightCache::Find(const ops::Parameter& parameter, const SitePlan& site,
                                                        const Tensor& weight, FunctionRef<PreparedWeight()> make) {
  if (!active_ || !weight.is_contiguous()) return nullptr;
  const uint64_t sample = SampleOf(weight);
  const auto [at, fresh] = steps_.try_emplace({&parameter, &site}, Step{sample, nullptr});
  if (!fresh && at->second.sample != sample) {
    throw Error(ErrorCode::kUsage, fmt::format("{} changed after it was quantized for this step", parameter.name),
                "call Provider::StartStep after every update of weights");
  }
  if (at->second.weight == nullptr) {
    ++prepared_;
    at->second.weight = std::make_shared<const PreparedWeight>(make());
  }
  return at->second.weight;
}

std::shared_ptr<const PackedWeight> WeightCache::Frozen(const Run& run, const ops::Parameter& parameter,
                                                        const QArray& weight, const std::vector<int>& contract) {
  Packed& packed = frozen_[{&parameter, contract}];
  if (packed.source.defined() && packed.source.SharesStorageWith(weight.qvalue)) return packed.weight;
  packed = {weight.qvalue, nullptr};
  if (!PackedWeight::Packs(weight, contract)) return nullptr;
  ++prepared_;
  packed.weight = std::make_shared<const PackedWeight>(run, weight, contract);
  return packed.weight;
}

int64_t WeightCache::bytes() const {
  int64_t total = 0;
  for (const auto& [key, step] : steps_) {
    const PreparedWeight& weight = *step.weight;
    total += weight.array.qvalue.bytes() + weight.array.scale.bytes();
    if (weight.again) total += weight.again->qvalue.bytes() + weight.again->scale.bytes();
    if (weight.forward) total += weight.forward->bytes();
    if (weight.backward) total += weight.backward->bytes();
  }
  for (const auto& [key, packed] : frozen_) total += packed.weight == nullptr ? 0 : packed.weight->bytes();
  return total;
}

}  // namespace octavo::quant
