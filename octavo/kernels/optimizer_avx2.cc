// The optimizer steps, eight elements at a time, operation for operation as in optimizer.cc.
#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/element_avx2.h"
#include "octavo/kernels/optimizer_rows.h"

namespace octavo::kernels {
namespace {

inline __m256 Mul8(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
inline __m256 Add8(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }

}  // namespace

void AdamStepAvx2(const AdamStep& s, int64_t begin, int64_t end) {
  const auto fill = [](float v) { return _mm256_set1_ps(v); };
  const __m256 decay1 = fill(s.decay1), fresh1 = fill(s.fresh1), decay2 = fill(s.decay2), fresh2 = fill(s.fresh2);
  const __m256 inverse1 = fill(s.inverse1), inverse2 = fill(s.inverse2), epsilon = fill(s.epsilon);
  const __m256 epsilon_root = fill(s.epsilon_root), weight_decay = fill(s.weight_decay), rate = fill(s.rate);
  const __m256 grad_scale = fill(s.grad_scale);
  const float* grad = s.grad + begin;
  float *weight = s.weight + begin, *moment1 = s.moment1 + begin, *moment2 = s.moment2 + begin;
  ForEights(end - begin, [&](int64_t at, auto io) {
    const __m256 g = Mul8(io.template Load<F32x8>(grad + at), grad_scale);
    const __m256 w = io.template Load<F32x8>(weight + at);
    const __m256 m = Add8(Mul8(decay1, io.template Load<F32x8>(moment1 + at)), Mul8(fresh1, g));
    const __m256 v = Add8(Mul8(decay2, io.template Load<F32x8>(moment2 + at)), Mul8(fresh2, Mul8(g, g)));
    const __m256 root = Add8(_mm256_sqrt_ps(Add8(Mul8(v, inverse2), epsilon_root)), epsilon);
    const __m256 update = Add8(_mm256_div_ps(Mul8(m, inverse1), root), Mul8(weight_decay, w));
    io.template Store<F32x8>(moment1 + at, m);
    io.template Store<F32x8>(moment2 + at, v);
    io.template Store<F32x8>(weight + at, _mm256_sub_ps(w, Mul8(rate, update)));
  });
}

void SgdStepAvx2(const SgdStep& s, int64_t begin, int64_t end) {
  const __m256 rate = _mm256_set1_ps(s.rate), momentum = _mm256_set1_ps(s.momentum);
  const __m256 grad_scale = _mm256_set1_ps(s.grad_scale);
  const float* grad = s.grad + begin;
  float *weight = s.weight + begin, *trace = s.trace == nullptr ? nullptr : s.trace + begin;
  ForEights(end - begin, [&](int64_t at, auto io) {
    const __m256 g = Mul8(io.template Load<F32x8>(grad + at), grad_scale);
    __m256 update = g;
    if (trace != nullptr) {
      const __m256 fresh = Add8(g, Mul8(momentum, io.template Load<F32x8>(trace + at)));
      io.template Store<F32x8>(trace + at, fresh);
      update = s.nesterov ? Add8(g, Mul8(momentum, fresh)) : fresh;
    }
    const __m256 w = io.template Load<F32x8>(weight + at);
    io.template Store<F32x8>(weight + at, _mm256_sub_ps(w, Mul8(rate, update)));
  });
}

}  // namespace octavo::kernels
