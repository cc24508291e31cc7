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

FrozenWeight& WeightCache::Frozen(const ops::Parameter& parameter) {
  const Tensor& codes = parameter.qarray().qvalue;
  Packed& packed = frozen_[&parameter];
  const bool same = codes.is_meta() ? packed.source.is_meta() : packed.source.SharesStorageWith(codes);
  if (same && packed.source.defined()) return packed.weight;
  if (packed.weight.packed()) ++replaced_;
  packed.source = codes;
  packed.weight = FrozenWeight();
  return packed.weight;
}

FrozenWeight* WeightCache::Settled(const ops::Parameter& parameter) {
  if (!parameter.frozen() || !parameter.qarray().qvalue.is_meta()) return nullptr;
  const auto at = frozen_.find(&parameter);
  return at == frozen_.end() || !at->second.source.is_meta() ? nullptr : &at->second.weight;
}

bool WeightCache::Release(ops::Parameter& parameter) {
  const auto at = parameter.frozen() ? frozen_.find(&parameter) : frozen_.end();
  if (at == frozen_.end() || !at->second.weight.packed()) return false;
  QArray array = parameter.qarray();
  array.qvalue = Tensor::Meta(array.qvalue.shape(), array.qvalue.dtype());
  at->second.source = array.qvalue;
  if (at->second.weight.packed_scales()) {
    array.scale = Tensor::Meta(array.scale.shape(), array.scale.dtype());
    if (array.zero_point) array.zero_point = Tensor::Meta(array.zero_point->shape(), array.zero_point->dtype());
  }
  parameter.value = std::move(array);
  return true;
}

int64_t WeightCache::prepared() const {
  int64_t count = prepared_ + replaced_;
  for (const auto& [parameter, packed] : frozen_) count += packed.weight.packed() ? 1 : 0;
  return count;
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
  for (const auto& [key, packed] : frozen_) total += packed.weight.bytes();
  return total;
}

}  // namespace octavo::quant
