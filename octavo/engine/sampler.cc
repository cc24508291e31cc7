#include "octavo/engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/kernels/math.h"
#include "octavo/kernels/math_array.h"
#include "octavo/kernels/softmax.h"

namespace octavo::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr double kSmallestTemperature = 1e-6;  // the reference's floor
constexpr size_t kBlock = 1024;                // of running sums over a whole row

using Candidate = std::pair<float, int32_t>;

// Larger logit first, the lower id among equals.
bool Before(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

[[noreturn]] void ThrowNoNumbers(const char* what) {
  throw SampleError(ErrorCode::kNumbers, "nan_logits", fmt::format("the model gave {} logits", what),
                    "this request ends, others go on; octavo inspect MODEL --verify checks the weights");
}

// The first largest. NaN and +inf are errors: they mean that the model's numbers broke.
int32_t ArgMax(std::span<const float> logits) {
  float best = kMinusInfinity;
  size_t index = logits.size();
  bool broken = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    broken |= !(logits[i] < std::numeric_limits<float>::infinity());
    if (logits[i] > best) {
      best = logits[i];
      index = i;
    }
  }
  if (broken) ThrowNoNumbers("NaN or infinite");
  return index == logits.size() ? -1 : static_cast<int32_t>(index);
}

// Where u falls in the running sum of the weights. Blocks are summed first so that the second walk is short; the order
// of additions is that of the row alone.
size_t Draw(std::span<const float> weights, double u) {
  std::vector<double> blocks;
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    double sum = 0;
    for (size_t i = begin; i < std::min(begin + kBlock, weights.size()); ++i) sum += static_cast<double>(weights[i]);
    blocks.push_back(sum);
  }
  double total = 0;
  for (const double block : blocks) total += block;
  const double target = u * total;
  double before = 0;
  size_t block = 0;
  while (block + 1 < blocks.size() && before + blocks[block] <= target) before += blocks[block++];
  size_t last = 0;
  for (size_t i = block * kBlock; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    last = i;
    before += static_cast<double>(weights[i]);
    if (before > target) return i;
  }
  // Rounding left the target at the very end: the last one with a weight.
  for (size_t i = block * kBlock; last == 0 && i-- > 0;) last = weights[i] > 0 ? i : 0;
  return last;
}

// e^((logit - max) / temperature) of each, in [0, 1].
void Weigh(kernels::Isa isa, float max, float temperature, std::span<float> values) {
  for (float& value : values) value = (value - max) / temperature;
  kernels::ApplyMath(kernels::MathFunction::kExp, isa, values.data(), values.data(),
                     static_cast<int64_t>(values.size()));
}

// All candidates within `depth` of the largest logit, the first `count` of them sorted.
void Gather(std::span<const float> logits, float max, float depth, size_t count, std::vector<Candidate>& candidates) {
  candidates.clear();
  const float low = max - depth;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= low && logits[i] > kMinusInfinity) candidates.emplace_back(logits[i], static_cast<int32_t>(i));
  }
  if (count < candidates.size()) {
    std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(count), Before);
  } else {
    std::ranges::sort(candidates, Before);
  }
}

// Sum of e^((logit - max) / temperature) over the row: what probabilities are divided by.
double Total(kernels::Isa isa, std::span<const float> logits, float max, float temperature,
             std::vector<float>& weights) {
  weights.assign(logits.begin(), logits.end());
  Weigh(isa, max, temperature, weights);
  double total = 0;
  for (size_t begin = 0; begin < weights.size(); begin += kBlock) {
    double sum = 0;
    for (size_t i = begin; i < std::min(begin + kBlock, weights.size()); ++i) sum += static_cast<double>(weights[i]);
    total += sum;
  }
  return total;
}

// How many of the sorted candidates top-p keeps: all whose logit is at least that of the first with which the
// probability reaches p. nullopt: the candidates do not reach it, and there are more.
std::optional<size_t> Nucleus(std::span<const Candidate> sorted, std::span<const float> weights, double total,
                              double p) {
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += static_cast<double>(weights[i]);
    if (sum / total < p) continue;
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end].first == sorted[i].first) ++end;
    return end;
  }
  return std::nullopt;
}

}  // namespace

