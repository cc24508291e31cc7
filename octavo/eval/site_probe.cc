#include "octavo/eval/site_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "octavo/base/check.h"
#include "octavo/weights/convert_floats.h"

namespace octavo::eval {
namespace {

constexpr int64_t kChunk = 4096;  // partial sums at fixed places: threads change nothing

struct Sums {
  double signal = 0, noise = 0;
};

Sums SumsOf(std::span<const float> a, std::span<const float> b) {
  Sums sums;
  for (size_t i = 0; i < a.size(); ++i) {
    const double value = a[i], error = value - static_cast<double>(b[i]);
    sums.signal += value * value;
    sums.noise += error * error;
  }
  return sums;
}

Tensor Floats(const Tensor& tensor) { return weights::ConvertFloats(tensor, DType::kF32).Contiguous(); }

}  // namespace

double SiteError::Sqnr() const {
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

void SiteErrors::Add(const ops::Site& site, const Tensor& a, const Tensor& b, ThreadPool& pool) {
  OCTAVO_CHECK(a.size() == b.size());
  const Tensor first = Floats(a), second = Floats(b);
  const std::span<const float> x = first.Values<float>(), y = second.Values<float>();
  const int64_t chunks = (a.size() + kChunk - 1) / kChunk;
  std::vector<Sums> parts(static_cast<size_t>(chunks));
  pool.ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i * kChunk);
      const size_t count = std::min(x.size() - at, static_cast<size_t>(kChunk));
      parts[static_cast<size_t>(i)] = SumsOf(x.subspan(at, count), y.subspan(at, count));
    }
  });
  SiteError& error = errors_[site];
  for (const Sums& part : parts) {
    error.signal += part.signal;
    error.noise += part.noise;
  }
}

std::vector<SiteError> SiteErrors::Sorted() const {
  std::map<std::string, int> ops_of_path;
  for (const auto& item : errors_) ++ops_of_path[item.first.path];
  std::vector<SiteError> sorted;
  for (const auto& [site, error] : errors_) {
    sorted.push_back(error);
    sorted.back().site = ops_of_path[site.path] == 1 ? site.path : site.ToString();
  }
  // A NaN is the worst of all.
  const auto rank = [](const SiteError& error) {
    const double dB = error.Sqnr();
    return std::isnan(dB) ? -std::numeric_limits<double>::infinity() : dB;
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const SiteError& a, const SiteError& b) { return rank(a) < rank(b); });
  return sorted;
}

std::optional<ops::Var> SiteProbe::Dot(ops::Context& context, const ops::DotCall& call) {
  return provider_ == nullptr ? std::nullopt : provider_->Dot(context, call);
}

std::optional<ops::Var> SiteProbe::RaggedDot(ops::Context& context, const ops::RaggedCall& call) {
  return provider_ == nullptr ? std::nullopt : provider_->RaggedDot(context, call);
}

bool SiteProbe::Answers(const ops::Site& site) const { return provider_ != nullptr && provider_->Answers(site); }

void SiteProbe::Fused(ops::Context& context, const ops::DotCall& call) {
  if (provider_ != nullptr) provider_->Fused(context, call);
}

std::optional<ops::KvFormat> SiteProbe::KvCache(ops::Context& context, const ops::KvCall& call) {
  return provider_ == nullptr ? std::nullopt : provider_->KvCache(context, call);
}

void SiteProbe::Observe(ops::Context& context, const ops::Site& site, const Tensor& out) {
  if (provider_ != nullptr) provider_->Observe(context, site, out);
  outputs_.insert_or_assign(site, out);
}

void SiteProbe::Compare(SiteProbe& a, SiteProbe& b, ThreadPool& pool, SiteErrors& errors) {
  for (const auto& [site, out] : a.outputs_) {
    const auto other = b.outputs_.find(site);
    if (other != b.outputs_.end() && other->second.shape() == out.shape()) errors.Add(site, out, other->second, pool);
  }
  a.outputs_.clear();
  b.outputs_.clear();
}

}  // namespace octavo::eval
