#include "octavo/checkpoint/llama2c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "octavo/base/error_test_support.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;

template <typename T>
std::string Number(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// dim 8, hidden 16, 2 layers, 2 heads, 1 key head, vocabulary 5, length 4.
std::string Sizes(int32_t vocab) {
  std::string bytes;
  for (const int32_t size : {8, 16, 2, 2, 1, vocab, 4}) bytes += Number(size);
  return bytes;
}

constexpr int64_t kLayer = 8 * 8 * 2 + 4 * 8 * 2 + 16 * 8 * 3;  // elements of the matrices

std::string FirstForm(bool tied) {
  std::string bytes = Sizes(tied ? 5 : -5);
  const int64_t floats = 5 * 8 + 2 * 8 * 2 + 2 * kLayer + 8 + 4 * 4 + (tied ? 0 : 5 * 8);
  for (int64_t i = 0; i < floats; ++i) bytes += Number(static_cast<float>(i));
  return bytes;
}

std::string SecondForm() {
  std::string bytes = Number(0x616b3432u) + Number(int32_t{2}) + Sizes(5) + Number(uint8_t{1}) + Number(int32_t{4});
  bytes.resize(256);
  bytes += std::string((2 * 8 * 2 + 8) * 4, '\0');
  const int64_t codes = 5 * 8 + 2 * kLayer;
  bytes += std::string(static_cast<size_t>(codes + codes / 4 * 4), '\1');
  return bytes;
}

std::string ErrorOf(const std::string& bytes) {
  return ErrorText(ErrorCode::kFile, [&] { ParseLlama2c(std::as_bytes(std::span(bytes)), "m.bin"); });
}

TEST(Llama2c, FirstForm) {
  const std::string bytes = FirstForm(true);
  const Llama2cContent content = ParseLlama2c(std::as_bytes(std::span(bytes)), "m.bin");
  EXPECT_EQ(content.version, 0);
  EXPECT_EQ(content.vocab_size, 5);
  EXPECT_TRUE(content.tied);
  ASSERT_EQ(content.tensors.size(), 2u + 2 * 9);
  EXPECT_EQ(content.tensors[1].name, "model.layers.0.input_layernorm.weight");
  float value;
  std::memcpy(&value, content.tensors[1].bytes.data(), 4);
  EXPECT_EQ(value, 40.0f);  // after the embedding
  EXPECT_EQ(content.tensors.back().name, "model.norm.weight");
  const std::string untied = FirstForm(false);
  EXPECT_EQ(ParseLlama2c(std::as_bytes(std::span(untied)), "m.bin").tensors.back().name, "lm_head.weight");
}

TEST(Llama2c, GroupsOfInt8) {
  const std::string bytes = SecondForm();
  const Llama2cContent content = ParseLlama2c(std::as_bytes(std::span(bytes)), "m.bin");
  EXPECT_EQ(content.version, 2);
  const Llama2cTensor& embedding = content.tensors[5];
  EXPECT_EQ(embedding.name, "model.embed_tokens.weight");
  EXPECT_EQ(embedding.group, 4);
  EXPECT_EQ(embedding.bytes.size(), 40u);
  EXPECT_EQ(embedding.scales.size(), 40u);
}

TEST(Llama2c, EveryTruncationAndTailIsFound) {
  for (const std::string& good : {FirstForm(true), SecondForm()}) {
    EXPECT_EQ(ErrorOf(good), "no error");
    for (size_t size = 0; size < good.size(); size += 7) ASSERT_NE(ErrorOf(good.substr(0, size)), "no error") << size;
    EXPECT_THAT(ErrorOf(good + "x"), HasSubstr("1 bytes at the end"));
    EXPECT_TRUE(LooksLikeLlama2c(std::as_bytes(std::span(good))));
  }
  EXPECT_FALSE(LooksLikeLlama2c({}));
}

TEST(Llama2c, RefusesSizesThatCannotBe) {
  std::string bytes = FirstForm(true);
  for (const int32_t bad : {0, -1, INT32_MAX, INT32_MIN, 3}) {
    for (size_t field = 0; field < 5; ++field) {
      std::string broken = bytes;
      std::memcpy(broken.data() + field * 4, &bad, 4);
      EXPECT_NE(ErrorOf(broken), "no error") << field << " " << bad;
    }
  }
  std::string version = SecondForm();
  version[4] = 9;
  EXPECT_THAT(ErrorOf(version), HasSubstr("version 9"));
  std::string group = SecondForm();
  group[8 + 28 + 1] = 3;
  EXPECT_THAT(ErrorOf(group), HasSubstr("groups of 3 do not divide"));
}

}  // namespace
}  // namespace octavo