Sampler::Sampler(const Sampling& sampling, int sample, std::span<const int32_t> prompt)
    : sampling_(sampling), key_(RngKey::FromSeed(sampling.seed).FoldIn(static_cast<uint32_t>(sample))) {
  if (sampling_.repetition_penalty != 1) {
    for (const int32_t token : prompt) ++seen_[token];
  }
}

void Sampler::Add(int32_t token) {
  ++generated_[token];
  if (sampling_.repetition_penalty != 1) ++seen_[token];
}

void Sampler::Change(const Row& row, std::span<float> logits) const {
  const auto at = [&](int32_t id) -> float& { return logits[static_cast<size_t>(id)]; };
  if (sampling_.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(sampling_.repetition_penalty);
    for (const auto& [id, count] : seen_) at(id) = at(id) > 0 ? at(id) / penalty : at(id) * penalty;
  }
  if (sampling_.presence_penalty != 0 || sampling_.frequency_penalty != 0) {
    for (const auto& [id, count] : generated_) {
      at(id) -= static_cast<float>(sampling_.presence_penalty + sampling_.frequency_penalty * count);
    }
  }
  for (const auto& [id, bias] : sampling_.logit_bias) at(id) += static_cast<float>(bias);
  for (const int32_t id : row.banned) at(id) = kMinusInfinity;
  if (row.mask.empty()) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    if ((row.mask[i / 32] >> (i % 32) & 1) == 0) logits[i] = kMinusInfinity;
  }
}

TokenLogprob Sampler::Next(kernels::Isa isa, const Row& row, SamplerScratch& scratch) const {
  const int32_t token = Choose(isa, row, scratch);
  if (row.top_logprobs < 0) return {token, 0, {}};
  return LogProbability(isa, row.logits, token, row.top_logprobs);
}

// Leaves in scratch.candidates, sorted, what top-k, top-p and min-p keep.
void Sampler::Filter(kernels::Isa isa, std::span<const float> logits, float max, float temperature,
                     SamplerScratch& scratch) const {
  const bool by_k = TopK(logits.size()), by_p = sampling_.top_p < 1;
  const size_t size = logits.size();
  // Only what lies near the top is sorted. It is looked for deeper until the filters are content: what they keep is a
  // prefix of the sorted row, whatever its length.
  auto& candidates = scratch.candidates;
  auto& weights = scratch.weights;
  const double total = by_p && !by_k ? Total(isa, logits, max, temperature, weights) : 0;
  for (float depth = 8 * temperature;; depth *= 4) {
    const bool everything = !(depth < 1e4f * temperature);
    Gather(logits, max, everything ? std::numeric_limits<float>::infinity() : depth,
           by_k ? static_cast<size_t>(sampling_.top_k) : size, candidates);
    size_t kept = candidates.size();
    if (by_k && !everything && kept < static_cast<size_t>(sampling_.top_k)) continue;
    if (by_k) kept = std::min(kept, static_cast<size_t>(sampling_.top_k));
    candidates.resize(kept);
    weights.clear();
    for (const auto& [logit, id] : candidates) weights.push_back(logit);
    Weigh(isa, max, temperature, weights);
    if (by_p) {
      double sum = total;
      if (by_k) {  // inside the k
        sum = 0;
        for (const float weight : weights) sum += static_cast<double>(weight);
      }
      const auto nucleus = Nucleus(candidates, weights, sum, sampling_.top_p);
      if (!nucleus && !by_k && !everything) continue;
      kept = nucleus.value_or(kept);
    }
    if (sampling_.min_p > 0) {
      // Relative to the most likely, whose weight is 1. Without other filters everything above the bar must be there.
      const auto bar = static_cast<float>(sampling_.min_p);
      if (!by_k && !by_p && !everything && weights.back() >= bar) continue;
      const auto end = std::find_if(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(kept),
                                    [&](float weight) { return weight < bar; });
      kept = static_cast<size_t>(end - weights.begin());
    }
    candidates.resize(kept);
    break;
  }
}

