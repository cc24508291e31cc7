#include "octavo/kernels/experts.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/lanes.h"
#include "octavo/kernels/math.h"

namespace octavo::kernels {
namespace {

void CheckCombine(const char* op, const ConstRows& y, const ConstRows& tokens, int64_t top_k, const int32_t* row_of) {
  CheckRows(op, "y", y);
  CheckRows(op, "tokens", tokens);
  CheckSameDType(op, "y", y, "tokens", tokens);
  if (top_k < 1 || y.rows != tokens.rows * top_k || y.cols != tokens.cols) {
    ThrowUsage("{}: y is [{}, {}] for {} tokens of {} features and {} experts each", op, y.rows, y.cols, tokens.rows,
               tokens.cols, top_k);
  }
  CheckPresent(op, "row_of", row_of, y.rows);
  for (int64_t p = 0; p < y.rows; ++p) {
    if (row_of[p] < 0 || row_of[p] >= y.rows) ThrowUsage("{}: place {} is in row {} of {}", op, p, row_of[p], y.rows);
  }
}

}  // namespace

void CombineRef(const CombineRows& args, int64_t begin, int64_t end, float*) {
  WithElement(args.y.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t c = 0; c < args.y.cols; ++c) {
        float chain = 0;
        for (int64_t p = t * args.top_k; p < (t + 1) * args.top_k; ++p) {
          const float v = E::Load(RowPointer<E>(args.y, args.row_of[p])[c]);
          chain = args.weight != nullptr ? Fma(args.weight[p], v, chain) : chain + v;
        }
        RowPointer<E>(args.out, t)[c] = E::Store(chain);
      }
    }
  });
}

void CombineGradRef(const CombineRows& args, int64_t begin, int64_t end) {
  WithElement(args.y.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t p = begin * args.top_k; p < end * args.top_k; ++p) {
      const auto* grad = RowPointer<E>(args.grad_out, p / args.top_k);
      const auto* y = RowPointer<E>(args.y, args.row_of[p]);
      auto* out = RowPointer<E>(args.out, args.row_of[p]);
      LaneSum<float> dot;
      for (int64_t c = 0; c < args.y.cols; ++c) {
        dot.lane[c % kLanes] = Fma(E::Load(grad[c]), E::Load(y[c]), dot.lane[c % kLanes]);
      }
      for (int64_t c = 0; c < args.y.cols; ++c) out[c] = E::Store(args.weight[p] * E::Load(grad[c]));
      if (args.grad_weight != nullptr) args.grad_weight[p] = dot.Fold();
    }
  });
}

void CombineExperts(ThreadPool& pool, Isa isa, const CombineArgs& args) {
  CheckCombine("CombineExperts", args.y, args.out, args.top_k, args.row_of);
  const CombineRows rows{args.y, args.row_of, args.weight, args.top_k, args.out, {}, nullptr};
  pool.ParallelFor(args.out.rows, RowGrain(args.y.cols * args.top_k), [&](int64_t begin, int64_t end) {
    std::vector<float> chain(args.y.cols);
    isa >= Isa::kAvx2 ? CombineAvx2(rows, begin, end, chain.data()) : CombineRef(rows, begin, end, chain.data());
  });
}

void CombineExpertsBackward(ThreadPool& pool, Isa isa, const CombineGradArgs& args) {
  constexpr const char* kOp = "CombineExpertsBackward";
  CheckCombine(kOp, args.y, args.grad_out, args.top_k, args.row_of);
  CheckRows(kOp, "grad_y", args.grad_y);
  CheckSameShape(kOp, "y", args.y, "grad_y", args.grad_y);
  CheckSameDType(kOp, "y", args.y, "grad_y", args.grad_y);
  CheckPresent(kOp, "weight", args.weight, args.y.rows);
  const CombineRows rows{args.y, args.row_of, args.weight, args.top_k, args.grad_y, args.grad_out, args.grad_weight};
  pool.ParallelFor(args.grad_out.rows, RowGrain(args.y.cols * args.top_k), [&](int64_t begin, int64_t end) {
    isa >= Isa::kAvx2 ? CombineGradAvx2(rows, begin, end) : CombineGradRef(rows, begin, end);
  });
}

}  // namespace octavo::kernels
