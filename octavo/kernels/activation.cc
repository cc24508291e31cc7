#include "octavo/kernels/activation.h"

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/kernels/blocks.h"

namespace octavo::kernels {
namespace {

void CheckSpec(const char* op, const ActivationSpec& spec) {
  const bool used = spec.kind == Activation::kSilu || spec.kind == Activation::kSoftCap;
  if (used && !(spec.parameter > 0 && std::isfinite(spec.parameter))) {
    ThrowUsage("{}: the parameter is {}, expected a positive number", op, spec.parameter);
  }
}

void CheckOne(const char* op, const ConstRows& like, const char* name, const ConstRows& m) {
  CheckRows(op, name, m);
  CheckSameShape(op, "x", like, name, m);
  CheckSameDType(op, "x", like, name, m);
}

}  // namespace

void ActivationForward(ThreadPool& pool, Isa isa, const ActivationArgs& args) {
  constexpr const char* kOp = "ActivationForward";
  CheckSpec(kOp, args.spec);
  CheckRows(kOp, "x", args.x);
  CheckOne(kOp, args.x, "y", args.y);
  ForBlocks(pool, args.x.rows, args.x.cols, WithoutGaps(args.x, args.y), [&](const Block& block) {
    ActivationRows rows;
    rows.spec.activation = args.spec;
    rows.x = PartOf(args.x, block);
    rows.out = PartOf(args.y, block);
    isa >= Isa::kAvx2 ? ActivationForwardAvx2(rows) : ActivationForwardRef(rows);
  });
}

void ActivationBackward(ThreadPool& pool, Isa isa, const ActivationGradArgs& args) {
  constexpr const char* kOp = "ActivationBackward";
  CheckSpec(kOp, args.spec);
  CheckRows(kOp, "x", args.x);
  CheckOne(kOp, args.x, "grad_y", args.grad_y);
  CheckOne(kOp, args.x, "grad_x", args.grad_x);
  const bool without_gaps = WithoutGaps(args.x, args.grad_y, args.grad_x);
  ForBlocks(pool, args.x.rows, args.x.cols, without_gaps, [&](const Block& block) {
    ActivationRows rows;
    rows.spec.activation = args.spec;
    rows.x = PartOf(args.x, block);
    rows.grad_y = PartOf(args.grad_y, block);
    rows.out = PartOf(args.grad_x, block);
    isa >= Isa::kAvx2 ? ActivationBackwardAvx2(rows) : ActivationBackwardRef(rows);
  });
}

void GateForward(ThreadPool& pool, Isa isa, const GateArgs& args) {
  constexpr const char* kOp = "GateForward";
  CheckSpec(kOp, args.spec.activation);
  if (!(args.spec.limit > 0)) ThrowUsage("{}: the limit is {}, expected a positive number", kOp, args.spec.limit);
  CheckRows(kOp, "gate", args.gate);
  CheckOne(kOp, args.gate, "up", args.up);
  CheckOne(kOp, args.gate, "y", args.y);
  ForBlocks(pool, args.y.rows, args.y.cols, WithoutGaps(args.gate, args.up, args.y), [&](const Block& block) {
    ActivationRows rows;
    rows.spec = args.spec;
    rows.x = PartOf(args.gate, block);
    rows.up = PartOf(args.up, block);
    rows.out = PartOf(args.y, block);
    isa >= Isa::kAvx2 ? GateForwardAvx2(rows) : GateForwardRef(rows);
  });
}

void GateBackward(ThreadPool& pool, Isa isa, const GateGradArgs& args) {
  constexpr const char* kOp = "GateBackward";
  CheckSpec(kOp, args.spec.activation);
  if (!(args.spec.limit > 0)) ThrowUsage("{}: the limit is {}, expected a positive number", kOp, args.spec.limit);
  CheckRows(kOp, "gate", args.gate);
  CheckOne(kOp, args.gate, "up", args.up);
  CheckOne(kOp, args.gate, "grad_y", args.grad_y);
  CheckOne(kOp, args.gate, "grad_gate", args.grad_gate);
  CheckOne(kOp, args.gate, "grad_up", args.grad_up);
  const bool without_gaps = WithoutGaps(args.gate, args.up, args.grad_y, args.grad_gate, args.grad_up);
  ForBlocks(pool, args.gate.rows, args.gate.cols, without_gaps, [&](const Block& block) {
    ActivationRows rows;
    rows.spec = args.spec;
    rows.x = PartOf(args.gate, block);
    rows.up = PartOf(args.up, block);
    rows.grad_y = PartOf(args.grad_y, block);
    rows.out = PartOf(args.grad_gate, block);
    rows.out_up = PartOf(args.grad_up, block);
    isa >= Isa::kAvx2 ? GateBackwardAvx2(rows) : GateBackwardRef(rows);
  });
}

}  // namespace octavo::kernels
