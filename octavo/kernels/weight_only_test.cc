// Packed weights: every packing decodes to the values of its source, and products with them have the bits of the
// reference for any number of rows.
#include "octavo/kernels/weight_only.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/kernels/code_table.h"
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/matmul_f32_impl.h"
#include "octavo/kernels/matmul_f32_test_support.h"
#include "octavo/kernels/weight_only_isa.h"

namespace octavo::kernels {
namespace {

uint32_t Bits(float v) { return std::isnan(v) ? 0x7fc00000u : std::bit_cast<uint32_t>(v); }

// Codes in bytes with the table of a format, all codes occurring.
Matrix CodesOf(Numbers& numbers, Format format, int64_t rows, int64_t cols, bool no_nan) {
  Matrix matrix = RandomMatrix(numbers, Stored::kByte, rows, cols, Layout::kRows);
  matrix.source.table = &CodeTableOf(format);
  int next = 0;
  for (uint8_t& byte : matrix.bytes) {
    do {
      byte = static_cast<uint8_t>(next++ * 37);
    } while (no_nan && !std::isfinite(matrix.source.table->value[byte]));
  }
  return matrix;
}

void ExpectSameValues(const FloatSource& source, const PackedWeights& packed, const std::string& what) {
  for (int64_t n = 0; n < source.cols; ++n) {
    for (int64_t k = 0; k < source.rows; ++k) {
      ASSERT_EQ(Bits(ValueAt(source, k, n)), Bits(ValueAt(packed, k, n))) << what << " " << k << " " << n;
    }
  }
  if (ChooseIsa().isa < Isa::kAvx2) return;
  // The vector decoder, on a range of rows that starts anywhere.
  const int64_t k0 = source.rows / 3, depth = source.rows - k0, panels = (source.cols + 15) / 16;
  std::vector<float> decoded(static_cast<size_t>(panels * 16 * depth));
  internal::DecodeColsAvx2(packed.view(), k0, depth, 0, source.cols, decoded.data(), 16 * depth);
  for (int64_t n = 0; n < source.cols; ++n) {
    for (int64_t k = k0; k < source.rows; ++k) {
      const float found = decoded[static_cast<size_t>(n / 16 * 16 * depth + (k - k0) * 16 + n % 16)];
      ASSERT_EQ(Bits(ValueAt(source, k, n)), Bits(found)) << what << " vector " << k << " " << n;
    }
  }
}

TEST(PackWeights, EveryCodeOfEveryFormat) {
  ThreadPool pool(2);
  Numbers numbers(1);
  for (const FormatInfo& info : AllFormats()) {
    if (info.bits > 8) continue;
    for (const bool no_nan : {false, true}) {
      const Matrix codes = CodesOf(numbers, info.format, 67, 99, no_nan);
      ExpectSameValues(codes.source, PackWeights(pool, codes.source), std::string(info.name));
    }
  }
}

TEST(PackWeights, NarrowestPackingThatLosesNothing) {
  ThreadPool pool(1);
  Numbers numbers(2);
  const auto packing = [&](Format format) {
    const Matrix codes = CodesOf(numbers, format, 8, 16, true);
    return PackWeights(pool, codes.source).view().packing;
  };
  EXPECT_EQ(packing(Format::kInt4), Packing::kOffsetNibble);
  EXPECT_EQ(packing(Format::kUint4), Packing::kOffsetNibble);
  EXPECT_EQ(packing(Format::kInt2), Packing::kOffsetNibble);
  EXPECT_EQ(packing(Format::kF4E2M1FN), Packing::kOffsetLookup);
  EXPECT_EQ(packing(Format::kNF4), Packing::kNibbleTable);
  EXPECT_EQ(packing(Format::kInt8), Packing::kOffsetByte);
  EXPECT_EQ(packing(Format::kUint8), Packing::kTableByte);
  EXPECT_EQ(packing(Format::kInt6), Packing::kOffsetByte);
  EXPECT_EQ(packing(Format::kF8E4M3FN), Packing::kHalfByte);
  EXPECT_EQ(packing(Format::kF8E5M2), Packing::kHalfByte);
  EXPECT_EQ(packing(Format::kF8E4M3FNUZ), Packing::kHalfByte);
  EXPECT_EQ(packing(Format::kF8E8M0FNU), Packing::kTableByte);
  Matrix with_nan = CodesOf(numbers, Format::kF8E4M3FN, 8, 16, true);
  with_nan.bytes[static_cast<size_t>(with_nan.source.offset + 20)] = 0x7f;
  EXPECT_EQ(PackWeights(pool, with_nan.source).view().packing, Packing::kTableByte);
}

TEST(PackWeights, BytesAreThoseOfTheCodesAndScales) {
  ThreadPool pool(1);
  Numbers numbers(3);
  Matrix codes = CodesOf(numbers, Format::kInt4, 256, 64, true);
  EXPECT_EQ(PackWeights(pool, codes.source).bytes(), 256 * 64 / 2 + 64 * 2);  // whole numbers carry a scale of 1
  codes.scale.assign(8 * 64, 0.3f);                                           // groups of 32 along K
  codes.source.scales = {codes.scale.data(), nullptr, 32, 1, 64, 1, 0, 0};
  EXPECT_EQ(PackWeights(pool, codes.source).bytes(), 256 * 64 / 2 + 8 * 64 * 4);
  codes.scale.assign(8 * 64, 0.25f);  // powers of two need half the room
  EXPECT_EQ(PackWeights(pool, codes.source).bytes(), 256 * 64 / 2 + 8 * 64 * 2);
}

// Scales for which a shortcut of the decoders would not be exact.
TEST(PackWeights, ExtremeScales) {
  ThreadPool pool(1);
  Numbers numbers(4);
  for (const float scale : {0x1p-126f, 0x1.8p-120f, 0x1.fffffep127f, 0.0f, -0.3f, 0x1p-140f,
                            std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const Format format : {Format::kF8E4M3FN, Format::kInt8, Format::kInt4, Format::kNF4}) {
      Matrix codes = CodesOf(numbers, format, 16, 16, true);
      codes.scale = {scale};
      codes.source.scales.scale = codes.scale.data();
      ExpectSameValues(codes.source, PackWeights(pool, codes.source), fmt::format("scale {}", scale));
    }
  }
}

class WeightOnlyBits : public ::testing::Test {
 protected:
  // The product with packed weights equals the reference on the source, in all of C's memory.
  void Compare(const FloatSource& a, const FloatSource& b, const std::string& what) {
    Numbers numbers(9);
    const Output before = RandomOutput(numbers, Stored::kF32, a.rows, b.cols, Layout::kRows);
    Output want = Copy(before);
    MatMulF32Args args;
    args.a = a, args.b = b, args.c = want.result;
    MatMulF32Reference(one_, args);
    const PackedWeights packed = PackWeights(two_, b);
    args.packed_b = &packed;
    Output plain = Copy(before);
    args.c = plain.result;
    MatMulF32Reference(one_, args);
    ASSERT_EQ(want.words, plain.words) << what << ", reference";
    ThreadPool* pools[] = {&one_, &two_, &three_};
    for (ThreadPool* pool : pools) {
      Output found = Copy(before);
      args.c = found.result;
      MatMulF32(*pool, ChooseIsa().isa, workspace_, args);
      ASSERT_EQ(want.words, found.words) << what << ", threads " << pool->size();
    }
  }

