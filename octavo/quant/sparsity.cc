#include "octavo/quant/sparsity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/element.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

constexpr const char* kOp = "SparsityMask";

void CheckPattern(const Tensor& array, const SparsityPattern& p) {
  if (p.m < 1 || p.n < 0 || p.n > p.m) ThrowUsage("{}: {} of {}; n must lie in 0 … m and m be positive", kOp, p.n, p.m);
  if (p.offset < 0 || p.block < 0)
    ThrowUsage("{}: offset {} and block {} must not be negative", kOp, p.offset, p.block);
  if (p.order == SparsityOrder::kSecondToLast && array.rank() < 2) {
    ThrowUsage("{}: {} has no axis before the last", kOp, array.shape());
  }
  if (array.rank() < 1) ThrowUsage("{}: a scalar has no groups", kOp);
  if (array.size() % p.m != 0) {
    ThrowUsage("{}: {} has {} elements, no multiple of m = {}", kOp, array.shape(), array.size(), p.m);
  }
}

// Sums of |x| over blocks along the last axis, rounded once to the dtype of the array.
Tensor BlockScores(const Tensor& array, int64_t block) {
  const int64_t length = array.dim(-1);
  if (length % block != 0) {
    ThrowUsage("{}: blocks of {} do not divide the axis of {} in {}", kOp, block, length, array.shape());
  }
  std::vector<int64_t> dims(array.shape().begin(), array.shape().end());
  dims.back() /= block;
  const Tensor packed = array.Contiguous();
  return WithElement(kOp, array.dtype(), [&](auto element) {
    using E = decltype(element);
    Tensor scores = Tensor::Empty(Shape(dims), array.dtype());
    auto in = packed.Values<typename E::Stored>();
    auto out = scores.MutableValues<typename E::Stored>();
    for (size_t i = 0; i < out.size(); ++i) {
      float sum = 0;
      for (size_t j = 0; j < static_cast<size_t>(block); ++j) {
        sum += std::fabs(E::Load(in[i * static_cast<size_t>(block) + j]));
      }
      out[i] = E::Store(sum);
    }
    return scores;
  });
}

// Marks the n largest of each group. Groups run over the row-major order: m elements `offset` apart in a run of
// m * offset. A run that divides the last axis stays inside it of itself.
std::vector<uint8_t> KeepLargest(const std::vector<float>& values, const SparsityPattern& p) {
  const int64_t apart = std::max<int64_t>(p.offset, 1), run = p.m * apart;
  std::vector<uint8_t> keep(values.size(), 0);
  std::vector<int64_t> group(static_cast<size_t>(p.m));
  auto magnitude = [&](int64_t i) { return MagnitudeBits(values[static_cast<size_t>(i)]); };
  for (int64_t begin = 0; begin < static_cast<int64_t>(values.size()); begin += run) {
    for (int64_t lane = 0; lane < apart; ++lane) {
      for (int64_t i = 0; i < p.m; ++i) group[static_cast<size_t>(i)] = begin + lane + i * apart;
      std::stable_sort(group.begin(), group.end(), [&](int64_t a, int64_t b) { return magnitude(a) > magnitude(b); });
      for (int64_t i = 0; i < p.n; ++i) keep[static_cast<size_t>(group[static_cast<size_t>(i)])] = 1;
    }
  }
  return keep;
}

}  // namespace

Tensor SparsityMask(const Tensor& array, const SparsityPattern& pattern) {
  const ScopedFloatMode mode;
  CheckPattern(array, pattern);
  const bool columns = pattern.order == SparsityOrder::kSecondToLast;
  const Tensor turned = columns ? array.SwapAxes(-1, -2) : array;
  const bool blocks = pattern.block > 1;
  const Tensor scores = blocks ? BlockScores(turned, pattern.block) : turned;
  const int64_t run = pattern.m * std::max<int64_t>(pattern.offset, 1);
  if (scores.size() % run != 0) {
    ThrowUsage("{}: {} {} of {} are no multiple of m * offset = {}", kOp, scores.size(), blocks ? "blocks" : "elements",
               array.shape(), run);
  }
  const std::vector<float> values = CastFloat(scores, DType::kF32).ToVector<float>();
  Tensor mask = Tensor::FromValues<uint8_t>(scores.shape(), DType::kU8, KeepLargest(values, pattern));
  if (blocks) mask = mask.RepeatTo(turned.shape());
  return (columns ? mask.SwapAxes(-1, -2) : mask).Contiguous();
}

Tensor Pruned(const Tensor& array, const Tensor& mask) {
  if (array.shape() != mask.shape()) ThrowUsage("Pruned: array {} and mask {} differ", array.shape(), mask.shape());
  Tensor result = array.Clone();
  const Tensor keep = mask.Contiguous();
  auto marks = keep.Values<uint8_t>();
  std::byte* bytes = result.MutableRawData();
  const auto size = static_cast<size_t>(SizeOf(array.dtype()));
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks[i] == 0) std::fill_n(bytes + i * size, size, std::byte{0});
  }
  return result;
}

Tensor UnstructuredMask(const Tensor& array, double rate) {
  if (!(rate >= 0 && rate <= 100)) ThrowUsage("UnstructuredMask: rate {} is not in 0 … 100", rate);
  std::vector<float> values = CastFloat(array, DType::kF32).ToVector<float>();
  for (float& value : values) value = std::fabs(value);
  std::vector<uint8_t> keep(values.size(), 0);
  if (!values.empty()) {
    std::vector<float> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const double at = rate / 100.0 * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<size_t>(std::floor(at)), high = static_cast<size_t>(std::ceil(at));
    const double part = at - std::floor(at);
    const auto bound = static_cast<float>(sorted[low] * (1.0 - part) + sorted[high] * part);
    for (size_t i = 0; i < values.size(); ++i) keep[i] = values[i] > bound;
  }
  return Tensor::FromValues<uint8_t>(array.shape(), DType::kU8, keep);
}

bool SparsitySchedule::RenewsAt(int64_t step) const {
  if (update_step < 1) ThrowUsage("SparsitySchedule: update_step {} must be positive", update_step);
  return !eval_mode && step >= start_step && (step - start_step) % update_step == 0;
}

SparsityState InitialSparsity(const Shape& weight) {
  return {0,
          Tensor::FromValues<uint8_t>(weight, DType::kU8, std::vector<uint8_t>(static_cast<size_t>(weight.size()), 1))};
}

SparsityState NextSparsity(const SparsityState& state, const Tensor& weight, const SparsityPattern& pattern,
                           const SparsitySchedule& schedule) {
  SparsityState next = state;
  if (schedule.RenewsAt(state.step)) next.mask = SparsityMask(weight, pattern);
  if (!schedule.eval_mode) ++next.step;
  return next;
}

}  // namespace octavo::quant
