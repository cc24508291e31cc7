#include "octavo/kernels/matmul_u4.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/kernels/int_test_support.h"

namespace octavo::kernels {
namespace {

struct Shape {
  int64_t m, n, k, group = 0;
};

// A product over packed int4 weights; `fill` chooses random codes or one extreme.
struct Product {
  Product(Shape s, uint64_t seed, bool zeros = false, int weight = 99, int activation = 999) : shape(s) {
    ThreadPool pool(1);
    groups = s.group == 0 ? 1 : (s.k + s.group - 1) / s.group;
    a = activation == 999 ? RandomCodes(seed, s.m * s.k)
                          : std::vector<int8_t>(static_cast<size_t>(s.m * s.k), static_cast<int8_t>(activation));
    b = weight == 99 ? RandomCodes(seed + 1, s.k * s.n, -8, 7)
                     : std::vector<int8_t>(static_cast<size_t>(s.k * s.n), static_cast<int8_t>(weight));
    data.resize(static_cast<size_t>(PanelsU4Bytes(s.k, s.n, s.group)) + 64);
    sums.resize(static_cast<size_t>(PanelsU4Sums(s.k, s.n, s.group)));
    row_scale = RandomScales(seed + 2, s.m);
    col_scale = RandomScales(seed + 3, s.n * groups);
    row_zero = RandomCodes(seed + 4, s.m);
    col_zero = RandomCodes(seed + 5, s.n * groups, -8, 7);
    out.assign(static_cast<size_t>(s.m * s.n), -1.0f);
    args.a = RowMajor<const int8_t>(a.data(), s.m, s.k);
    args.panels = PackPanelsU4(pool, ChooseIsa().isa, RowMajor<const int8_t>(b.data(), s.k, s.n), s.group, data.data(),
                               sums.data());
    args.epilogue.row_scale = {row_scale.data()};
    args.epilogue.col_scale = {col_scale.data(), 1, s.n};
    if (zeros) {
      args.epilogue.row_zero = {row_zero.data()};
      args.epilogue.col_zero = {col_zero.data(), 1, s.n};
    }
    args.out.f32 = RowMajor(out.data(), s.m, s.n);
  }

  std::vector<float> Run(Isa isa, int threads = 2) {
    ThreadPool pool(threads);
    std::fill(out.begin(), out.end(), -1.0f);
    isa == Isa::kReference ? MatMulU4Reference(args) : MatMulU4(pool, isa, args);
    return out;
  }

