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
    args.panels =
        PackPanelsU4(pool, Isa::kAvx2, RowMajor<const int8_t>(b.data(), s.k, s.n), s.group, data.data(), sums.data());
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

constexpr Shape kShapes[] = {{1, 1, 1},          {2, 3, 4},        {6, 16, 32},        {7, 17, 9},   {5, 33, 255},
                             {13, 50, 300},      {97, 65, 130},    {1, 200, 513},      {8, 31, 600}, {3, 16, 2},
                             {64, 48, 1024},     {0, 5, 7},        {5, 0, 7},          {4, 6, 0},    {19, 40, 96, 32},
                             {7, 19, 90, 32},    {6, 16, 35, 5},   {11, 33, 256, 128}, {3, 4, 0, 8}, {2, 20, 7, 64},
                             {31, 70, 512, 128}, {1, 64, 512, 32}, {4, 32, 100, 40}};

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

TEST(MatMulU4, EqualsReferenceForAnyShape) {
  uint64_t seed = 1;
  for (const Shape& shape : kShapes) {
    for (const bool zeros : {false, true}) {
      Product p(shape, seed += 10, zeros);
      SCOPED_TRACE(testing::Message() << shape.m << "x" << shape.n << "x" << shape.k << "/" << shape.group << zeros);
      EXPECT_EQ(p.Run(Isa::kAvx2), p.Run(Isa::kReference));
    }
  }
}

TEST(MatMulU4, ExtremeCodesStayExact) {
  for (const int weight : {-8, 7}) {
    for (const int activation : {-128, 127}) {
      Product p({7, 18, 5000}, 1, false, weight, activation);
      p.args.epilogue = {};
      for (const float value : p.Run(Isa::kAvx2)) ASSERT_EQ(value, static_cast<float>(weight * activation * 5000));
    }
  }
}

TEST(MatMulU4, RefusesCodesOutside) {
  ThreadPool pool(1);
  const std::vector<int8_t> b(4, 8);
  std::vector<uint8_t> data(static_cast<size_t>(PanelsU4Bytes(2, 2, 0)));
  EXPECT_THROW(PackPanelsU4(pool, Isa::kAvx2, RowMajor<const int8_t>(b.data(), 2, 2), 0, data.data(), nullptr), Error);
}

}  // namespace
}  // namespace octavo::kernels
