#include "octavo/kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/kernels/reductions_rows.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kGrain = kChunk;

// base^exponent by squaring: the same bits on every machine, unlike the C library's pow.
double IntegerPower(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

void CheckScalar(const char* op, const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high)) ThrowUsage("{}: {} is {}, expected {} … {}", op, name, value, low, high);
}

// Runs step(begin, end) over all elements; with `squares`, chunk by chunk, so that the new weights are still near when
// their squares are added.
template <typename Step>
void RunChunks(ThreadPool& pool, Isa isa, int64_t count, const float* weight, double* squares, const Step& step) {
  pool.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    if (squares == nullptr) return step(begin, end);
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t stop = std::min(at + kChunk, end);
      step(at, stop);
      squares[at / kChunk] = isa >= Isa::kAvx2 ? ChunkSumAvx2(SumOf::kSquares, weight + at, DType::kF32, stop - at)
                                               : ChunkSumRef(SumOf::kSquares, weight + at, DType::kF32, stop - at);
    }
  });
}

struct Decay {
  double decay, inverse;  // of the moment, and 1 / correction
};

Decay DecayOf(AdamKind kind, double beta, int64_t t) {
  const double correction = 1 - IntegerPower(beta, t);
  if (kind == AdamKind::kAdamW) return {beta, 1 / correction};
  return {beta * (1 - IntegerPower(beta, t - 1)) / correction, 1};
}

}  // namespace

void AdamStepRef(const AdamStep& s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float g = s.grad[i] * s.grad_scale;
    const float m = s.decay1 * s.moment1[i] + s.fresh1 * g;
    const float v = s.decay2 * s.moment2[i] + s.fresh2 * (g * g);
    const float root = std::sqrt(v * s.inverse2 + s.epsilon_root) + s.epsilon;
    const float update = m * s.inverse1 / root + s.weight_decay * s.weight[i];
    s.moment1[i] = m;
    s.moment2[i] = v;
    s.weight[i] = s.weight[i] - s.rate * update;
  }
}

void SgdStepRef(const SgdStep& s, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float g = s.grad[i] * s.grad_scale;
    float update = g;
    if (s.trace != nullptr) {
      const float trace = g + s.momentum * s.trace[i];
      s.trace[i] = trace;
      update = s.nesterov ? g + s.momentum * trace : trace;
    }
    s.weight[i] = s.weight[i] - s.rate * update;
  }
}

void AdamUpdate(ThreadPool& pool, Isa isa, const AdamArgs& args) {
  constexpr const char* kOp = "AdamUpdate";
  CheckScalar(kOp, "beta1", args.beta1, 0, 1);
  CheckScalar(kOp, "beta2", args.beta2, 0, 1);
  if (args.beta1 == 1 || args.beta2 == 1) ThrowUsage("{}: a beta of 1 never forgets; expected less", kOp);
  CheckScalar(kOp, "epsilon", args.epsilon, 0, 1e30);
  CheckScalar(kOp, "epsilon_root", args.epsilon_root, 0, 1e30);
  CheckScalar(kOp, "step", static_cast<double>(args.step), 0, 1e18);
  CheckScalar(kOp, "count", static_cast<double>(args.count), 0, 1e18);
  CheckPresent(kOp, "grad", args.grad, args.count);
  CheckPresent(kOp, "weight", args.weight, args.count);
  CheckPresent(kOp, "moment1", args.moment1, args.count);
  CheckPresent(kOp, "moment2", args.moment2, args.count);
  const Decay first = DecayOf(args.kind, args.beta1, args.step + 1);
  const Decay second = DecayOf(args.kind, args.beta2, args.step + 1);
  const AdamStep step{static_cast<float>(first.decay),
                      static_cast<float>(1 - first.decay),
                      static_cast<float>(second.decay),
                      static_cast<float>(1 - second.decay),
                      static_cast<float>(first.inverse),
                      static_cast<float>(second.inverse),
                      static_cast<float>(args.epsilon),
                      static_cast<float>(args.epsilon_root),
                      static_cast<float>(args.weight_decay),
                      static_cast<float>(args.rate),
                      static_cast<float>(args.grad_scale),
                      args.grad,
                      args.weight,
                      args.moment1,
                      args.moment2};
  RunChunks(pool, isa, args.count, args.weight, args.squares, [&](int64_t begin, int64_t end) {
    isa >= Isa::kAvx2 ? AdamStepAvx2(step, begin, end) : AdamStepRef(step, begin, end);
  });
}

void SgdUpdate(ThreadPool& pool, Isa isa, const SgdArgs& args) {
  constexpr const char* kOp = "SgdUpdate";
  CheckScalar(kOp, "count", static_cast<double>(args.count), 0, 1e18);
  CheckPresent(kOp, "grad", args.grad, args.count);
  CheckPresent(kOp, "weight", args.weight, args.count);
  if (args.momentum != 0) CheckPresent(kOp, "trace", args.trace, args.count);
  const SgdStep step{static_cast<float>(args.rate),
                     static_cast<float>(args.momentum),
                     static_cast<float>(args.grad_scale),
                     args.nesterov,
                     args.grad,
                     args.weight,
                     args.momentum != 0 ? args.trace : nullptr};
  RunChunks(pool, isa, args.count, args.weight, args.squares, [&](int64_t begin, int64_t end) {
    isa >= Isa::kAvx2 ? SgdStepAvx2(step, begin, end) : SgdStepRef(step, begin, end);
  });
}

}  // namespace octavo::kernels
