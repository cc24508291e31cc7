#include "octavo/eval/compare.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/eval/row_numbers.h"

namespace octavo::eval {
namespace {

// "decoder/layers_0/mlp/wi_0/kernel" -> "decoder/layers_0/mlp/wi_0".
std::string ModuleOf(const std::string& parameter) {
  return parameter.ends_with("/kernel") ? parameter.substr(0, parameter.size() - 7) : parameter;
}

class LockStep {
 public:
  LockStep(const Subject& a, const Subject& b, ThreadPool& pool, const CompareOptions& options)
      : pool_(pool), options_(options), a_(a, pool), b_(b, pool), probe_a_(a.provider), probe_b_(b.provider) {
    if (!options.sites) return;
    a_.set_interceptor(&probe_a_);
    b_.set_interceptor(&probe_b_);
  }

  void Run(const Window& window) {
    a_.Start(window.tokens);
    b_.Start(window.tokens);
    CompareSites();
    for (int i = 0; i < a_.layers(); ++i) {
      a_.Layer(i);
      b_.Layer(i);
      CompareSites();
    }
    a_.Finish();
    b_.Finish();
    const auto length = static_cast<int64_t>(window.targets.size());
    const int64_t step = std::max(a_.rows_at_once(), b_.rows_at_once());
    for (int64_t begin = 0; begin < length; begin += step) {
      const int64_t end = std::min(length, begin + step);
      const Tensor a = a_.Logits(begin, end), b = b_.Logits(begin, end);
      CompareSites();
      AddRows(a, b, std::span(window.targets).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    }
    ++result.windows;
    if (options_.done) options_.done(result.windows, result);
  }

  Comparison Finished() {
    std::sort(result.deltas.begin(), result.deltas.end());
    result.rms_delta_p = result.tokens == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(result.tokens));
    result.sites = errors_.Sorted();
    result.bits_a = digest_a_.Hex();
    result.bits_b = digest_b_.Hex();
    return std::move(result);
  }

  Comparison result;

 private:
  void CompareSites() {
    if (options_.sites) SiteProbe::Compare(probe_a_, probe_b_, pool_, errors_);
  }

  void AddRows(const Tensor& a, const Tensor& b, std::span<const int32_t> targets) {
    const std::span<const float> x = a.Values<float>(), y = b.Values<float>();
    digest_a_.Update(std::as_bytes(x));
    digest_b_.Update(std::as_bytes(y));
    const auto vocabulary = static_cast<size_t>(a.dim(1));
    rows_.assign(targets.size(), {});
    pool_.ParallelFor(static_cast<int64_t>(targets.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto row = static_cast<size_t>(i), at = row * vocabulary;
        rows_[row] = Diverge(x.subspan(at, vocabulary), y.subspan(at, vocabulary), targets[row]);
      }
    });
    for (const RowDivergence& row : rows_) Add(row);
  }

  void Add(const RowDivergence& row) {
    if (!std::isfinite(row.loss_a) || !std::isfinite(row.loss_b)) {
      const bool first = !std::isfinite(row.loss_a);
      throw Error(ErrorCode::kNumbers, fmt::format("the loss of token {} is {} in {}", result.tokens,
                                                   first ? row.loss_a : row.loss_b, first ? "A" : "B"));
    }
    ++result.tokens;
    result.kl.Add(row.kl);
    result.largest_kl = std::max(result.largest_kl, row.kl);
    result.loss_a.Add(row.loss_a);
    result.loss_b.Add(row.loss_b);
    result.same_top += row.same_top ? 1 : 0;
    result.delta_p.Add(row.delta_p);
    squares_ += row.delta_p * row.delta_p;
    result.deltas.push_back(row.delta_p);
    result.equal = result.equal && row.equal;
  }

  ThreadPool& pool_;
  const CompareOptions& options_;
  WindowRun a_, b_;
  SiteProbe probe_a_, probe_b_;
  SiteErrors errors_;
  Digest digest_a_, digest_b_;
  std::vector<RowDivergence> rows_;
  double squares_ = 0;
};

}  // namespace

void RequireSameShapes(const models::Model& a, const models::Model& b) {
  std::map<std::string, Shape> theirs;
  for (const ops::Parameter* parameter : b.parameters()) theirs.emplace(parameter->name, parameter->shape());
  for (const ops::Parameter* parameter : a.parameters()) {
    const auto found = theirs.find(parameter->name);
    if (found == theirs.end()) {
      throw Error(ErrorCode::kCheck, fmt::format("{}: only A has it: not the same model", ModuleOf(parameter->name)));
    }
    if (found->second != parameter->shape()) {
      throw Error(ErrorCode::kCheck, fmt::format("{}: A {}, B {}: not the same model", ModuleOf(parameter->name),
                                                 parameter->shape(), found->second));
    }
    theirs.erase(found);
  }
  if (theirs.empty()) return;
  throw Error(ErrorCode::kCheck, fmt::format("{}: only B has it: not the same model", ModuleOf(theirs.begin()->first)));
}

Comparison Compare(const Subject& a, const Subject& b, const Windows& windows, ThreadPool& pool,
                   const CompareOptions& options) {
  RequireSameShapes(*a.model, *b.model);
  CheckTokens(windows.tokens(), a.model->config().vocab_size);
  LockStep lock_step(a, b, pool, options);
  for (int64_t i = 0; i < windows.count(); ++i) lock_step.Run(windows.At(i));
  return lock_step.Finished();
}

}  // namespace octavo::eval
