#include "octavo/kernels/matmul_i8.h"
#include "octavo/kernels/matmul_u4.h"
#include "octavo/kernels/scale_epilogue_ref.h"

namespace octavo::kernels {

void MatMulU4Reference(const MatMulU4Args& args) {
  CheckMatMulU4(args);
  const int64_t depth = args.a.cols;
  const TileCut cut = CutTiles(depth, args.panels.group);
  const ScaleEpilogue& e = args.epilogue;
  for (int64_t m = 0; m < args.a.rows; ++m) {
    for (int64_t n = 0; n < args.panels.n; ++n) {
      StoreScaled(e, args.out, m, n, cut.count, [&](int64_t group) {
        const int32_t row_zero = e.row_zero.data == nullptr ? 0 : e.row_zero.at(m, group);
        const int32_t col_zero = e.col_zero.data == nullptr ? 0 : e.col_zero.at(n, group);
        int32_t sum = 0;
        const int64_t begin = group * cut.length, end = begin + cut.Length(group, depth);
        for (int64_t k = begin; k < end; ++k) {
          sum += (args.a.at(m, k) - row_zero) * (PanelsU4Code(args.panels, k, n) - col_zero);
        }
        return sum;
      });
    }
  }
}

}  // namespace octavo::kernels
