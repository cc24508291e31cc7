#include "octavo/kernels/matmul_i8.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/kernels/bf16_bits.h"
#include "octavo/kernels/int_test_support.h"

namespace octavo::kernels {
namespace {

// A product whose operands, scales and output live here.
struct Product {
  std::vector<int8_t> a, b;
  std::vector<float> row_scale, col_scale, bias, out;
  std::vector<int8_t> row_zero, col_zero;
  std::vector<int32_t> sums;
  std::vector<uint16_t> half;
  MatMulI8Args args;
};

enum class Out { kI32, kF32, kBF16 };

struct Shape {
  int64_t m, n, k, tile = 0;
};

Product Make(Shape s, Out out, uint64_t seed, bool bf16_math = false, bool zeros = false) {
  Product p;
  const int64_t tiles = CutTiles(s.k, s.tile).count;
  p.a = RandomCodes(seed, s.m * s.k);
  p.b = RandomCodes(seed + 1, s.k * s.n);
  p.args.a = RowMajor<const int8_t>(p.a.data(), s.m, s.k);
  p.args.b = RowMajor<const int8_t>(p.b.data(), s.k, s.n);
  p.args.tile = s.tile;
  if (zeros) {
    p.row_zero = RandomCodes(seed + 5, s.m * tiles);
    p.col_zero = RandomCodes(seed + 6, s.n * tiles);
    p.args.epilogue.row_zero = {p.row_zero.data(), tiles, 1};
    p.args.epilogue.col_zero = {p.col_zero.data(), 1, s.n};
  }
  if (out == Out::kI32) {
    p.sums.assign(static_cast<size_t>(s.m * s.n), -1);
    p.args.out.i32 = RowMajor(p.sums.data(), s.m, s.n);
    return p;
  }
  p.row_scale = RandomScales(seed + 2, s.m * tiles, bf16_math);
  p.col_scale = RandomScales(seed + 3, s.n * tiles, bf16_math);
  p.bias = RandomScales(seed + 4, s.n, bf16_math);
  p.args.epilogue.row_scale = {p.row_scale.data(), tiles, 1};
  p.args.epilogue.col_scale = {p.col_scale.data(), 1, s.n};
  p.args.epilogue.bias = {p.bias.data(), 1, 0};
  if (bf16_math) p.args.epilogue.math = ScaleMath::kBF16;
  if (out == Out::kF32) {
    p.out.assign(static_cast<size_t>(s.m * s.n), -1.0f);
    p.args.out.f32 = RowMajor(p.out.data(), s.m, s.n);
  } else {
    p.half.assign(static_cast<size_t>(s.m * s.n), 0xBEEF);
    p.args.out.bf16 = RowMajor(p.half.data(), s.m, s.n);
  }
  return p;
}

// Runs `p` on a pool and returns the output as bits.
std::vector<uint32_t> BitsOf(const Product& p, int threads, Isa isa) {
  ThreadPool pool(threads);
  if (isa == Isa::kReference) {
    MatMulI8Reference(p.args);
  } else {
    MatMulI8(pool, isa, p.args);
  }
  std::vector<uint32_t> bits(p.sums.begin(), p.sums.end());
  for (const float value : p.out) bits.push_back(std::bit_cast<uint32_t>(value));
  bits.insert(bits.end(), p.half.begin(), p.half.end());
  return bits;
}

constexpr Shape kShapes[] = {{1, 1, 1},       {2, 3, 4},          {6, 16, 8},     {7, 17, 9},         {5, 33, 255},
                             {13, 50, 300},   {97, 65, 130},      {1, 200, 513},  {8, 31, 600},       {3, 16, 2},
                             {64, 48, 1024},  {0, 5, 7},          {5, 0, 7},      {4, 6, 0},          {200, 160, 96},
                             {9, 40, 96, 32}, {7, 19, 90, 32},    {6, 16, 35, 5}, {11, 33, 256, 128}, {3, 4, 0, 8},
                             {2, 20, 7, 64},  {31, 70, 512, 128}, {20, 40, 9001}, {80, 33, 8200}};

TEST(MatMulI8, EqualsReferenceForAnyShapeAndEpilogue) {
  uint64_t seed = 1;
  for (const Shape& shape : kShapes) {
    for (const Out out : {Out::kI32, Out::kF32, Out::kBF16}) {
      if (out == Out::kI32 && shape.tile != 0) continue;
      for (const bool bf16_math : {false, true}) {
        for (const bool zeros : {false, true}) {
          seed += 10;
          SCOPED_TRACE(testing::Message() << shape.m << "x" << shape.n << "x" << shape.k << "/" << shape.tile << " out "
                                          << static_cast<int>(out) << " bf16 " << bf16_math << " zeros " << zeros);
          const std::vector<uint32_t> expected = BitsOf(Make(shape, out, seed, bf16_math, zeros), 1, Isa::kReference);
          EXPECT_EQ(BitsOf(Make(shape, out, seed, bf16_math, zeros), 2, ChooseIsa().isa), expected);
        }
      }
    }
  }
}

// Every count of rows around the strips of each instruction set, with K at and around whole blocks of 64 steps, from
// packed panels and from operands in either order.
TEST(MatMulI8, EveryCountOfRowsEqualsTheReference) {
  ThreadPool pool(2);
  for (const int64_t k : {63, 64, 65, 192, 1087}) {
    const int64_t n = 49, most = 46;
    const std::vector<int8_t> a = RandomCodes(1, most * k), b = RandomCodes(2, k * n);
    Buffer memory(static_cast<size_t>(PanelsI8Bytes(k, n, 0)));
    const PanelsI8 panels =
        PackPanelsI8(pool, ChooseIsa().isa, RowMajor(b.data(), k, n), 0, static_cast<int8_t*>(memory.data()), nullptr);
    for (int64_t m = 1; m <= most; ++m) {
      std::vector<int32_t> expected(static_cast<size_t>(m * n)), out(expected.size());
      for (const bool turned : {false, true}) {
        MatMulI8Args args;
        args.a = turned ? RowMajor(a.data(), k, m).Transposed() : RowMajor(a.data(), m, k);
        args.b = turned ? RowMajor(b.data(), n, k).Transposed() : RowMajor(b.data(), k, n);
        args.out.i32 = RowMajor(expected.data(), m, n);
        MatMulI8Reference(args);
        args.out.i32 = RowMajor(out.data(), m, n);
        MatMulI8(pool, ChooseIsa().isa, args);
        ASSERT_EQ(out, expected) << m << " rows, K " << k << (turned ? " turned" : "");
        if (turned) continue;
        args.b = {};
        args.panels = panels;
        std::fill(out.begin(), out.end(), -1);
        MatMulI8(pool, ChooseIsa().isa, args);
        ASSERT_EQ(out, expected) << m << " rows, K " << k << " from panels";
      }
    }
  }
}

TEST(MatMulI8Reference, SmallProductByHand) {
  const int8_t a[] = {1, -2, 127, -128}, b[] = {3, -4, 5, 6};
  int32_t sums[4] = {};
  MatMulI8Args args{.a = RowMajor(a, 2, 2), .b = RowMajor(b, 2, 2)};
  args.out.i32 = RowMajor(sums, 2, 2);
  MatMulI8Reference(args);
  EXPECT_EQ(sums[0], 3 - 10);
  EXPECT_EQ(sums[1], -4 - 12);
  EXPECT_EQ(sums[2], 127 * 3 - 128 * 5);
  EXPECT_EQ(sums[3], 127 * -4 - 128 * 6);
  // A transpose is the other strides: aᵀ · b.
  args.a = args.a.Transposed();
  MatMulI8Reference(args);
  EXPECT_EQ(sums[0], 1 * 3 + 127 * 5);
  EXPECT_EQ(sums[2], -2 * 3 - 128 * 5);
}

TEST(MatMulI8Reference, ScalesRoundOneAfterTheOther) {
  const std::vector<int8_t> a(2049, 127), b(2049, 127);
  const float sum = static_cast<float>(2049 * 127 * 127);  // above 2^24: the sum itself rounds
  int differ = 0;
  for (int i = 1; i < 50; ++i) {
    const float row = RoundToBF16(0.013f * static_cast<float>(i)), col = RoundToBF16(0.7f);
    float out = 0;
    MatMulI8Args args{.a = RowMajor(a.data(), 1, 2049), .b = RowMajor(b.data(), 2049, 1)};
    args.out.f32 = RowMajor(&out, 1, 1);
    args.epilogue.row_scale = {&row};
    args.epilogue.col_scale = {&col};
    MatMulI8Reference(args);
    EXPECT_EQ(out, (sum * row) * col);
    args.epilogue.order = ScaleOrder::kColumnThenRow;
    MatMulI8Reference(args);
    EXPECT_EQ(out, (sum * col) * row);
    differ += (sum * col) * row != (sum * row) * col;
    args.epilogue.math = ScaleMath::kBF16;
    args.epilogue.order = ScaleOrder::kRowThenColumn;
    MatMulI8Reference(args);
    EXPECT_EQ(out, RoundToBF16(RoundToBF16(RoundToBF16(sum) * row) * col));
  }
  EXPECT_GT(differ, 0);
}

TEST(MatMulI8Reference, TilesAreScaledAndAddedAscending) {
  const int8_t a[] = {100, 50, -7, 3, 90}, b[] = {1, 2, 3, 4, 5};
  const float row[] = {0.1f, 0.7f, 1e-3f}, col[] = {3.0f, 0.2f, 9.0f}, bias = 0.25f;
  float out = 0;
  MatMulI8Args args{.a = RowMajor(a, 1, 5), .b = RowMajor(b, 5, 1), .tile = 2};
  args.out.f32 = RowMajor(&out, 1, 1);
  args.epilogue.row_scale = {row, 3, 1};
  args.epilogue.col_scale = {col, 1, 1};
  args.epilogue.bias = {&bias};
  MatMulI8Reference(args);
  EXPECT_EQ(out, (((200.0f * row[0]) * col[0] + (-9.0f * row[1]) * col[1]) + (450.0f * row[2]) * col[2]) + bias);
}

TEST(MatMulI8Reference, ZeroPointsShiftTheCodes) {
  const int8_t a[] = {-128, 127, 5}, b[] = {127, -128, 9}, az = -128, bz = 127;
  int32_t sum = 0;
  MatMulI8Args args{.a = RowMajor(a, 1, 3), .b = RowMajor(b, 3, 1)};
  args.out.i32 = RowMajor(&sum, 1, 1);
  args.epilogue.row_zero = {&az};
  args.epilogue.col_zero = {&bz};
  MatMulI8Reference(args);
  EXPECT_EQ(sum, 0 * 0 + 255 * -255 + 133 * -118);
}

TEST(MatMulI8, TheListSaysWhyAnEntryDeclined) {
  const MatMulI8Args args = {};
  EXPECT_EQ(ChooseMatMulI8(Isa::kReference, args).name, "int8 reference");
  ASSERT_EQ(ChooseMatMulI8(Isa::kReference, args).declined.size(), 3u);
  EXPECT_EQ(ChooseMatMulI8(Isa::kReference, args).declined[2], "int8 avx2 4x16: another instruction set was chosen");
  EXPECT_EQ(ChooseMatMulI8(Isa::kAvx2, args).declined[2], "int8 avx2 4x16: K is 0: nothing to multiply");
  MatMulI8Args some = args;
  some.a.cols = 1;
  EXPECT_EQ(ChooseMatMulI8(Isa::kAvx2, some).name, "int8 avx2 4x16");
  EXPECT_EQ(ChooseMatMulI8(Isa::kAvx512, some).name, "int8 avx512 vnni 14x32");
  some.a.rows = 8;
  EXPECT_EQ(ChooseMatMulI8(Isa::kAmx, some).name, "int8 avx512 vnni 14x32");
  EXPECT_EQ(ChooseMatMulI8(Isa::kAmx, some).declined[0],
            "int8 amx 32x32: few rows: the vectors stream the weights faster");
  some.a.rows = 9;
  EXPECT_EQ(ChooseMatMulI8(Isa::kAmx, some).name, "int8 amx 32x32");
}

TEST(MatMulI8, RefusesWhatIsNotExactOrDoesNotFit) {
  ThreadPool pool(1);
  std::vector<int8_t> a(131072), b(131072);
  int32_t sum = 0;
  MatMulI8Args args{
      .a = RowMajor<const int8_t>(a.data(), 1, 131072),
      .b = RowMajor<const int8_t>(b.data(), 131072, 1),
  };
  args.out.i32 = RowMajor(&sum, 1, 1);
  EXPECT_THROW(MatMulI8(pool, ChooseIsa().isa, args), Error);
  args.a.cols = 131071;
  EXPECT_THROW(MatMulI8(pool, ChooseIsa().isa, args), Error);  // rhs wants 131072
  args.b.rows = 131071;
  MatMulI8(pool, ChooseIsa().isa, args);
  const int8_t zero = 1;
  args.epilogue.row_zero = {&zero};
  EXPECT_THROW(MatMulI8(pool, ChooseIsa().isa, args), Error);
  args.epilogue.row_zero = {};
  const float scale = 1;
  args.epilogue.row_scale = {&scale};
  EXPECT_THROW(MatMulI8(pool, ChooseIsa().isa, args), Error);
}

}  // namespace
}  // namespace octavo::kernels
