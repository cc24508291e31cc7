// The fast kernels of the F family against the reference, bit for bit: shapes, layouts, stored types, threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/matmul_f32_impl.h"
#include "octavo/kernels/matmul_f32_test_support.h"

namespace octavo::kernels {
namespace {

constexpr Layout kLayouts[] = {Layout::kRows, Layout::kCols, Layout::kRows, Layout::kCols, Layout::kGaps};
constexpr int64_t kDepths[] = {1, 2, 7, 31, 64, 255, 256, 257, 511, 513, 1000};

class Bits : public ::testing::Test {
 protected:
  // Runs the product with the fast kernels on several thread counts and compares all of C's memory with the
  // reference's, the gaps between elements included.
  void Compare(MatMulF32Args args, const Output& before, const std::string& what) {
    Output want = Copy(before);
    args.c = want.result;
    MatMulF32Reference(one_, args);
    ThreadPool* pools[] = {&one_, &two_, &three_, &seven_};
    for (ThreadPool* pool : pools) {
      Output found = Copy(before);
      args.c = found.result;
      MatMulF32(*pool, ChooseIsa().isa, workspace_, args);
      ASSERT_EQ(want.words, found.words) << what << ", threads " << pool->size();
    }
  }

  ThreadPool one_{1}, two_{2}, three_{3}, seven_{7};
  Workspace workspace_;
};

TEST_F(Bits, AnyShapeAndLayout) {
  Numbers numbers(1);
  for (int round = 0; round < 120; ++round) {
    const int64_t m = 1 + numbers.Below(70), n = 1 + numbers.Below(70), k = numbers.Of(kDepths);
    const Matrix a = RandomMatrix(numbers, Stored::kF32, m, k, numbers.Of(kLayouts));
    const Matrix b = RandomMatrix(numbers, Stored::kF32, k, n, numbers.Of(kLayouts));
    const Output c = RandomOutput(numbers, Stored::kF32, m, n, numbers.Of(kLayouts));
    MatMulF32Args args;
    args.a = a.source, args.b = b.source;
    Compare(args, c, fmt::format("round {}: {} x {} x {}", round, m, n, k));
    if (HasFatalFailure()) return;
  }
}

TEST_F(Bits, FewRows) {
  Numbers numbers(2);
  for (int64_t m = 1; m <= 9; ++m) {
    for (const Layout layout : {Layout::kRows, Layout::kCols}) {
      const int64_t n = 500 + numbers.Below(200), k = numbers.Of({int64_t{256}, int64_t{300}, int64_t{515}});
      const Matrix a = RandomMatrix(numbers, Stored::kF32, m, k, Layout::kRows);
      const Matrix b = RandomMatrix(numbers, Stored::kF32, k, n, layout);
      const Output c = RandomOutput(numbers, Stored::kF32, m, n, Layout::kRows);
      MatMulF32Args args;
      args.a = a.source, args.b = b.source;
      Compare(args, c, fmt::format("{} rows", m));
      if (HasFatalFailure()) return;
    }
  }
}

// More than one chunk of rows and one block of columns, so that every buffer is used twice.
TEST_F(Bits, SeveralBlocks) {
  Numbers numbers(3);
  struct {
    int64_t m, n, k;
    bool accumulate;
  } const cases[] = {{3100, 20, 260, false}, {13, 4130, 270, false}, {4200, 17, 300, true}, {14, 4110, 515, true}};
  for (const auto& shape : cases) {
    const Matrix a = RandomMatrix(numbers, Stored::kF32, shape.m, shape.k, Layout::kRows);
    const Matrix b = RandomMatrix(numbers, Stored::kF32, shape.k, shape.n, Layout::kCols);
    const Output c = RandomOutput(numbers, Stored::kF32, shape.m, shape.n, Layout::kRows);
    MatMulF32Args args;
    args.a = a.source, args.b = b.source;
    args.epilogue.accumulate = shape.accumulate;
    Compare(args, c, fmt::format("{} x {} x {}", shape.m, shape.n, shape.k));
    if (HasFatalFailure()) return;
  }
}

TEST_F(Bits, EveryStoredTypeWithScalesAndEpilogues) {
  Numbers numbers(4);
  constexpr Stored kStored[] = {Stored::kF32, Stored::kBF16, Stored::kF16, Stored::kI8, Stored::kByte, Stored::kNibble};
  constexpr Stored kResults[] = {Stored::kF32, Stored::kBF16, Stored::kF16};
  constexpr int64_t kTiles[] = {1, 3, 16, 32, 128, 4096};
  const std::vector<float> rows = [&] {
    std::vector<float> values(200);
    for (float& v : values) v = numbers.Float();
    return values;
  }();
  for (int round = 0; round < 150; ++round) {
    const int64_t m = 1 + numbers.Below(40), n = 1 + numbers.Below(60), k = numbers.Of(kDepths);
    Matrix a = RandomMatrix(numbers, numbers.Of(kStored), m, k, numbers.Of(kLayouts));
    Matrix b = RandomMatrix(numbers, numbers.Of(kStored), k, n, numbers.Of(kLayouts));
    if (numbers.Below(2) == 0) AddScales(numbers, a, numbers.Of(kTiles), numbers.Of(kTiles), numbers.Below(2) == 0);
    if (numbers.Below(2) == 0) AddScales(numbers, b, numbers.Of(kTiles), numbers.Of(kTiles), numbers.Below(2) == 0);
    const Output c = RandomOutput(numbers, numbers.Of(kResults), m, n, numbers.Of(kLayouts));
    MatMulF32Args args;
    args.a = a.source, args.b = b.source;
    if (numbers.Below(2) == 0) args.epilogue.row_scale = {rows.data(), numbers.Below(3)};
    if (numbers.Below(2) == 0) args.epilogue.col_scale = {rows.data() + 5, numbers.Below(3)};
    if (numbers.Below(2) == 0) args.epilogue.bias = {rows.data() + 7, numbers.Below(3)};
    args.epilogue.accumulate = numbers.Below(2) == 0;
    Compare(args, c, fmt::format("round {}: {} x {} x {}", round, m, n, k));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace octavo::kernels
