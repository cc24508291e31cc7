#include <algorithm>

#include "octavo/kernels/matmul_i8_grouped.h"

namespace octavo::kernels {

void GroupedMatMulI8Reference(const GroupedI8Args& args) {
  CheckGroupedMatMulI8(args);
  ZeroRows(args.out, 0, args.a.rows);
  int64_t begin = 0;
  for (size_t g = 0; g < args.group_sizes.size(); ++g) {
    const int64_t end = std::min(args.a.rows, begin + args.group_sizes[g]);
    MatMulI8Reference(ArgsOfGroup(args, g, begin, end));
    begin = end;
  }
}

void GroupedMatMulI8TransposedReference(const GroupedI8TransposedArgs& args) {
  CheckGroupedMatMulI8Transposed(args);
  int64_t begin = 0;
  for (size_t g = 0; g < args.group_sizes.size(); ++g) {
    const int64_t end = std::min(args.a.rows, begin + args.group_sizes[g]);
    const MatMulI8Args one = ArgsOfGroup(args, g, begin, end);
    begin == end ? ZeroRows(one.out, 0, one.a.rows) : MatMulI8Reference(one);
    begin = end;
  }
}

}  // namespace octavo::kernels
