#include "octavo/kernels/matmul_i8.h"
#include "octavo/kernels/scale_epilogue_ref.h"

namespace octavo::kernels {
namespace {

// Element (k, n) of b, wherever it lives.
int8_t Right(const MatMulI8Args& args, int64_t k, int64_t n) {
  return args.panels.data != nullptr ? PanelsI8Code(args.panels, k, n) : args.b.at(k, n);
}

}  // namespace

void MatMulI8Reference(const MatMulI8Args& args) {
  CheckMatMulI8(args);
  const int64_t cols = args.panels.data != nullptr ? args.panels.n : args.b.cols;
  const TileCut cut = CutTiles(args.a.cols, args.tile);
  const ScaleEpilogue& e = args.epilogue;
  for (int64_t m = 0; m < args.a.rows; ++m) {
    for (int64_t n = 0; n < cols; ++n) {
      StoreScaled(e, args.out, m, n, cut.count, [&](int64_t tile) {
        const int32_t row_zero = e.row_zero.data == nullptr ? 0 : e.row_zero.at(m, tile);
        const int32_t col_zero = e.col_zero.data == nullptr ? 0 : e.col_zero.at(n, tile);
        int32_t sum = 0;
        const int64_t begin = tile * cut.length, end = begin + cut.Length(tile, args.a.cols);
        for (int64_t k = begin; k < end; ++k) sum += (args.a.at(m, k) - row_zero) * (Right(args, k, n) - col_zero);
        return sum;
      });
    }
  }
}

}  // namespace octavo::kernels
