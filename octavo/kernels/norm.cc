#include "octavo/kernels/norm.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/leaves.h"
#include "octavo/kernels/norm_rows.h"

namespace octavo::kernels {
namespace {

void CheckSpec(const char* op, const NormSpec& spec) {
  CheckRows(op, "weight", {spec.weight, spec.weight_dtype, 0, 0, 0});
  if (!(spec.epsilon >= 0)) ThrowUsage("{}: epsilon is {}, expected a number of at least 0", op, spec.epsilon);
}

struct Prepared {
  NormRows rows;
  std::vector<float> weight, bias;
};

void Prepare(const NormSpec& spec, const ConstRows& x, Prepared& out) {
  out.rows.layer = spec.kind == NormKind::kLayer;
  out.rows.round_before_weight = spec.round_before_weight && x.dtype == DType::kBF16;
  out.rows.epsilon = spec.epsilon;
  out.rows.weight = WidenToF32(spec.weight, spec.weight_dtype, spec.weight_offset, x.cols, out.weight);
  out.rows.bias = WidenToF32(spec.bias, spec.weight_dtype, 0, x.cols, out.bias);
  out.rows.x = x;
}

}  // namespace

void NormForward(ThreadPool& pool, Isa isa, const NormForwardArgs& args) {
  constexpr const char* kOp = "NormForward";
  CheckSpec(kOp, args.spec);
  CheckRows(kOp, "x", args.x);
  CheckRows(kOp, "y", args.y);
  CheckSameShape(kOp, "x", args.x, "y", args.y);
  CheckSameDType(kOp, "x", args.x, "y", args.y);
  if (args.x.rows == 0 || args.x.cols == 0) return;
  Prepared prepared;
  Prepare(args.spec, args.x, prepared);
  NormRows& rows = prepared.rows;
  rows.out = args.y;
  rows.inv = args.inv;
  rows.mean = args.mean;
  pool.ParallelFor(args.x.rows, RowGrain(args.x.cols), [&](int64_t begin, int64_t end) {
    isa >= Isa::kAvx2 ? NormForwardAvx2(rows, begin, end) : NormForwardRef(rows, begin, end);
  });
}

void NormBackward(ThreadPool& pool, Isa isa, const NormBackwardArgs& args) {
  constexpr const char* kOp = "NormBackward";
  const int64_t cols = args.x.cols;
  CheckSpec(kOp, args.spec);
  CheckRows(kOp, "x", args.x);
  CheckRows(kOp, "grad_y", args.grad_y);
  CheckSameShape(kOp, "x", args.x, "grad_y", args.grad_y);
  CheckSameDType(kOp, "x", args.x, "grad_y", args.grad_y);
  if (args.grad_x.data != nullptr) {
    CheckRows(kOp, "grad_x", args.grad_x);
    CheckSameShape(kOp, "x", args.x, "grad_x", args.grad_x);
    CheckSameDType(kOp, "x", args.x, "grad_x", args.grad_x);
  }
  CheckPresent(kOp, "inv", args.inv, args.x.rows);
  if (args.spec.kind == NormKind::kLayer) CheckPresent(kOp, "mean", args.mean, args.x.rows);
  CheckSequences(kOp, args.sequences, args.x.rows);

  Prepared prepared;
  Prepare(args.spec, args.x, prepared);
  NormRows& rows = prepared.rows;
  rows.grad_y = args.grad_y;
  rows.out = args.grad_x;
  rows.inv = const_cast<float*>(args.inv);  // only read by the backward loops
  rows.mean = const_cast<float*>(args.mean);
  const std::vector<Leaf> leaves = LeavesOf(args.sequences, args.x.rows);
  const int64_t count = static_cast<int64_t>(leaves.size());
  std::vector<float> weight_leaves(args.grad_weight != nullptr ? count * cols : 0);
  std::vector<float> bias_leaves(args.grad_bias != nullptr ? count * cols : 0);
  pool.ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      float* weight_leaf = weight_leaves.empty() ? nullptr : weight_leaves.data() + l * cols;
      float* bias_leaf = bias_leaves.empty() ? nullptr : bias_leaves.data() + l * cols;
      if (isa >= Isa::kAvx2) {
        NormBackwardAvx2(rows, leaves[l].begin, leaves[l].end, weight_leaf, bias_leaf);
      } else {
        NormBackwardRef(rows, leaves[l].begin, leaves[l].end, weight_leaf, bias_leaf);
      }
    }
  });
  if (args.grad_weight != nullptr) {
    AddLeaves(pool, weight_leaves.data(), count, cols, args.accumulate, args.grad_weight);
  }
  if (args.grad_bias != nullptr) AddLeaves(pool, bias_leaves.data(), count, cols, args.accumulate, args.grad_bias);
}

}  // namespace octavo::kernels
