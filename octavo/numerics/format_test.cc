#include "octavo/numerics/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "octavo/base/error.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

TEST(Format, RowsMatchTheReferenceRanges) {
  const struct {
    Format format;
    const char* name;
    int bits;
    float min, max, bound;
    Format storage;
    DType dtype;
    int block;
  } expected[] = {
      {Format::kInt2, "int2", 2, -2, 1, 1.5f, Format::kInt4, DType::kI8, 0},
      {Format::kInt3, "int3", 3, -4, 3, 3.5f, Format::kInt4, DType::kI8, 0},
      {Format::kInt4, "int4", 4, -8, 7, 7.5f, Format::kInt4, DType::kI8, 0},
      {Format::kInt5, "int5", 5, -16, 15, 15.5f, Format::kInt8, DType::kI8, 0},
      {Format::kInt6, "int6", 6, -32, 31, 31.5f, Format::kInt8, DType::kI8, 0},
      {Format::kInt7, "int7", 7, -64, 63, 63.5f, Format::kInt8, DType::kI8, 0},
      {Format::kInt8, "int8", 8, -128, 127, 127.5f, Format::kInt8, DType::kI8, 0},
      {Format::kInt16, "int16", 16, -32768, 32767, 32768.0f, Format::kInt16, DType::kI16, 0},
      {Format::kInt32, "int32", 32, -0x1p31f, 0x1p31f, 0.0f, Format::kInt32, DType::kI32, 0},
      {Format::kUint2, "uint2", 2, 0, 3, 3.5f, Format::kUint2, DType::kU8, 0},
      {Format::kUint4, "uint4", 4, 0, 15, 15.5f, Format::kUint4, DType::kU8, 0},
      {Format::kUint8, "uint8", 8, 0, 255, 255.5f, Format::kUint8, DType::kU8, 0},
      {Format::kF8E4M3FN, "float8_e4m3fn", 8, -448, 448, 448, Format::kF8E4M3FN, DType::kU8, 0},
      {Format::kF8E5M2, "float8_e5m2", 8, -57344, 57344, 57344, Format::kF8E5M2, DType::kU8, 0},
      {Format::kF8E4M3FNUZ, "float8_e4m3fnuz", 8, -240, 240, 240, Format::kF8E4M3FNUZ, DType::kU8, 0},
      {Format::kF8E5M2FNUZ, "float8_e5m2fnuz", 8, -57344, 57344, 57344, Format::kF8E5M2FNUZ, DType::kU8, 0},
      {Format::kF8E4M3, "float8_e4m3", 8, -240, 240, 240, Format::kF8E4M3, DType::kU8, 0},
      {Format::kF8E3M4, "float8_e3m4", 8, -15.5f, 15.5f, 15.5f, Format::kF8E3M4, DType::kU8, 0},
      {Format::kF8E4M3B11FNUZ, "float8_e4m3b11fnuz", 8, -30, 30, 30, Format::kF8E4M3B11FNUZ, DType::kU8, 0},
      {Format::kF8E8M0FNU, "float8_e8m0fnu", 8, 0x1p-127f, 0x1p127f, 0x1p127f, Format::kF8E8M0FNU, DType::kU8, 0},
      {Format::kF6E2M3FN, "float6_e2m3fn", 6, -7.5f, 7.5f, 7.5f, Format::kF6E2M3FN, DType::kU8, 0},
      {Format::kF6E3M2FN, "float6_e3m2fn", 6, -28, 28, 28, Format::kF6E3M2FN, DType::kU8, 0},
      {Format::kF4E2M1FN, "float4_e2m1fn", 4, -6, 6, 6, Format::kF4E2M1FN, DType::kU8, 0},
      {Format::kNF4, "nf4", 4, -1, 1, 1, Format::kNF4, DType::kU8, 0},
      {Format::kBF16, "bfloat16", 16, -0x1.fep127f, 0x1.fep127f, 0, Format::kBF16, DType::kBF16, 0},
      {Format::kF16, "float16", 16, -65504, 65504, 0, Format::kF16, DType::kF16, 0},
      {Format::kF32, "float32", 32, -0x1.fffffep127f, 0x1.fffffep127f, 0, Format::kF32, DType::kF32, 0},
      {Format::kMxfp8, "mxfp8", 8, -448, 448, 448, Format::kF8E4M3FN, DType::kU8, 32},
      {Format::kMxfp8_16, "mxfp8_16", 8, -448, 448, 448, Format::kF8E4M3FN, DType::kU8, 16},
      {Format::kMxfp4, "mxfp4", 4, -6, 6, 6, Format::kF4E2M1FN, DType::kU8, 32},
      {Format::kNvfp4, "nvfp4", 4, -6, 6, 6, Format::kF4E2M1FN, DType::kU8, 16},
  };
  EXPECT_EQ(AllFormats().size(), std::size(expected));
  for (const auto& row : expected) {
    const FormatInfo& info = Info(row.format);
    SCOPED_TRACE(row.name);
    EXPECT_EQ(info.format, row.format);
    EXPECT_EQ(info.name, row.name);
    EXPECT_EQ(info.bits, row.bits);
    EXPECT_EQ(info.min_value, row.min);
    EXPECT_EQ(info.max_value, row.max);
    EXPECT_EQ(info.symmetric_bound, row.bound);
    EXPECT_EQ(info.storage, row.storage);
    EXPECT_EQ(info.dtype, row.dtype);
    EXPECT_EQ(info.block, row.block);
  }
}

