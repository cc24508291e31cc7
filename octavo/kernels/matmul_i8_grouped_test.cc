#include "octavo/kernels/matmul_i8_grouped.h"

#include <gtest/gtest.h>

#include <numeric>

#include "octavo/base/error.h"
#include "octavo/kernels/int_test_support.h"

namespace octavo::kernels {
namespace {

// Experts with their weights and a batch of rows sorted by expert.
struct Experts {
  Experts(std::vector<int64_t> group_sizes, int64_t m_, int64_t k_, int64_t n_, bool shared_scale)
      : sizes(std::move(group_sizes)), m(m_), k(k_), n(n_) {
    ThreadPool pool(1);
    a = RandomCodes(1, m * k);
    for (size_t g = 0; g < sizes.size(); ++g) {
      b.push_back(RandomCodes(100 + g, k * n));
      memory.emplace_back(static_cast<size_t>(PanelsI8Bytes(k, n, 0)));
      panels.push_back(PackPanelsI8(pool, ChooseIsa().isa, RowMajor<const int8_t>(b.back().data(), k, n), 0,
                                    static_cast<int8_t*>(memory.back().data()), nullptr));
    }
    row_scale = RandomScales(2, m);
    col_scale = RandomScales(3, n * static_cast<int64_t>(sizes.size()));
    out.assign(static_cast<size_t>(m * n), -1.0f);
    args.a = RowMajor<const int8_t>(a.data(), m, k);
    args.group_sizes = sizes;
    args.panels = panels;
    args.epilogue.row_scale = {row_scale.data()};
    args.epilogue.col_scale = {col_scale.data()};
    args.col_scale_group_stride = shared_scale ? 0 : n;
    args.out.f32 = RowMajor(out.data(), m, n);
  }

  std::vector<float> Run(Isa isa, int threads) {
    ThreadPool pool(threads);
    std::fill(out.begin(), out.end(), -1.0f);
    isa == Isa::kReference ? GroupedMatMulI8Reference(args) : GroupedMatMulI8(pool, isa, args);
    return out;
  }

  std::vector<int64_t> sizes;
  int64_t m, k, n;
  std::vector<int8_t> a;
  std::vector<std::vector<int8_t>> b;
  std::vector<Buffer> memory;
  std::vector<PanelsI8> panels;
  std::vector<float> row_scale, col_scale, out;
  GroupedI8Args args;
};

TEST(GroupedMatMulI8, RowsMeetTheirGroupAndNobodysRowsAreZero) {
  Experts e({3, 0, 5, 1, 0}, 12, 40, 33, false);
  for (const Isa isa : AvailableIsas()) {
    const std::vector<float> out = e.Run(isa, 2);
    const int group_of_row[] = {0, 0, 0, 2, 2, 2, 2, 2, 3, -1, -1, -1};
    for (int64_t m = 0; m < 12; ++m) {
      for (int64_t n = 0; n < 33; ++n) {
        const int g = group_of_row[m];
        float expected = 0;
        if (g >= 0) {
          int32_t sum = 0;
          for (int64_t k = 0; k < 40; ++k) {
            sum += e.a[static_cast<size_t>(m * 40 + k)] * e.b[static_cast<size_t>(g)][static_cast<size_t>(k * 33 + n)];
          }
          expected = (static_cast<float>(sum) * e.row_scale[static_cast<size_t>(m)]) *
                     e.col_scale[static_cast<size_t>(g * 33 + n)];
        }
        ASSERT_EQ(out[static_cast<size_t>(m * 33 + n)], expected) << m << " " << n;
      }
    }
  }
}

TEST(GroupedMatMulI8, EqualsReferenceForUnevenGroups) {
  for (const int threads : {1, 2, 3, 7}) {
    Experts uneven({0, 17, 1, 64, 0, 30, 2, 9}, 130, 70, 50, true);
    EXPECT_EQ(uneven.Run(ChooseIsa().isa, threads), uneven.Run(Isa::kReference, 1));
    Experts past({10, 200}, 40, 33, 16, false);  // sizes beyond the rows stop there
    EXPECT_EQ(past.Run(ChooseIsa().isa, threads), past.Run(Isa::kReference, 1));
    Experts none({}, 5, 8, 0, false);
    EXPECT_EQ(none.Run(ChooseIsa().isa, threads), none.Run(Isa::kReference, 1));
  }
}

TEST(GroupedMatMulI8Transposed, EqualsReferenceAndEmptyGroupsAreZero) {
  const std::vector<int64_t> sizes = {5, 0, 70, 1, 0, 33};
  const int64_t m = 120, k = 37, n = 50, groups = 6;
  const std::vector<int8_t> a = RandomCodes(1, m * k), b = RandomCodes(2, m * n);
  const std::vector<float> scale = RandomScales(3, n);
  std::vector<float> expected(static_cast<size_t>(groups * k * n), -1.0f);
  GroupedI8TransposedArgs args;
  args.a = RowMajor(a.data(), m, k);
  args.b = RowMajor(b.data(), m, n);
  args.group_sizes = sizes;
  args.epilogue.col_scale = {scale.data()};
  args.out.f32 = RowMajor(expected.data(), groups * k, n);
  GroupedMatMulI8TransposedReference(args);
  int32_t sum = 0;
  for (int64_t r = 5; r < 75; ++r) sum += a[static_cast<size_t>(r * k + 3)] * b[static_cast<size_t>(r * n + 7)];
  EXPECT_EQ(expected[static_cast<size_t>((2 * k + 3) * n + 7)], static_cast<float>(sum) * scale[7]);
  for (int64_t i = k * n; i < 2 * k * n; ++i) ASSERT_EQ(expected[static_cast<size_t>(i)], 0.0f);
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    std::vector<float> out(expected.size(), -1.0f);
    args.out.f32 = RowMajor(out.data(), groups * k, n);
    GroupedMatMulI8Transposed(pool, ChooseIsa().isa, args);
    EXPECT_EQ(out, expected);
  }
}

TEST(GroupedMatMulI8, RefusesWrongLists) {
  ThreadPool pool(1);
  Experts e({3, 4}, 7, 8, 16, false);
  const std::vector<int64_t> negative = {3, -1};
  e.args.group_sizes = negative;
  EXPECT_THROW(GroupedMatMulI8(pool, ChooseIsa().isa, e.args), Error);
  const std::vector<int64_t> one = {3};
  e.args.group_sizes = one;
  EXPECT_THROW(GroupedMatMulI8(pool, ChooseIsa().isa, e.args), Error);
}

}  // namespace
}  // namespace octavo::kernels