  ThreadPool one_{1}, two_{2}, three_{3};
  Workspace workspace_;
};

TEST_F(WeightOnlyBits, FormatsRowsAndGroups) {
  Numbers numbers(5);
  constexpr Format kFormats[] = {Format::kInt8,   Format::kInt4,     Format::kNF4,        Format::kF8E4M3FN,
                                 Format::kF8E5M2, Format::kF4E2M1FN, Format::kF8E4M3FNUZ, Format::kUint4};
  constexpr int64_t kGroups[] = {16, 32, 128, 5, 7, 4096};
  constexpr int64_t kDepths[] = {1, 4, 100, 256, 258, 512, 640, 777};
  for (int round = 0; round < 160; ++round) {
    const Format format = kFormats[round % 8];
    const int64_t m = round % 3 == 0 ? 1 : 1 + numbers.Below(12), n = 1 + numbers.Below(200), k = numbers.Of(kDepths);
    const Matrix a = RandomMatrix(numbers, Stored::kF32, m, k, Layout::kRows);
    Matrix b = CodesOf(numbers, format, k, n, true);
    const int kind = static_cast<int>(numbers.Below(4));
    if (kind > 0) AddScales(numbers, b, numbers.Of(kGroups), 1, kind == 3);
    if (kind == 2) {
      for (float& s : b.scale) s = std::ldexp(1.0f, std::ilogb(s));
    }
    Compare(a.source, b.source, fmt::format("round {}: {} {} x {} x {}", round, Info(format).name, m, n, k));
    if (HasFatalFailure()) return;
  }
}

TEST_F(WeightOnlyBits, FloatsAndNibbles) {
  Numbers numbers(6);
  constexpr Stored kStored[] = {Stored::kF32, Stored::kBF16, Stored::kF16, Stored::kI8, Stored::kNibble};
  for (int round = 0; round < 60; ++round) {
    const int64_t m = 1 + numbers.Below(10), n = 1 + numbers.Below(70), k = 1 + numbers.Below(600);
    const Matrix a = RandomMatrix(numbers, Stored::kBF16, m, k, Layout::kRows);
    Matrix b = RandomMatrix(numbers, kStored[round % 5], k, n, round % 2 == 0 ? Layout::kRows : Layout::kCols);
    if (round % 3 == 0) AddScales(numbers, b, 32, 5, false);
    Compare(a.source, b.source, fmt::format("round {}: {} x {} x {}", round, m, n, k));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace octavo::kernels
