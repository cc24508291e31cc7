#include "octavo/kernels/matmul_i8.h"

#include "octavo/base/error.h"

namespace octavo::kernels {

void CheckIntOutput(const char* who, const IntOutput& out, const ScaleEpilogue& e, bool tiled, int64_t rows,
                    int64_t cols) {
  const int given = (out.i32.data != nullptr) + (out.f32.data != nullptr) + (out.bf16.data != nullptr);
  if (given > 1) ThrowUsage("{}: {} outputs, expected one of i32, f32, bf16", who, given);
  if (given == 0 && rows * cols != 0) ThrowUsage("{}: no output, expected one of i32, f32, bf16", who);
  const auto check = [&](const auto& view) {
    if (view.data != nullptr && (view.rows != rows || view.cols != cols)) {
      ThrowUsage("{}: the output is [{}, {}], the product [{}, {}]", who, view.rows, view.cols, rows, cols);
    }
  };
  check(out.i32);
  check(out.f32);
  check(out.bf16);
  const bool scaled = e.row_scale.data != nullptr || e.col_scale.data != nullptr || e.bias.data != nullptr;
  if (out.i32.data != nullptr && (scaled || tiled)) {
    ThrowUsage("{}: an int32 output takes the bare sum, but scales, a bias or tiles are given", who);
  }
}

void CheckExactSteps(const char* who, const ScaleEpilogue& e, int64_t steps) {
  const int zeros = (e.row_zero.data != nullptr) + (e.col_zero.data != nullptr);
  const int64_t bound = (kMaxExactSteps + 1) >> zeros;
  if (steps >= bound) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: {} steps of K in one int32 sum, exact below {}{}", who, steps, bound,
                            zeros > 0 ? " with zero points" : ""),
                "cut K into tiles");
  }
}

void CheckMatMulI8(const MatMulI8Args& args) {
  const bool packed = args.panels.data != nullptr;
  const int64_t k = packed ? args.panels.k : args.b.rows, n = packed ? args.panels.n : args.b.cols;
  if (args.tile < 0) ThrowUsage("MatMulI8: tile {}, expected 0 or more", args.tile);
  if (args.a.cols != k) {
    ThrowUsage("MatMulI8: lhs [{}, {}] contracts {}, rhs [{}, {}] wants {}", args.a.rows, args.a.cols, args.a.cols, k,
               n, k);
  }
  if (packed && args.panels.tile != args.tile) {
    ThrowUsage("MatMulI8: tile {}, but the panels are packed with tile {}", args.tile, args.panels.tile);
  }
  CheckExactSteps("MatMulI8", args.epilogue, args.tile == 0 ? k : std::min(k, args.tile));
  CheckIntOutput("MatMulI8", args.out, args.epilogue, args.tile != 0, args.a.rows, n);
}

void MatMulI8(ThreadPool& /*pool*/, Isa /*isa*/, const MatMulI8Args& args) { MatMulI8Reference(args); }

}  // namespace octavo::kernels
