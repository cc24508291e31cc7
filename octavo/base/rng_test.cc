// Expected numbers: the published known answers of threefry-2x32-20, and what jax.random 0.12 gives for seed 42.
#include "octavo/base/rng.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace octavo {
namespace {

constexpr RngMode kNew = RngMode::kPartitionable, kOld = RngMode::kOriginal;

TEST(Rng, KnownAnswersOfTheCipher) {
  using Pair = std::pair<uint32_t, uint32_t>;
  EXPECT_EQ(Threefry2x32(0, 0, 0, 0), (Pair{0x6b200159u, 0x99ba4efeu}));
  EXPECT_EQ(Threefry2x32(~0u, ~0u, ~0u, ~0u), (Pair{0x1cb996fcu, 0xbb002be7u}));
  EXPECT_EQ(Threefry2x32(0x13198a2eu, 0x03707344u, 0x243f6a88u, 0x85a308d3u), (Pair{0xc4923a9cu, 0x483df7a0u}));
}

TEST(Rng, SeedFillsBothWords) {
  EXPECT_EQ(RngKey::FromSeed(42), (RngKey{0, 42}));
  EXPECT_EQ(RngKey::FromSeed(0xffffffffu), (RngKey{0, 0xffffffffu}));
  EXPECT_EQ(RngKey::FromSeed(0x123456789abcdef0u), (RngKey{0x12345678u, 0x9abcdef0u}));
}

TEST(Rng, SplitAndFoldIn) {
  const RngKey key = RngKey::FromSeed(42);
  EXPECT_EQ(key.Split(0), (RngKey{0x6d3e048fu, 0x1022172du}));
  EXPECT_EQ(key.Split(1), (RngKey{0x03d7b32du, 0xadd083f4u}));
  EXPECT_EQ(key.Split(4, 5, kNew), (RngKey{0xb013aee3u, 0xc34eddf6u}));
  EXPECT_EQ(key.Split(0, 2, kOld), (RngKey{0x92fb20eau, 0xdb4c98dbu}));
  EXPECT_EQ(key.Split(1, 2, kOld), (RngKey{0x0f38d913u, 0x0ff68959u}));
  EXPECT_EQ(key.Split(1, 3, kOld), (RngKey{0xdf4f11dfu, 0x354ba891u}));
  EXPECT_EQ(key.Split(4, 5, kOld), (RngKey{0xa1c44acdu, 0xa79edc49u}));
  EXPECT_EQ(key.FoldIn(3), (RngKey{0xbad56946u, 0x354ba891u}));
  EXPECT_EQ(key.FoldIn(77), (RngKey{0xc74f69bdu, 0xdcc17687u}));
}

std::vector<uint64_t> Stream(int width, uint64_t size, RngMode mode) {
  std::vector<uint64_t> stream;
  for (uint64_t i = 0; i < size; ++i) stream.push_back(RngKey::FromSeed(42).Bits(width, i, size, mode));
  return stream;
}

TEST(Rng, BitsOfEveryWidth) {
  using V = std::vector<uint64_t>;
  EXPECT_EQ(Stream(8, 5, kNew), (V{0xa2, 0xd9, 0xf9, 0xd7, 0x15}));
  EXPECT_EQ(Stream(16, 5, kNew), (V{0x13a2, 0x30d9, 0xf9f9, 0xc1d7, 0x7315}));
  EXPECT_EQ(Stream(32, 5, kNew), (V{0x7d1c13a2, 0xae0730d9, 0x9dc3f9f9, 0x8f9ec1d7, 0x735d7315}));
  EXPECT_EQ(Stream(8, 5, kOld), (V{0x2d, 0xb3, 0xd7, 0x03, 0xf4}));
  EXPECT_EQ(Stream(16, 5, kOld), (V{0x20ea, 0x92fb, 0xf86f, 0x19a3, 0xd913}));
  EXPECT_EQ(Stream(32, 5, kOld), (V{0xbad56946, 0xde837c89, 0x3249c374, 0x354ba891, 0x2fc69b62}));
  // 64 bits: both words of a block in the new layout, word i and word i + size in the old one.
  EXPECT_EQ(Stream(64, 2, kNew), (V{0x6d3e048f1022172d, 0x03d7b32dadd083f4}));
  const V words = Stream(32, 4, kOld);
  EXPECT_EQ(Stream(64, 2, kOld), (V{words[0] << 32 | words[2], words[1] << 32 | words[3]}));
}

TEST(Rng, ElementsDoNotDependOnTheLengthWhenPartitionable) {
  const RngKey key = RngKey::FromSeed(7);
  for (uint64_t i : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 33}) {
    EXPECT_EQ(key.Bits(32, i, i + 1, kNew), key.Bits(32, i, i + 1000, kNew));
    EXPECT_EQ(key.Bits(32, i, i + 1, kNew), key.Bits32(i));
  }
  // The counter has 64 bits.
  EXPECT_NE(key.Bits32(3), key.Bits32(3 + (uint64_t{1} << 32)));
}