int32_t Sampler::Choose(kernels::Isa isa, const Row& row, SamplerScratch& scratch) const {
  std::span<const float> logits = row.logits;
  const bool changed = sampling_.repetition_penalty != 1 || sampling_.presence_penalty != 0 ||
                       sampling_.frequency_penalty != 0 || !sampling_.logit_bias.empty() || !row.banned.empty() ||
                       !row.mask.empty();
  if (changed) {
    if (ArgMax(logits) < 0) ThrowNoNumbers("no finite");  // before masks hide what broke
    scratch.logits.assign(logits.begin(), logits.end());
    Change(row, scratch.logits);
    logits = scratch.logits;
  }
  const int32_t best = ArgMax(logits);
  if (best < 0) {
    if (!changed) ThrowNoNumbers("no finite");
    throw SampleError(ErrorCode::kCheck, "empty_constraint", "no token may follow here",
                      row.mask.empty() ? "every possible token is banned" : "the constraint allows nothing");
  }
  if (sampling_.temperature == 0 || sampling_.top_k == 1) return best;

  const float max = logits[static_cast<size_t>(best)];
  const auto temperature = static_cast<float>(std::max(sampling_.temperature, kSmallestTemperature));
  const float filter_temperature = sampling_.temperature_last ? 1.0f : temperature;
  const double u = static_cast<double>(key_.Bits64(static_cast<uint64_t>(row.position)) >> 11) * 0x1p-53;
  if (!TopK(logits.size()) && sampling_.top_p == 1 && sampling_.min_p == 0) {
    scratch.weights.assign(logits.begin(), logits.end());
    Weigh(isa, max, temperature, scratch.weights);
    return static_cast<int32_t>(Draw(scratch.weights, u));
  }

  auto& weights = scratch.weights;
  Filter(isa, logits, max, filter_temperature, scratch);
  weights.clear();
  for (const auto& [logit, id] : scratch.candidates) weights.push_back(logit);
  Weigh(isa, max, temperature, weights);
  return scratch.candidates[Draw(weights, u)].second;
}

TokenLogprob LogProbability(kernels::Isa isa, std::span<const float> logits, int32_t token, int top) {
  kernels::ExpSum sum;
  kernels::AddToExpSum(isa, logits.data(), DType::kF32, static_cast<int64_t>(logits.size()), sum);
  const float all = sum.LogSum();
  if (!std::isfinite(all)) ThrowNoNumbers("NaN or infinite");
  TokenLogprob result{token, logits[static_cast<size_t>(token)] - all, {}};
  if (top <= 0) return result;
  // The smallest of the best so far stands first.
  std::vector<Candidate> best;
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<int32_t>(i)};
    if (best.size() == static_cast<size_t>(top)) {
      if (!Before(candidate, best.front())) continue;
      std::ranges::pop_heap(best, Before);
      best.pop_back();
    }
    best.push_back(candidate);
    std::ranges::push_heap(best, Before);
  }
  std::ranges::sort(best, Before);
  for (const auto& [logit, id] : best) result.top.emplace_back(id, logit - all);
  return result;
}

Sampling SamplingOfStrategy(std::string_view strategy, int64_t top_k, double nucleus_p, double temperature) {
  Sampling sampling;
  sampling.temperature = temperature;
  const auto check_k = [&] {
    if (top_k <= 0)
      ThrowUsage("decode_sampling_top_k={} must be positive for decode_sampling_strategy={}", top_k, strategy);
    sampling.top_k = top_k;
  };
  if (strategy == "greedy") {
    sampling.temperature = 0;
  } else if (strategy == "weighted") {
  } else if (strategy == "nucleus") {
    if (!(nucleus_p >= 0)) {
      ThrowUsage("decode_sampling_nucleus_p={} must not be negative for decode_sampling_strategy=nucleus", nucleus_p);
    }
    // 0 keeps the largest logit and its equals, as any number too small to be passed does.
    sampling.top_p = std::clamp(nucleus_p, std::numeric_limits<double>::min(), 1.0);
    sampling.temperature_last = true;
  } else if (strategy == "topk") {
    check_k();
  } else if (strategy == "composite") {
    check_k();
    if (!(nucleus_p > 0 && nucleus_p <= 1)) {
      ThrowUsage("decode_sampling_nucleus_p={} is outside (0, 1] for decode_sampling_strategy=composite", nucleus_p);
    }
    sampling.top_p = nucleus_p;
    sampling.temperature = std::max(temperature, kSmallestTemperature);
    sampling.temperature_last = true;
  } else {
    throw Error(ErrorCode::kUsage, fmt::format("decode_sampling_strategy='{}' is not known", strategy),
                "known: greedy, weighted, nucleus, topk, composite");
  }
  if (!(temperature >= 0)) ThrowUsage("decode_sampling_temperature={} must not be negative", temperature);
  return sampling;
}

}  // namespace octavo::engine
