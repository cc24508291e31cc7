#include "octavo/kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/kernels/bf16_bits.h"
#include "octavo/kernels/int_test_support.h"

namespace octavo::kernels {
namespace {

TEST(QuantizeReference, RowsByHand) {
  const float x[] = {1.0f, -2.0f, 0.5f, 0.0f, 0.0f, 0.0f};
  float scale[2] = {};
  int8_t codes[6] = {};
  QuantizeArgs args{.source = {RowMajor(x, 2, 3), {}}, .block_rows = 1, .block_cols = 3};
  args.scale = RowMajor(scale, 2, 1);
  args.codes = RowMajor(codes, 2, 3);
  QuantizeReference(args);
  EXPECT_EQ(scale[0], 2.0f * (1.0f / 127.5f));
  EXPECT_EQ(scale[1], 1.0f);  // the zero guard
  EXPECT_EQ(codes[0], 64);    // 63.75
  EXPECT_TRUE(codes[1] == -128 || codes[1] == -127);
  EXPECT_EQ(codes[2], 32);
  EXPECT_EQ(codes[3], 0);
  args.spec.scale_division = args.spec.code_division = Division::kTrue;
  QuantizeReference(args);
  EXPECT_EQ(scale[0], 2.0f / 127.5f);
}

TEST(QuantizeReference, HardValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float x[] = {inf, -inf, nan, 129.0f, -1300.0f, 3.5f, 2.5f, -127.5f};
  float scale = 1.0f;
  int8_t codes[8] = {};
  QuantizeArgs args{.source = {RowMajor(x, 1, 8), {}}, .block_rows = 1, .block_cols = 8};
  args.scale = RowMajor(&scale, 1, 1);
  args.codes = RowMajor(codes, 1, 8);
  QuantizeWithScaleReference(args);
  const int8_t expected[] = {127, -128, 0, 127, -128, 4, 2, -128};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(codes[i], expected[i]) << i;
}

TEST(QuantizeReference, ReferenceDivisionRule) {
  EXPECT_EQ(LikeReference({}, false, 4, 64).scale_division, Division::kReciprocal);
  EXPECT_EQ(LikeReference({}, false, 4, 64).code_division, Division::kReciprocal);
  EXPECT_EQ(LikeReference({}, false, 1, 64).scale_division, Division::kTrue);
  EXPECT_EQ(LikeReference({}, false, 64, 64).code_division, Division::kTrue);
  EXPECT_EQ(LikeReference({}, true, 4, 64).code_division, Division::kTrue);
}

// One quantizing job with everything it may use.
struct Job {
  int64_t rows, cols, block_rows, block_cols;
  bool bf16 = false, turned = false, codes_turned = false;
  int pre = 0;    // 1: by row, 2: by column
  int noise = 0;  // 1: full, 2: per row
  bool zero = false;
  QuantizeSpec spec = {};
};

struct Result {
  std::vector<float> scale;
  std::vector<int8_t> codes;
  bool operator==(const Result&) const = default;
};

enum class How { kBoth, kScale, kCodes };

Result Do(const Job& job, How how, Isa isa, int threads, uint64_t seed) {
  const int64_t count = job.rows * job.cols;
  std::vector<float> x = RandomFloats(seed, count + 3);
  if (count > 40) x[17] = std::numeric_limits<float>::quiet_NaN();
  if (count > 80) x[60] = -std::numeric_limits<float>::infinity();
  for (int64_t i = 100; i < std::min<int64_t>(count, 160); ++i) x[static_cast<size_t>(i)] = 0.0f;
  std::vector<uint16_t> half;
  for (const float value : x) half.push_back(BF16FromFloat(value));
  // One element off, so that nothing is aligned.
  const auto view = [&](auto* data) {
    MatrixView<std::remove_pointer_t<decltype(data)>> v = RowMajor(data + 1, job.rows, job.cols);
    if (job.turned) v = {data + 1, job.rows, job.cols, 1, job.rows};
    return v;
  };
  QuantizeArgs args{.block_rows = job.block_rows, .block_cols = job.block_cols, .spec = job.spec};
  if (job.bf16) {
    args.source.bf16 = view(static_cast<const uint16_t*>(half.data()));
  } else {
    args.source.f32 = view(static_cast<const float*>(x.data()));
  }
  const std::vector<float> pre = RandomScales(seed + 1, std::max(job.rows, job.cols), job.bf16);
  if (job.pre == 1) args.pre_row = pre.data();
  if (job.pre == 2) args.pre_col = pre.data();
  const std::vector<float> noise = RandomFloats(seed + 2, count);
  if (job.noise == 1) args.noise = RowMajor(noise.data(), job.rows, job.cols);
  if (job.noise == 2) args.noise = {noise.data(), job.rows, job.cols, 1, 0};
  const int64_t down = (job.rows + job.block_rows - 1) / job.block_rows;
  const int64_t across = (job.cols + job.block_cols - 1) / job.block_cols;
  Result result{RandomScales(seed + 3, down * across, job.bf16), std::vector<int8_t>(static_cast<size_t>(count), 99)};
  const std::vector<int8_t> zero = RandomCodes(seed + 4, down * across, -20, 20);
  args.scale = RowMajor(result.scale.data(), down, across);
  if (job.zero) args.zero = RowMajor(zero.data(), down, across);
  args.codes = RowMajor(result.codes.data(), job.rows, job.cols);
  if (job.codes_turned) args.codes = {result.codes.data(), job.rows, job.cols, 1, job.rows};
  ThreadPool pool(threads);
  if (how == How::kBoth) isa == Isa::kReference ? QuantizeReference(args) : Quantize(pool, isa, args);
  if (how == How::kScale) isa == Isa::kReference ? AbsMaxScaleReference(args) : AbsMaxScale(pool, isa, args);
  if (how == How::kCodes)
    isa == Isa::kReference ? QuantizeWithScaleReference(args) : QuantizeWithScale(pool, isa, args);
  for (float& scale : result.scale) scale = std::isnan(scale) ? -1.0f : scale;
  return result;
}

TEST(Dequantize, EqualsReferenceForAnyBlocks) {
  struct Extent {
    int64_t rows, cols, block_rows, block_cols;
  };
  const Extent extents[] = {{1, 1, 1, 1},     {7, 100, 1, 100}, {5, 300, 1, 32},  {40, 33, 40, 1},
                            {64, 140, 16, 1}, {33, 65, 8, 16},  {20, 45, 20, 45}, {0, 5, 1, 5}};
  ThreadPool pool(2);
  for (const Extent& e : extents) {
    for (int variant = 0; variant < 8; ++variant) {
      const bool bf16 = (variant & 1) != 0, turned = (variant & 2) != 0, zeros = (variant & 4) != 0;
      const int64_t count = e.rows * e.cols, down = (e.rows + e.block_rows - 1) / e.block_rows,
                    across = (e.cols + e.block_cols - 1) / e.block_cols;
      const std::vector<int8_t> codes = RandomCodes(1, count), zero = RandomCodes(2, down * across);
      const std::vector<float> scale = RandomScales(3, down * across);
      std::vector<float> out[2];
      std::vector<uint16_t> half[2];
      for (int i = 0; i < 2; ++i) {
        out[i].assign(static_cast<size_t>(count) + 1, -1.0f);
        half[i].assign(static_cast<size_t>(count) + 1, 7);
        DequantizeArgs args{.block_rows = e.block_rows, .block_cols = e.block_cols};
        args.codes =
            turned ? RowMajor(codes.data(), e.cols, e.rows).Transposed() : RowMajor(codes.data(), e.rows, e.cols);
        args.scale = RowMajor(scale.data(), down, across);
        if (zeros) args.zero = RowMajor(zero.data(), down, across);
        if (bf16) {
          args.bf16 =
              turned ? RowMajor(half[i].data(), e.cols, e.rows).Transposed() : RowMajor(half[i].data(), e.rows, e.cols);
        } else {
          args.f32 =
              turned ? RowMajor(out[i].data(), e.cols, e.rows).Transposed() : RowMajor(out[i].data(), e.rows, e.cols);
        }
        i == 0 ? DequantizeReference(args) : Dequantize(pool, ChooseIsa().isa, args);
      }
      EXPECT_EQ(out[0], out[1]) << e.rows << "x" << e.cols << " variant " << variant;
      EXPECT_EQ(half[0], half[1]) << e.rows << "x" << e.cols << " variant " << variant;
    }
  }
}

TEST(Quantize, EqualsReferenceForAnyBlocks) {
  struct Extent {
    int64_t rows, cols, block_rows, block_cols;
  };
  const Extent extents[] = {{1, 1, 1, 1},     {7, 100, 1, 100},     {5, 300, 1, 32},     {3, 70, 1, 33},
                            {40, 33, 40, 1},  {50, 300, 50, 1},     {64, 140, 16, 1},    {33, 65, 8, 16},
                            {20, 45, 20, 45}, {300, 200, 300, 200}, {9, 31, 4, 1},       {6, 64, 1, 1},
                            {0, 5, 1, 5},     {5, 0, 5, 1},         {129, 257, 128, 128}};
  uint64_t seed = 1;
  for (const Extent& e : extents) {
    for (const bool bf16 : {false, true}) {
      for (const Division division : {Division::kReciprocal, Division::kTrue}) {
        for (int variant = 0; variant < 8; ++variant) {
          Job job{e.rows, e.cols, e.block_rows, e.block_cols, bf16};
          job.spec.scale_division = job.spec.code_division = division;
          job.turned = variant == 1 || variant == 2;
          job.codes_turned = variant == 2 || variant == 3;
          job.pre = variant == 4 ? 1 : variant == 5 || variant == 2 ? 2 : 0;
          job.noise = variant == 6 ? 1 : variant == 7 ? 2 : 0;
          job.zero = variant == 5 || variant == 6;
          if (variant == 7) {
            job.spec.bound = 7.5f;
            job.spec.min_code = -8;
            job.spec.max_code = 7;
            job.spec.factor = 0.9f;
          }
          for (const How how : {How::kBoth, How::kScale, How::kCodes}) {
            seed += 10;
            ASSERT_EQ(Do(job, how, ChooseIsa().isa, 2, seed), Do(job, how, Isa::kReference, 1, seed))
                << e.rows << "x" << e.cols << " by " << e.block_rows << "x" << e.block_cols << " bf16 " << bf16
                << " variant " << variant << " how " << static_cast<int>(how);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::kernels