TEST(Format, AsymmetricBoundsOfThreeIntegersOnly) {
  EXPECT_EQ(AsymmetricBound(Format::kInt4), (Bounds{-8, 7}));
  EXPECT_EQ(AsymmetricBound(Format::kInt8), (Bounds{-128, 127}));
  EXPECT_EQ(AsymmetricBound(Format::kInt16), (Bounds{-32768, 32767}));
  int others = 0;
  for (const FormatInfo& info : AllFormats()) {
    if (info.asymmetric) continue;
    ++others;
    EXPECT_THROW(AsymmetricBound(info.format), Error) << info.name;
  }
  EXPECT_EQ(others, static_cast<int>(AllFormats().size()) - 3);
}

TEST(Format, NoBoundForWideFormats) {
  for (Format format : {Format::kInt32, Format::kBF16, Format::kF16, Format::kF32}) {
    EXPECT_THROW(SymmetricBound(format), Error) << Info(format).name;
  }
  EXPECT_EQ(SymmetricBound(Format::kInt8), 127.5f);
}

TEST(Format, EveryNameFindsItsRow) {
  for (const FormatInfo& info : AllFormats()) EXPECT_EQ(FormatByName(info.name), info.format) << info.name;
}

TEST(Format, OtherSpellings) {
  const struct {
    const char* name;
    Format format;
  } cases[] = {
      {"e4m3fn", Format::kF8E4M3FN},
      {"fp8_e4m3fn", Format::kF8E4M3FN},
      {"f8e4m3fn", Format::kF8E4M3FN},
      {"float8e4m3fn", Format::kF8E4M3FN},
      {"F8_E4M3FN", Format::kF8E4M3FN},
      {"e4m3", Format::kF8E4M3},
      {"fp8_e5m2", Format::kF8E5M2},
      {"e5m2fnuz", Format::kF8E5M2FNUZ},
      {"e4m3b11fnuz", Format::kF8E4M3B11FNUZ},
      {"e3m4", Format::kF8E3M4},
      {"e8m0fnu", Format::kF8E8M0FNU},
      {"e8m0", Format::kF8E8M0FNU},
      {"fp6_e2m3fn", Format::kF6E2M3FN},
      {"f6e3m2fn", Format::kF6E3M2FN},
      {"fp4", Format::kF4E2M1FN},
      {"float4_e2m1fn", Format::kF4E2M1FN},
      {"e2m1fn", Format::kF4E2M1FN},
      {"NF4", Format::kNF4},
      {"bf16", Format::kBF16},
      {"BFloat16", Format::kBF16},
      {"fp16", Format::kF16},
      {"f32", Format::kF32},
      {"i8", Format::kInt8},
      {"s4", Format::kInt4},
      {"u4", Format::kUint4},
      {"MXFP8-16", Format::kMxfp8_16},
      {"nvfp4", Format::kNvfp4},
  };
  for (const auto& one : cases) EXPECT_EQ(FormatByName(one.name), one.format) << one.name;
}

TEST(Format, UnknownNamesAreUsageErrorsWithAHint) {
  // A core with the wrong width must not be taken for the format.
  for (const char* name : {"", "int9", "float4_e4m3fn", "fp6_e2m1fn", "xe4m3fn", "fp8_", "int", "bool", "float8"}) {
    EXPECT_FALSE(FindFormat(name)) << name;
    EXPECT_THROW(FormatByName(name), Error) << name;
  }
  try {
    FormatByName("itn8");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("'itn8' is not a number format"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean int8"));
    EXPECT_THAT(error.what(), HasSubstr("float8_e4m3fnuz"));
  }
  EXPECT_THROW(FormatByName(std::string(1 << 20, 'x')), Error);
}

TEST(DType, SizesAndNames) {
  const struct {
    DType dtype;
    int64_t size;
    const char *name, *long_name;
    bool is_float;
  } rows[] = {
      {DType::kF32, 4, "f32", "float32", true},    {DType::kF64, 8, "f64", "float64", true},
      {DType::kBF16, 2, "bf16", "bfloat16", true}, {DType::kF16, 2, "f16", "float16", true},
      {DType::kI8, 1, "i8", "int8", false},        {DType::kU8, 1, "u8", "uint8", false},
      {DType::kI16, 2, "i16", "int16", false},     {DType::kU16, 2, "u16", "uint16", false},
      {DType::kI32, 4, "i32", "int32", false},     {DType::kU32, 4, "u32", "uint32", false},
      {DType::kI64, 8, "i64", "int64", false},     {DType::kU64, 8, "u64", "uint64", false},
      {DType::kBool, 1, "bool", "bool", false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(SizeOf(row.dtype), row.size) << row.name;
    EXPECT_EQ(NameOf(row.dtype), row.name);
    EXPECT_EQ(IsFloat(row.dtype), row.is_float) << row.name;
    EXPECT_EQ(DTypeByName(row.name), row.dtype) << row.name;
    EXPECT_EQ(DTypeByName(row.long_name), row.dtype) << row.long_name;
  }
  EXPECT_EQ(DTypeByName("f8"), std::nullopt);
  EXPECT_EQ(DTypeByName(""), std::nullopt);
}

}  // namespace
}  // namespace octavo
