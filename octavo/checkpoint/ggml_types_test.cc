#include "octavo/checkpoint/ggml_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> Quantized(GgmlType type, const std::vector<float>& values) {
  const GgmlTypeInfo& info = Info(type);
  std::vector<std::byte> blocks(values.size() / static_cast<size_t>(info.block) * static_cast<size_t>(info.bytes));
  QuantizeBlocks(type, values, blocks);
  return blocks;
}

std::vector<float> Decoded(GgmlType type, const std::vector<std::byte>& blocks) {
  const GgmlTypeInfo& info = Info(type);
  std::vector<float> values(blocks.size() / static_cast<size_t>(info.bytes) * static_cast<size_t>(info.block));
  DecodeBlocks(type, blocks, values);
  return values;
}

TEST(GgmlTypes, TheTableIsConsistent) {
  std::set<std::string_view> names;
  for (const GgmlTypeInfo& row : AllGgmlTypes()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(FindGgmlType(row.name), &row);
    EXPECT_EQ(FindGgmlType(static_cast<uint32_t>(row.type)), &row);
    EXPECT_TRUE(row.quantize == nullptr || row.decode != nullptr) << row.name;
  }
  EXPECT_EQ(FindGgmlType(4u), nullptr);  // dropped by the format
  EXPECT_EQ(FindGgmlType("Q9_9"), nullptr);
}

TEST(GgmlTypes, LatticesOfTheTypeSurvive) {
  // Values that a type can hold come back to the bit: int8 codes times a scale of few bits, with 127 in each block.
  std::vector<float> eight, four;
  for (int i = 0; i < 64; ++i) eight.push_back(static_cast<float>(i % 32 == 0 ? 127 : i * 5 % 255 - 127) * 0.25f);
  for (int i = 0; i < 64; ++i) four.push_back(static_cast<float>(i % 32 == 0 ? -8 : i % 16 - 8) * 0.125f);
  EXPECT_EQ(Decoded(GgmlType::kQ8_0, Quantized(GgmlType::kQ8_0, eight)), eight);
  EXPECT_EQ(Decoded(GgmlType::kQ4_0, Quantized(GgmlType::kQ4_0, four)), four);
  EXPECT_EQ(Decoded(GgmlType::kF32, Quantized(GgmlType::kF32, eight)), eight);
  EXPECT_EQ(Decoded(GgmlType::kBF16, Quantized(GgmlType::kBF16, four)), four);
  EXPECT_EQ(Decoded(GgmlType::kF16, Quantized(GgmlType::kF16, four)), four);
}

TEST(GgmlTypes, AHandMadeBlock) {
  // Q4_0: scale 2 (f16 0x4000), the first byte 0x91: element 0 is (1 - 8) * 2, element 16 is (9 - 8) * 2.
  std::vector<std::byte> block(18, std::byte{0x88});
  block[0] = std::byte{0x00};
  block[1] = std::byte{0x40};
  block[2] = std::byte{0x91};
  const std::vector<float> values = Decoded(GgmlType::kQ4_0, block);
  EXPECT_EQ(values[0], -14.0f);
  EXPECT_EQ(values[16], 2.0f);
  EXPECT_EQ(values[1], 0.0f);
}

TEST(GgmlTypes, ErrorIsBoundedByHalfAStep) {
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) values.push_back(std::sin(static_cast<float>(i) * 0.7f));
  const struct {
    GgmlType type;
    float bound;
  } kCases[] = {{GgmlType::kQ8_0, 0.005f}, {GgmlType::kQ5_0, 0.07f}, {GgmlType::kQ5_1, 0.04f},
                {GgmlType::kQ4_0, 0.13f},  {GgmlType::kQ4_1, 0.08f}, {GgmlType::kMXFP4, 0.26f}};
  for (const auto& one : kCases) {
    const std::vector<float> back = Decoded(one.type, Quantized(one.type, values));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::fabs(back[i] - values[i]), one.bound) << Info(one.type).name;
    }
  }
}

TEST(GgmlTypes, TernaryDigitsComeBack) {
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) values.push_back(static_cast<float>((i * 7 + i / 13) % 3 - 1) * 0.5f);
  EXPECT_EQ(Decoded(GgmlType::kTQ1_0, Quantized(GgmlType::kTQ1_0, values)), values);
  EXPECT_EQ(Decoded(GgmlType::kTQ2_0, Quantized(GgmlType::kTQ2_0, values)), values);
}

TEST(GgmlTypes, SubnormalsDoNotDependOnTheThread) {
  std::vector<std::byte> block(17, std::byte{0x11});  // element = 0.5 times 2^-127: subnormal
  block[0] = std::byte{0};
  const ScopedFloatMode flushing;
  std::vector<uint32_t> bits(32);
  std::vector<float> values(32);
  DecodeBlocks(GgmlType::kMXFP4, block, values);
  std::memcpy(bits.data(), values.data(), 128);
  EXPECT_EQ(bits[0], 0x00200000u);
  EXPECT_TRUE(FloatModeIsSet());
}

TEST(GgmlTypes, HostileBlocksStayNumbersOrNan) {
  for (const GgmlTypeInfo& row : AllGgmlTypes()) {
    if (row.decode == nullptr) continue;
    for (int byte = 0; byte < 256; ++byte) {
      Decoded(row.type, std::vector<std::byte>(static_cast<size_t>(row.bytes), static_cast<std::byte>(byte)));
    }
    if (row.quantize == nullptr) continue;
    for (const float bad : {NAN, INFINITY, -INFINITY, 1e38f, 1e-45f, -0.0f}) {
      Quantized(row.type, std::vector<float>(static_cast<size_t>(row.block), bad));
    }
  }
}

TEST(GgmlTypes, TypesWithoutAFunctionSaySo) {
  std::vector<std::byte> block(66);
  std::vector<float> values(256);
  try {
    DecodeBlocks(GgmlType::kIQ2_XXS, block, values);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "GGML type IQ2_XXS is not supported");
    EXPECT_THAT(error.hint(), HasSubstr("Q6_K"));
  }
  block.resize(144);
  EXPECT_THROW(QuantizeBlocks(GgmlType::kQ4_K, values, block), Error);
}

}  // namespace
}  // namespace octavo
