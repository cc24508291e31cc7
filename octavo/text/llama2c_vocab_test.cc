#include "octavo/text/llama2c_vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"

namespace octavo::text {
namespace {

std::string File(const std::vector<std::pair<float, std::string>>& tokens, int32_t longest = 16) {
  std::string bytes(reinterpret_cast<const char*>(&longest), 4);
  for (const auto& [score, piece] : tokens) {
    const auto length = static_cast<int32_t>(piece.size());
    bytes.append(reinterpret_cast<const char*>(&score), 4)
        .append(reinterpret_cast<const char*>(&length), 4)
        .append(piece);
  }
  return bytes;
}

std::vector<std::pair<float, std::string>> Small() {
  std::vector<std::pair<float, std::string>> tokens = {{0, "<unk>"}, {0, "\n<s>\n"}, {0, "\n</s>\n"}};
  for (int i = 0; i < 256; ++i) tokens.emplace_back(0.0f, fmt::format("<0x{:02X}>", i));
  for (const char* piece : {" ", "a", "b", " a", "ab", " ab"})
    tokens.emplace_back(-static_cast<float>(tokens.size()), piece);
  return tokens;
}

TEST(Llama2cVocabulary, IsTheSentencePieceModelItWasMadeFrom) {
  const TempFolder folder;
  std::ofstream(folder / "tok512.bin", std::ios::binary) << File(Small());
  const auto tokenizer = LoadTokenizer(folder.path().string());  // the only one in the folder
  // 259 " ", 260 a, 261 b, 262 " a", 263 "ab", 264 " ab": larger scores merge first, and merge on.
  EXPECT_THAT(tokenizer->Encode("ab b", {.add_special = true}), ::testing::ElementsAre(1, 264, 259, 261));
  EXPECT_THAT(tokenizer->Encode("\n"), ::testing::ElementsAre(259, 3 + 10));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{1, 264, 259, 261}, {.skip_special = true}), "ab b");
  EXPECT_EQ(tokenizer->roles().bos, 1);
  EXPECT_EQ(tokenizer->roles().eos, 2);
}

TEST(Llama2cVocabulary, MalformedFiles) {
  const std::string good = File(Small());
  for (const size_t cut : {size_t{0}, size_t{3}, size_t{7}, size_t{11}, good.size() - 1}) {
    EXPECT_THROW(ParseLlama2cVocabulary(std::string_view(good).substr(0, cut), "x"), Error) << cut;
  }
  EXPECT_THROW(ParseLlama2cVocabulary(File(Small(), 0), "x"), Error);
  EXPECT_THROW(ParseLlama2cVocabulary(File(Small(), 3), "x"), Error);  // tokens longer than the longest
  EXPECT_THROW(ParseLlama2cVocabulary(File(Small(), 1 << 30), "x"), Error);
  std::string negative = good;
  negative[8] = negative[9] = negative[10] = negative[11] = '\xFF';  // length -1
  EXPECT_THROW(ParseLlama2cVocabulary(negative, "x"), Error);
}

}  // namespace
}  // namespace octavo::text
