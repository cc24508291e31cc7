// The reference norms: plain loops in the order that norm.h and lanes.h state. The fast loops give the same bits.
#include <cmath>
#include <cstdint>

#include "octavo/kernels/element.h"
#include "octavo/kernels/lanes.h"
#include "octavo/kernels/norm_rows.h"

namespace octavo::kernels {
namespace {

struct RowStats {
  float mean, inv;
};

template <typename E>
RowStats StatsOf(const typename E::Type* x, int64_t n, bool layer, float epsilon) {
  const float count = static_cast<float>(n);
  float mean = 0;
  if (layer) {
    LaneSum<float> sum;
    for (int64_t c = 0; c < n; ++c) sum.lane[c % kLanes] += E::Load(x[c]);
    mean = sum.Fold() / count;
  }
  LaneSum<float> squares;
  for (int64_t c = 0; c < n; ++c) {
    const float d = layer ? E::Load(x[c]) - mean : E::Load(x[c]);
    squares.lane[c % kLanes] = std::fma(d, d, squares.lane[c % kLanes]);
  }
  return {mean, 1.0f / std::sqrt(squares.Fold() / count + epsilon)};
}

inline float Normalized(float x, bool layer, RowStats stats) { return (layer ? x - stats.mean : x) * stats.inv; }

}  // namespace

void NormForwardRef(const NormRows& args, int64_t begin, int64_t end) {
  WithElement(args.x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = begin; r < end; ++r) {
      const auto* x = RowPointer<E>(args.x, r);
      auto* y = RowPointer<E>(args.out, r);
      const RowStats stats = StatsOf<E>(x, args.x.cols, args.layer, args.epsilon);
      if (args.inv != nullptr) args.inv[r] = stats.inv;
      if (args.mean != nullptr) args.mean[r] = stats.mean;
      for (int64_t c = 0; c < args.x.cols; ++c) {
        float v = Normalized(E::Load(x[c]), args.layer, stats);
        if (args.round_before_weight) v = E::Load(E::Store(v));
        if (args.weight != nullptr) v = v * args.weight[c];
        if (args.bias != nullptr) v = v + args.bias[c];
        y[c] = E::Store(v);
      }
    }
  });
}

void NormBackwardRef(const NormRows& args, int64_t begin, int64_t end, float* weight_leaf, float* bias_leaf) {
  const int64_t n = args.x.cols;
  for (int64_t c = 0; c < n; ++c) {
    if (weight_leaf != nullptr) weight_leaf[c] = 0;
    if (bias_leaf != nullptr) bias_leaf[c] = 0;
  }
  WithElement(args.x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = begin; r < end; ++r) {
      const auto* x = RowPointer<E>(args.x, r);
      const auto* grad_y = RowPointer<E>(args.grad_y, r);
      const RowStats stats{args.layer ? args.mean[r] : 0.0f, args.inv[r]};
      const auto weighted = [&](int64_t c) {
        return args.weight != nullptr ? E::Load(grad_y[c]) * args.weight[c] : E::Load(grad_y[c]);
      };
      // The two averages that tie a row's gradients together: of grad_xhat, and of grad_xhat * xhat.
      LaneSum<float> plain, dotted;
      for (int64_t c = 0; c < n; ++c) {
        const float g = weighted(c);
        plain.lane[c % kLanes] += g;
        const float xhat = Normalized(E::Load(x[c]), args.layer, stats);
        dotted.lane[c % kLanes] = std::fma(g, xhat, dotted.lane[c % kLanes]);
      }
      const float mean_g = plain.Fold() / static_cast<float>(n);
      const float mean_gx = dotted.Fold() / static_cast<float>(n);
      for (int64_t c = 0; c < n; ++c) {
        const float xhat = Normalized(E::Load(x[c]), args.layer, stats);
        const float g = weighted(c);
        const float y_grad = E::Load(grad_y[c]);
        const float rounded = args.round_before_weight ? E::Load(E::Store(xhat)) : xhat;
        if (weight_leaf != nullptr) weight_leaf[c] = std::fma(y_grad, rounded, weight_leaf[c]);
        if (bias_leaf != nullptr) bias_leaf[c] += y_grad;
        const float centred = args.layer ? g - mean_g : g;
        if (args.out.data != nullptr) {
          RowPointer<E>(args.out, r)[c] = E::Store(std::fma(-xhat, mean_gx, centred) * stats.inv);
        }
      }
    }
  });
}

}  // namespace octavo::kernels
