#include "octavo/kernels/panel_runs.h"

#include <gtest/gtest.h>

#include "octavo/kernels/int_test_support.h"
#include "octavo/kernels/matmul_i8.h"
#include "octavo/kernels/matmul_u4.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {
namespace {

TEST(PanelRuns, EveryPanelIsHandedOutOnce) {
  for (const int64_t panels : {0, 1, 2, 5, 64, 352, 2001}) {
    for (const int64_t bytes : {64, 4096, 131072}) {
      for (const int64_t grain : {1, 2}) {
        for (const int workers : {1, 2, 3, 7}) {
          PanelRuns runs(panels, bytes, grain, workers);
          std::vector<int> times(static_cast<size_t>(panels));
          int64_t before = panels;  // the length of the run before: they shrink
          const auto count = [&](const Range& range) {
            ASSERT_TRUE(range.begin % grain == 0 || range.begin == panels);
            ASSERT_LE(range.end, panels);
            for (int64_t i = range.begin; i < range.end; ++i) ++times[static_cast<size_t>(i)];
          };
          for (int worker = 0; worker < workers; ++worker) count(runs.First(worker));
          for (Range range = runs.Take(); range.begin < range.end; range = runs.Take()) {
            count(range);
            EXPECT_LE(range.end - range.begin, before);
            before = range.end - range.begin;
          }
          EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << panels << " " << bytes << " " << workers;
        }
      }
    }
  }
}

// Weights of one depth with `cols` columns each, and the results of `rows` rows times all of them.
constexpr int64_t kDepth = 512, kCols[] = {200, 17, 48, 1};

struct EightBits {
  using Args = MatMulI8Args;
  static Args Pack(ThreadPool& pool, const std::vector<int8_t>& codes, int64_t cols, int64_t group, Buffer& data,
                   std::vector<int32_t>& sums) {
    data = Buffer(static_cast<size_t>(PanelsI8Bytes(kDepth, cols, group)));
    sums.resize(static_cast<size_t>(PanelsI8Sums(kDepth, cols, group)));
    Args args;
    args.panels = PackPanelsI8(pool, ChooseIsa().isa, RowMajor<const int8_t>(codes.data(), kDepth, cols), group,
                               static_cast<int8_t*>(data.data()), sums.data());
    args.tile = group;
    return args;
  }
  static void Run(ThreadPool& pool, Isa isa, std::span<const Args> args) { MatMulI8(pool, isa, args); }
  static void Run(ThreadPool& pool, Isa isa, const Args& args) { MatMulI8(pool, isa, args); }
};

struct FourBits {
  using Args = MatMulU4Args;
  static Args Pack(ThreadPool& pool, const std::vector<int8_t>& codes, int64_t cols, int64_t group, Buffer& data,
                   std::vector<int32_t>& sums) {
    data = Buffer(static_cast<size_t>(PanelsU4Bytes(kDepth, cols, group)));
    sums.resize(static_cast<size_t>(PanelsU4Sums(kDepth, cols, group)));
    Args args;
    args.panels = PackPanelsU4(pool, ChooseIsa().isa, RowMajor<const int8_t>(codes.data(), kDepth, cols), group,
                               static_cast<uint8_t*>(data.data()), sums.data());
    return args;
  }
  static void Run(ThreadPool& pool, Isa isa, std::span<const Args> args) { MatMulU4(pool, isa, args); }
  static void Run(ThreadPool& pool, Isa isa, const Args& args) { MatMulU4(pool, isa, args); }
};

template <typename Kind>
void CheckTogether(int64_t rows, int64_t group, int threads) {
  ThreadPool pool(threads);
  const std::vector<int8_t> a = RandomCodes(1, rows * kDepth);
  const std::vector<float> row_scale = RandomScales(2, rows);
  const int64_t groups = group == 0 ? 1 : kDepth / group;
  constexpr size_t kCount = std::size(kCols);
  Buffer data[kCount];
  std::vector<int32_t> sums[kCount];
  std::vector<float> col_scale[kCount], alone[kCount], together[kCount];
  std::vector<typename Kind::Args> all;
  for (size_t i = 0; i < kCount; ++i) {
    const int64_t cols = kCols[i];
    all.push_back(Kind::Pack(pool, RandomCodes(10 + i, kDepth * cols, -8, 7), cols, group, data[i], sums[i]));
    col_scale[i] = RandomScales(20 + i, cols * groups);
    alone[i].assign(static_cast<size_t>(rows * cols), -1.0f);
    together[i] = alone[i];
    all[i].a = RowMajor<const int8_t>(a.data(), rows, kDepth);
    all[i].epilogue.row_scale = {row_scale.data()};
    all[i].epilogue.col_scale = {col_scale[i].data(), 1, cols};
    all[i].out.f32 = RowMajor(alone[i].data(), rows, cols);
    Kind::Run(pool, ChooseIsa().isa, all[i]);
    all[i].out.f32 = RowMajor(together[i].data(), rows, cols);
  }
  for (const Isa isa : {Isa::kReference, Isa::kAvx2, ChooseIsa().isa}) {
    if (isa > ChooseIsa().isa) continue;
    for (std::vector<float>& out : together) std::fill(out.begin(), out.end(), -1.0f);
    Kind::Run(pool, isa, std::span<const typename Kind::Args>(all));
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(HashOf(together[i]), HashOf(alone[i])) << rows << " rows, weight " << i << ", group " << group;
    }
  }
}

TEST(PanelRuns, ProductsOfTheSameRowsTogetherEqualEachAlone) {
  for (const int64_t rows : {1, 3, 8, 9}) {
    for (const int64_t group : {0, 128}) {
      for (const int threads : {1, 2, 3, 7}) {
        CheckTogether<EightBits>(rows, group, threads);
        CheckTogether<FourBits>(rows, group, threads);
      }
    }
  }
}

TEST(PanelRuns, ProductsOfOtherRowsAreNotMixedUp) {
  // The same call with rows of their own for each weight: nothing may be shared.
  ThreadPool pool(2);
  const std::vector<int8_t> a = RandomCodes(1, 2 * kDepth), b = RandomCodes(2, kDepth * 40, -8, 7);
  Buffer data;
  std::vector<int32_t> sums;
  std::vector<MatMulU4Args> both(2, FourBits::Pack(pool, b, 40, 0, data, sums));
  std::vector<int32_t> out[2], expected(40);
  for (size_t i = 0; i < 2; ++i) {
    out[i].resize(40);
    both[i].a = RowMajor<const int8_t>(a.data() + static_cast<int64_t>(i) * kDepth, 1, kDepth);
    both[i].out.i32 = RowMajor(out[i].data(), 1, 40);
  }
  MatMulU4(pool, ChooseIsa().isa, std::span<const MatMulU4Args>(both));
  for (size_t i = 0; i < 2; ++i) {
    both[i].out.i32 = RowMajor(expected.data(), 1, 40);
    MatMulU4Reference(both[i]);
    EXPECT_EQ(out[i], expected) << i;
  }
}

}  // namespace
}  // namespace octavo::kernels