  Shape shape;
  int64_t groups;
  std::vector<int8_t> a, b, row_zero, col_zero;
  std::vector<uint8_t> data;
  std::vector<int32_t> sums;
  std::vector<float> row_scale, col_scale, out;
  MatMulU4Args args;
};

constexpr Shape kShapes[] = {{1, 1, 1},          {2, 3, 4},        {6, 16, 32},        {7, 17, 9},     {5, 33, 255},
                             {13, 50, 300},      {97, 65, 130},    {1, 200, 513},      {8, 31, 600},   {3, 16, 2},
                             {64, 48, 1024},     {0, 5, 7},        {5, 0, 7},          {4, 6, 0},      {19, 40, 96, 32},
                             {7, 19, 90, 32},    {6, 16, 35, 5},   {11, 33, 256, 128}, {3, 4, 0, 8},   {2, 20, 7, 64},
                             {31, 70, 512, 128}, {1, 64, 512, 32}, {4, 32, 100, 40},   {20, 40, 8300}, {80, 33, 8200}};

TEST(MatMulU4, PanelsKeepEveryCode) {
  for (const Shape& shape : kShapes) {
    const Product p(shape, 3);
    for (int64_t k = 0; k < shape.k; ++k) {
      for (int64_t n = 0; n < shape.n; ++n) {
        ASSERT_EQ(PanelsU4Code(p.args.panels, k, n), p.b[static_cast<size_t>(k * shape.n + n)]) << k << " " << n;
      }
    }
  }
}

TEST(MatMulU4, PanelsAreTheSameFromBothInstructionSets) {
  ThreadPool pool(2);
  for (const Shape& shape : kShapes) {
    for (const bool turned : {false, true}) {
      const std::vector<int8_t> codes = RandomCodes(7, shape.k * shape.n, -8, 7);
      const MatrixView<const int8_t> b =
          turned ? RowMajor(codes.data(), shape.n, shape.k).Transposed() : RowMajor(codes.data(), shape.k, shape.n);
      std::vector<uint8_t> data[2];
      std::vector<int32_t> sums[2];
      for (int i = 0; i < 2; ++i) {
        data[i].resize(static_cast<size_t>(PanelsU4Bytes(shape.k, shape.n, shape.group)));
        sums[i].resize(static_cast<size_t>(PanelsU4Sums(shape.k, shape.n, shape.group)));
        PackPanelsU4(pool, i == 0 ? Isa::kReference : ChooseIsa().isa, b, shape.group, data[i].data(), sums[i].data());
      }
      EXPECT_EQ(data[0], data[1]);
      EXPECT_EQ(sums[0], sums[1]);
    }
  }
}

// Around the strips of each instruction set, and where VNNI begins to rewrite panels.
TEST(MatMulU4, EveryCountOfRowsEqualsTheReference) {
  for (const int64_t group : {0, 32}) {
    for (int64_t m = 1; m <= 46; ++m) {
      Product p({m, 49, 200, group}, static_cast<int>(m));
      const std::vector<float> expected = p.Run(Isa::kReference);
      ASSERT_EQ(HashOf(p.Run(ChooseIsa().isa, 2)), HashOf(expected)) << m << " rows, groups of " << group;
    }
  }
}

TEST(MatMulU4, ARowAloneEqualsTheRowInABatchForAnyThreads) {
  for (const int64_t group : {0, 32, 128}) {
    Product p({37, 64, 1024, group}, 5);
    const std::vector<float> whole = p.Run(Isa::kReference);
    for (const int threads : {1, 2, 3, 7}) EXPECT_EQ(HashOf(p.Run(ChooseIsa().isa, threads)), HashOf(whole));
    ThreadPool pool(2);
    for (int64_t row = 0; row < 37; ++row) {
      std::vector<float> alone(64);
      MatMulU4Args args = p.args;
      args.a = RowMajor<const int8_t>(p.a.data() + row * 1024, 1, 1024);
      args.epilogue.row_scale.data += row;
      args.out.f32 = RowMajor(alone.data(), 1, 64);
      MatMulU4(pool, ChooseIsa().isa, args);
      EXPECT_EQ(alone, std::vector<float>(whole.begin() + row * 64, whole.begin() + (row + 1) * 64)) << row;
    }
  }
}

TEST(MatMulU4, ScalesInPanelsAreTheSameScales) {
  Product p({25, 48, 256, 32}, 6);
  const std::vector<float> expected = p.Run(Isa::kReference);
  std::vector<float> panels(static_cast<size_t>(48 * 8));
  for (int64_t n = 0; n < 48; ++n) {
    for (int64_t g = 0; g < 8; ++g) {
      panels[static_cast<size_t>(n / 16 * 128 + g * 16 + n % 16)] = p.col_scale[static_cast<size_t>(g * 48 + n)];
    }
  }
  p.args.epilogue.col_scale = {panels.data(), 1, 16, 128};
  EXPECT_EQ(p.Run(Isa::kReference), expected);
  EXPECT_EQ(p.Run(ChooseIsa().isa), expected);
}

TEST(MatMulU4, OtherEpiloguesEqualTheReference) {
  for (const int64_t group : {0, 32, 64}) {
    Product p({37, 70, 256, group}, 8);
    p.args.epilogue.order = ScaleOrder::kColumnThenRow;
    EXPECT_EQ(p.Run(ChooseIsa().isa), p.Run(Isa::kReference));
    p.args.epilogue.math = ScaleMath::kBF16;
    EXPECT_EQ(p.Run(ChooseIsa().isa), p.Run(Isa::kReference));
    p.args.epilogue.bias = {p.col_scale.data()};
    EXPECT_EQ(p.Run(ChooseIsa().isa), p.Run(Isa::kReference));
    const std::vector<float> tiled = RandomScales(3, 37 * p.groups);
    p.args.epilogue.row_scale = {tiled.data(), p.groups, 1};
    EXPECT_EQ(p.Run(ChooseIsa().isa), p.Run(Isa::kReference));
  }
}

TEST(MatMulU4, EqualsReferenceForAnyShape) {
  uint64_t seed = 1;
  for (const Shape& shape : kShapes) {
    for (const bool zeros : {false, true}) {
      Product p(shape, seed += 10, zeros);
      SCOPED_TRACE(testing::Message() << shape.m << "x" << shape.n << "x" << shape.k << "/" << shape.group << zeros);
      EXPECT_EQ(p.Run(ChooseIsa().isa), p.Run(Isa::kReference));
    }
  }
}

TEST(MatMulU4, ExtremeCodesStayExact) {
  for (const int weight : {-8, 7}) {
    for (const int activation : {-128, 127}) {
      for (const int64_t m : {7, 35}) {
        Product p({m, 18, 5000}, 1, false, weight, activation);
        p.args.epilogue = {};
        const float exact = static_cast<float>(weight * activation * 5000);
        for (const float value : p.Run(ChooseIsa().isa)) ASSERT_EQ(value, exact);
      }
    }
  }
}

TEST(MatMulU4, RefusesCodesOutside) {
  ThreadPool pool(1);
  const std::vector<int8_t> b(4, 8);
  std::vector<uint8_t> data(static_cast<size_t>(PanelsU4Bytes(2, 2, 0)));
  EXPECT_THROW(PackPanelsU4(pool, ChooseIsa().isa, RowMajor<const int8_t>(b.data(), 2, 2), 0, data.data(), nullptr),
               Error);
}

}  // namespace
}  // namespace octavo::kernels
