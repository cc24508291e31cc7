#include "octavo/kernels/elementwise.h"

#include <algorithm>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/blocks.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/leaves.h"

namespace octavo::kernels {
namespace {

void CheckCastable(const char* name, const ConstRows& m) {
  if (m.dtype == DType::kF16) {
    CheckRows("Cast", name, {m.data, DType::kBF16, m.rows, m.cols, m.row_stride});
  } else {
    CheckRows("Cast", name, m);
  }
}

void CheckLike(const char* op, const char* name_a, const ConstRows& a, const char* name_b, const ConstRows& b) {
  CheckRows(op, name_b, b);
  CheckSameShape(op, name_a, a, name_b, b);
  CheckSameDType(op, name_a, a, name_b, b);
}

}  // namespace

void Elementwise(ThreadPool& pool, Isa isa, const ElementwiseArgs& args) {
  constexpr const char* kOp = "Elementwise";
  const bool binary = args.op != ElementwiseOp::kScale;
  const ConstRows& b = binary ? args.b : args.a;
  CheckRows(kOp, "a", args.a);
  CheckLike(kOp, "a", args.a, "b", b);
  CheckLike(kOp, "a", args.a, "out", args.out);
  ForBlocks(pool, args.a.rows, args.a.cols, WithoutGaps(args.a, b, args.out), [&](const Block& block) {
    const ConstRows part_a = PartOf(args.a, block), part_b = PartOf(b, block);
    const MutRows out = PartOf(args.out, block);
    isa >= Isa::kAvx2 ? ElementwiseAvx2(args.op, part_a, part_b, args.scalar, out)
                      : ElementwiseRef(args.op, part_a, part_b, args.scalar, out);
  });
}

void Cast(ThreadPool& pool, Isa isa, const ConstRows& in, const MutRows& out) {
  CheckCastable("in", in);
  CheckCastable("out", out);
  CheckSameShape("Cast", "in", in, "out", out);
  if (in.data == out.data && in.dtype != out.dtype && in.rows * in.cols > 0) {
    ThrowUsage("Cast: {} to {} cannot work in place", NameOf(in.dtype), NameOf(out.dtype));
  }
  ForBlocks(pool, in.rows, in.cols, WithoutGaps(in, out), [&](const Block& block) {
    isa >= Isa::kAvx2 ? CastAvx2(PartOf(in, block), PartOf(out, block))
                      : CastRef(PartOf(in, block), PartOf(out, block));
  });
}

void BiasAdd(ThreadPool& pool, Isa isa, const BiasArgs& args) {
  constexpr const char* kOp = "BiasAdd";
  CheckRows(kOp, "x", args.x);
  CheckLike(kOp, "x", args.x, "out", args.out);
  CheckRows(kOp, "bias", {args.bias, args.bias_dtype, 1, args.x.cols, args.x.cols});
  if (args.x.rows == 0 || args.x.cols == 0) return;
  std::vector<float> storage;
  const float* bias = WidenToF32(args.bias, args.bias_dtype, 0, args.x.cols, storage);
  pool.ParallelFor(args.x.rows, RowGrain(args.x.cols), [&](int64_t begin, int64_t end) {
    const Block block{begin, end, 0, args.x.cols};
    isa >= Isa::kAvx2 ? BiasAddAvx2(PartOf(args.x, block), bias, PartOf(args.out, block))
                      : BiasAddRef(PartOf(args.x, block), bias, PartOf(args.out, block));
  });
}

void BiasGrad(ThreadPool& pool, Isa isa, const BiasGradArgs& args) {
  constexpr const char* kOp = "BiasGrad";
  constexpr int64_t kWidth = 1024;  // columns of one piece of work: its sums stay in the first-level cache
  const int64_t cols = args.grad_y.cols;
  CheckRows(kOp, "grad_y", args.grad_y);
  CheckPresent(kOp, "grad_bias", args.grad_bias, cols);
  CheckSequences(kOp, args.sequences, args.grad_y.rows);
  const std::vector<Leaf> leaves = LeavesOf(args.sequences, args.grad_y.rows);
  const int64_t count = static_cast<int64_t>(leaves.size());
  const int64_t widths = (cols + kWidth - 1) / kWidth;
  std::vector<float> sums(count * cols);
  pool.ParallelFor(count * widths, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t leaf = piece / widths, first = piece % widths * kWidth;
      const Block block{leaves[leaf].begin, leaves[leaf].end, first, std::min(first + kWidth, cols)};
      float* sum = sums.data() + leaf * cols + first;
      isa >= Isa::kAvx2 ? ColumnSumAvx2(PartOf(args.grad_y, block), sum)
                        : ColumnSumRef(PartOf(args.grad_y, block), sum);
    }
  });
  AddLeaves(pool, sums.data(), count, cols, args.accumulate, args.grad_bias);
}

void Dropout(ThreadPool& pool, Isa isa, const DropoutArgs& args) {
  constexpr const char* kOp = "Dropout";
  CheckRows(kOp, "x", args.x);
  CheckLike(kOp, "x", args.x, "out", args.out);
  if (!(args.rate >= 0 && args.rate <= 1)) ThrowUsage("{}: rate is {}, expected 0 … 1", kOp, args.rate);
  const float keep = static_cast<float>(1 - args.rate);
  const float scale = keep > 0 ? 1.0f / keep : 0.0f;
  const int64_t cols = args.x.cols, size = SizeOf(args.x.dtype);
  pool.ParallelFor(cols == 0 ? 0 : args.x.rows, RowGrain(4 * cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const DropoutRow row{static_cast<const char*>(args.x.data) + r * args.x.row_stride * size,
                           static_cast<char*>(args.out.data) + r * args.out.row_stride * size,
                           args.x.dtype,
                           args.key.word0,
                           args.key.word1,
                           keep,
                           scale};
      const int64_t global = args.global_row != nullptr ? args.global_row[r] : args.first_row + r;
      const uint64_t index = static_cast<uint64_t>(global) * static_cast<uint64_t>(cols);
      isa >= Isa::kAvx2 ? DropoutRowAvx2(row, index, cols) : DropoutRowRef(row, index, cols);
    }
  });
}

}  // namespace octavo::kernels