TEST(Rng, Uniforms) {
  const RngKey key = RngKey::FromSeed(42);
  EXPECT_EQ(std::bit_cast<uint32_t>(Uniform(key, 0)), 0x3efa3824u);
  EXPECT_EQ(std::bit_cast<uint32_t>(Uniform(key, 4)), 0x3ee6bae4u);
  EXPECT_EQ(std::bit_cast<uint32_t>(Uniform(key, 0, -0.5f, 0.5f)), 0xbc38fb80u);
  EXPECT_EQ(UniformFromBits(0), 0.0f);
  EXPECT_EQ(UniformFromBits(~0u), 1.0f - 0x1p-23f);
  EXPECT_EQ(UniformBF16FromBits(0xa2), 0.6328125f);
  EXPECT_EQ(UniformBF16FromBits(0xff), 127.0f / 128.0f);
  EXPECT_EQ(UniformF16FromBits(0xffff), 1023.0f / 1024.0f);
  EXPECT_EQ(UniformF16FromBits(0x003f), 0.0f);
}

TEST(Rng, Normals) {
  const RngKey key = RngKey::FromSeed(42);
  const float expected[] = {-0.02830461598932743f, 0.4671318531036377f,   0.2957029640674591f,
                            0.15354591608047485f,  -0.12403281778097153f, 0.21692314743995667f};
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(Normal(key, static_cast<uint64_t>(i)), expected[i], 1e-6f * std::fabs(expected[i])) << i;
  }
  // The ends of the range are finite, and no number is lost to infinity.
  EXPECT_NEAR(NormalFromBits(0), -5.4199f, 0.01f);
  EXPECT_NEAR(NormalFromBits(~0u), 5.1666f, 0.2f);
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double value = Normal(key, i);
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.01);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

TEST(Rng, Integers) {
  const RngKey key = RngKey::FromSeed(42);
  const int32_t expected_new[] = {644, 914, 71, 369, 709}, expected_old[] = {201, 53, 369, 879, 431};
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(RandomInteger(key, i, 33, 0, 1000, kNew), expected_new[i]) << i;
    EXPECT_EQ(RandomInteger(key, i, 21, 0, 1000, kOld), expected_old[i]) << i;
  }
  for (uint64_t i = 0; i < 1000; ++i) {
    const int32_t value = RandomInteger(key, i, 1000, -3, 4);
    EXPECT_GE(value, -3);
    EXPECT_LT(value, 4);
  }
  EXPECT_EQ(RandomInteger(key, 0, 1, 5, 5), 5);
  EXPECT_EQ(RandomInteger(key, 0, 1, 5, -5), 5);
  RandomInteger(key, 0, 1, INT32_MIN, INT32_MAX);  // the widest range must not overflow
}

}  // namespace
}  // namespace octavo
